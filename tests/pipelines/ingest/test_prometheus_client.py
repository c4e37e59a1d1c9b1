"""A real Prometheus scraping eight simulated dcgm-exporters, then `ingest` and `doctor`."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main

HOSTS, GPUS = 8, 8
SECONDS = 5  # per record
CONFIG = f'[records]\ninterval = "{SECONDS}s"\n'
BLANK = "140737488355328.0"
# Even hosts run an old exporter, odd ones an exporter with the names of DCGM 4.6.
OLD = {
    "temp": "DCGM_FI_DEV_GPU_TEMP",
    "power": "DCGM_FI_DEV_POWER_USAGE",
    "ecc": "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "corr": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "unc": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "xid": "DCGM_FI_DEV_XID_ERRORS",
}
NEW = OLD | {
    "temp": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "power": "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "corr": "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
    "unc": "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    "xid": "DCGM_FI_DEV_XID_ERROR",
}


class Exporters:
    """All exporters of the site in one server; the first part of the path is the host."""

    def __init__(self) -> None:
        self.started = time.time()
        self.broken_at = float("inf")

    def page(self, host: int) -> str:
        return "".join(line for gpu in range(GPUS) for line in self.lines(host, gpu))

    def lines(self, host: int, gpu: int) -> Iterator[str]:
        names, label = (OLD, "Hostname") if host % 2 == 0 else (NEW, "hostname")
        labels = f'gpu="{gpu}",UUID="GPU-{host}{gpu}",{label}="node-{host}",modelName="H100"'
        labels += f',pci_bus_id="00000000:1{gpu}:00.0",DCGM_FI_DRIVER_VERSION="550.1"'
        broken = (host, gpu) == (2, 3) and time.time() >= self.broken_at
        values = {
            "temp": 30 + gpu,
            "power": BLANK if (host, gpu) == (1, 1) else 100 + int(time.time()) % SECONDS,
            "ecc": int(time.time() - self.started),
            "corr": gpu,
            "unc": 1,
            # The gauge never clears: one GPU shows an Xid of last year.
            "xid": 79 if broken else 31 if (host, gpu) == (3, 3) else 0,
        }
        for name, value in values.items():
            yield f"{names[name]}{{{labels}}} {value}\n"
        if host == 4:
            yield f'{names["temp"]}{{{labels},GPU_I_ID="1"}} 99\n'


@pytest.fixture(scope="module")
def exporters() -> Iterator[tuple[Exporters, int]]:
    site = Exporters()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = site.page(int(self.path.split("/")[1])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield site, server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def prometheus(
    exporters: tuple[Exporters, int],
    require_program: Callable[[str, str], Path],
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Start the server, let it scrape for a while, and return its address."""
    folder = tmp_path_factory.mktemp("prometheus")
    site, port = exporters
    jobs = [
        f"  - job_name: node-{host}\n    metrics_path: /{host}/metrics\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        for host in range(HOSTS)
    ]
    head = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
    (folder / "prometheus.yml").write_text(head + "".join(jobs))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [
                require_program("prometheus", "prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={address}",
                "--query.max-samples=4000",
            ],
            stdout=out,
            stderr=out,
        )
    try:
        wait_for_scrapes(f"http://{address}")
        site.broken_at = time.time()
        wait_for_scrapes(f"http://{address}")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(300)


def wait_for_scrapes(url: str) -> None:
    """Wait until every exporter was scraped in each of the next three intervals.

    On a busy machine a scrape occasionally times out after a second.
    """
    span = 3 * SECONDS + 1
    time.sleep(span)
    # Three consecutive intervals all have a scrape if fewer than `SECONDS` scrapes fail.
    query = f"count(sum_over_time(up[{span}s]) > {span - SECONDS})"
    for _ in range(300):
        with suppress(httpx.HTTPError, ValueError):
            if [float(series["value"][1]) for series in ask(url, query)] == [HOSTS]:
                return
        time.sleep(0.2)
    raise AssertionError("Prometheus does not scrape all exporters")


def ask(url: str, query: str, **more: float) -> list[dict[str, Any]]:
    """Return the series of an instant query."""
    parameters = {"query": query, **{name: str(value) for name, value in more.items()}}
    answer = httpx.get(f"{url}/api/v1/query", params=parameters, timeout=60, trust_env=False)
    series: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
    return series


@pytest.fixture(scope="module")
def out(
    prometheus: str, exporters: tuple[Exporters, int], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("ingested")
    (folder / "config.toml").write_text(CONFIG)
    start = pd.Timestamp(exporters[0].started, unit="s", tz="UTC").isoformat()
    assert ingest(prometheus, folder, "--start", start) == 0
    return folder


def ingest(url: str, folder: Path, *more: str) -> int:
    arguments = ["--prometheus", url, "--out", str(folder / "records")]
    return main(["ingest", *arguments, "--config", str(folder / "config.toml"), *more])


def records_of(folder: Path) -> pd.DataFrame:
    files = sorted((folder / "records").glob("date=*/*.parquet"))
    found: pd.DataFrame = pd.concat(
        [pq.read_table(file, partitioning=None).to_pandas() for file in files]
    )
    return found


def test_every_gpu_has_record_per_interval(out: Path) -> None:
    records = records_of(out)
    assert records["gpu_serial"].nunique() == HOSTS * GPUS
    assert not records.duplicated(["gpu_serial", "timestamp"]).any()
    counts = records["gpu_serial"].value_counts()
    assert counts.min() >= 5
    assert (records["timestamp"].astype("int64") % (SECONDS * SECOND) == 0).all()
    slots = records["gpu_serial"].str[-1].astype(float)
    assert (records["temperature_gpu"] == 30 + slots).all()
    assert (records["rows_remapped"] == 1 + slots).all()
    assert (records["machine_id"] == "node-" + records["gpu_serial"].str[-2]).all()
    assert set(records["driver_version"]) == {"550.1"}


def samples(url: str, name: str, end: float) -> dict[str, list[float]]:
    """Return Prometheus's values of one interval by GPU, for any name of the metric."""
    query = f'{{__name__=~"{OLD[name]}|{NEW[name]}"}}[{SECONDS}s]'
    return {
        series["metric"]["UUID"]: [float(value) for _, value in series["values"]]
        for series in ask(url, query, time=end)
    }


def test_gauges_are_means_and_counters_are_last_values(out: Path, prometheus: str) -> None:
    records, differ = records_of(out), list[bool]()
    # A scrape of the last interval may have been in progress; GPU-11 has blank values.
    known = records[records["timestamp"] < records["timestamp"].max()]
    for end, rows in known[known["gpu_serial"] != "GPU-11"].groupby("timestamp"):
        power, ecc = (samples(prometheus, name, end.timestamp()) for name in ("power", "ecc"))
        means = [fmean(power[serial]) for serial in rows["gpu_serial"]]
        assert rows["power_draw"].to_list() == pytest.approx(means)
        assert rows["ecc_corrected"].to_list() == [ecc[gpu][-1] for gpu in rows["gpu_serial"]]
        differ += [
            power[gpu][-1] != mean for gpu, mean in zip(rows["gpu_serial"], means, strict=True)
        ]
    assert any(differ)


def test_blank_values_are_missing(out: Path) -> None:
    records = records_of(out)
    assert records.loc[records["gpu_serial"] == "GPU-11", "power_draw"].isna().all()


def test_xid_gauge_reports_changes_only(out: Path) -> None:
    records = records_of(out)
    assert set(records.loc[records["gpu_serial"] == "GPU-33", "xid"]) == {0}
    broken = records[(records["gpu_serial"] == "GPU-23") & (records["xid"] > 0)]
    assert list(broken["xid"]) == [79]
    failures = pq.read_table(out / "records" / "failures.parquet").to_pylist()
    assert [(one["gpu_serial"], one["cause"]) for one in failures] == [("GPU-23", "xid 79")]


def test_later_call_continues(out: Path, prometheus: str) -> None:
    before = records_of(out)
    time.sleep(SECONDS)
    assert ingest(prometheus, out) == 0
    after = records_of(out)
    assert after["timestamp"].min() == before["timestamp"].min()
    assert after["timestamp"].max() > before["timestamp"].max()
    assert not after.duplicated(["gpu_serial", "timestamp"]).any()


def test_doctor_reads_the_records(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", str(out / "config.toml"), "--json"]
    assert main(["doctor", str(out / "records"), *config]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpus"], found["machines"], found["cadence_seconds"]) == (64, 8, SECONDS)
    assert found["failures"]["count"] == 1


def test_unreachable_or_other_server_is_one_line(
    exporters: tuple[Exporters, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    more = ("--start", "2025-01-01", "--end", "2025-01-02")
    for url in ("http://127.0.0.1:9", f"http://127.0.0.1:{exporters[1]}", "nonsense"):
        assert ingest(url, tmp_path, *more) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert url in error
    assert not (tmp_path / "records" / "failures.parquet").exists()
