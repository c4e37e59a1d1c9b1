"""From a real Prometheus and a NetBox export to today's list, by one command."""

from __future__ import annotations

import json
import shlex
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.first_configuration import first_configuration
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.ingest import prometheus_ingest
from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
from forewarn.pipelines.ingest.prometheus_survey import missing_fields, survey_server
from forewarn.pipelines.runtime.timestamps import format_iso

HOSTS, SLOTS = ("gn01", "gn02"), range(4)
STEP, DAYS = 300, 2
# Lowest and highest value of a healthy GPU, and the value of the ill one.
METRICS = {
    "DCGM_FI_DEV_GPU_TEMP": (40, 46, 0),
    "DCGM_FI_DEV_POWER_USAGE": (300, 310, 0),
    "DCGM_FI_DEV_XID_ERRORS": (0, 0, 63),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": (0, 0, 2),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (0, 0, 0),
}
CMDB = (
    "Name,Status,Site,Rack,Role\ngn01,Active,Berlin,R07,compute\ngn02,Active,Berlin,R08,compute\n"
)


def samples(end: int, step: int = STEP) -> Iterator[str]:
    """Yield a history up to a time; the last GPU of a host has a row remapping and an Xid."""
    for name, (low, high, ill) in METRICS.items():
        yield f"# TYPE {name} gauge"
        for host in HOSTS:
            for slot in SLOTS:
                labels = (
                    f'gpu="{slot}",UUID="GPU-{host}-{slot}",modelName="NVIDIA H100",'
                    f'Hostname="{host}",DCGM_FI_DEV_SERIAL="16{host[2:]}{slot}"'
                )
                for tick, at in enumerate(range(end - DAYS * 86_400, end, step)):
                    is_ill = (host, slot) == ("gn02", 3) and at > end - 6 * 3600
                    value = ill if is_ill and ill else low + tick % (high - low + 1)
                    yield f"{name}{{{labels}}} {value} {at}"
    yield from port_samples(end)


def port_samples(end: int) -> Iterator[str]:
    """Yield counters of a port that goes down twice an hour before the end; another is reset."""
    for name in ("node_infiniband_link_downed_total", "node_ethtool_received_crc_errors_phy"):
        yield f"# TYPE {name.removesuffix('_total')} unknown"
        for number, host in enumerate(HOSTS, 1):
            labels = f'instance="10.0.0.{number}:9100",device="mlx5_0",port="1"'
            for at in range(end - DAYS * 86_400, end, STEP):
                value = 3 + 2 * (host == "gn02" and at > end - 3600)
                value = value if host == "gn02" or at < end - 7200 else 0
                yield f"{name}{{{labels}}} {value} {at}"
    yield "# TYPE node_uname_info unknown"
    for number, host in enumerate(HOSTS, 1):
        labels = f'instance="10.0.0.{number}:9100",nodename="{host}"'
        yield from (
            f"node_uname_info{{{labels}}} 1 {at}" for at in range(end - DAYS * 86_400, end, STEP)
        )


@pytest.fixture(scope="module")
def server(prometheus_over: Callable[[Path], str], tmp_path_factory: pytest.TempPathFactory) -> str:
    text = tmp_path_factory.mktemp("samples") / "samples"
    text.write_text("\n".join([*samples(int(time.time())), "# EOF\n"]))
    return prometheus_over(text)


@pytest.fixture(scope="module")
def site(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "netbox.csv").write_text(CMDB)
    words = ["start", "--prometheus", server, "--cmdb", str(folder / "netbox.csv")]
    assert main([*words, "--out", str(folder / "ours")]) == 0
    return folder / "ours"


def test_list_names_the_ill_gpu_first(site: Path) -> None:
    (page,) = site.glob("lists/date=*/at_risk.json")
    first = json.loads(page.read_text())[0]
    assert (first["gpu_serial"], first["machine_id"]) == ("16023", "gn02")


def test_records_have_the_rack_of_the_inventory(site: Path) -> None:
    tables = [pq.read_table(path) for path in site.glob("records/date=*/*.parquet")]
    rows = {(m, r) for t in tables for m, r in zip(*t.select(["machine_id", "rack"]), strict=True)}
    assert {(str(m), str(r)) for m, r in rows} == {("gn01", "R07"), ("gn02", "R08")}


def test_rising_counters_of_ports_are_events(site: Path) -> None:
    tables = [pq.read_table(path).to_pylist() for path in site.glob("records/_events/**/*.parquet")]
    rows = [row for table in tables for row in table if row["kind"] == "nic_error"]
    assert {(r["machine_id"], r["check"], r["severity"], r["count"]) for r in rows} == {
        ("gn02", "link_downed mlx5_0/1", "warning", 2),
        ("gn02", "rx_crc_errors_phy mlx5_0/1", "notice", 2),
    }
    assert len(rows) == 2


def test_configuration_is_complete(site: Path, server: str) -> None:
    text = (site / "forewarn.toml").read_text()
    table = load_settings(site / "forewarn.toml").site
    assert table.prometheus == server
    assert Path(table.cmdb).name == "netbox.csv"
    assert "ecc_uncorrected: DCGM_FI_DEV_ECC_DBE_AGG_TOTAL" in text
    assert (site / "doctor/doctor.html").exists()


def test_daily_commands_run_as_printed(
    site: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (site / "forewarn.toml").read_text()
    assert main(["start", "--prometheus", server, "--out", str(site), "--json"]) == 0
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert "exists and is not changed" in output.err
    assert (site / "forewarn.toml").read_text() == before
    assert result["gpus"] == len(HOSTS) * len(SLOTS)
    assert Path(result["list"]).exists()
    for line in result["crontab"][:2]:
        words = shlex.split(line)[6:]
        assert main(words) == 0, line


def test_server_without_gpu_metrics_is_refused(
    prometheus_over: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "samples"
    text.write_text(f"# TYPE up gauge\nup 1 {int(time.time()) - 60}\n# EOF\n")
    url = prometheus_over(text)
    assert main(["start", "--prometheus", url, "--out", str(tmp_path / "site")]) == 2
    assert "has no metric of dcgm-exporter" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_unusable_inventory_is_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cmdb.csv").write_text("asset,place\nA1,r1\n")
    words = ["--cmdb", str(tmp_path / "cmdb.csv"), "--out", str(tmp_path / "site")]
    assert main(["start", "--prometheus", "http://127.0.0.1:9", *words]) == 2
    assert "column `gpu_serial` is missing" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_scrapes_further_apart_than_the_lookback_are_seen(
    prometheus_over: Callable[[Path], str], tmp_path: Path
) -> None:
    text = tmp_path / "samples"
    # At no moment that the survey queries is there a sample of the five minutes before.
    text.write_text("\n".join([*samples(int(time.time()) - 60, step=600), "# EOF\n"]))
    url = prometheus_over(text)
    with closing(PrometheusClient.from_environment(url)) as client:
        survey = survey_server(client, (int(time.time()) + 330) * SECOND)
    assert survey.gpus == len(HOSTS) * len(SLOTS)


def test_length_of_chunks_changes_no_record(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = (int(time.time()) // 600 - 1) * 600
    start, stop = (format_iso(at * SECOND) for at in (end - 2 * 86_400, end))
    tables = []
    for intervals in (12, 144):
        monkeypatch.setattr(prometheus_ingest, "_MAX_INTERVALS", intervals)
        out = tmp_path / str(intervals)
        words = ["--start", start, "--end", stop, "--out", str(out)]
        assert main(["ingest", "--prometheus", server, *words]) == 0
        rows = [pq.read_table(path).to_pylist() for path in sorted(out.glob("date=*/*.parquet"))]
        tables.append(sorted(str(row) for part in rows for row in part))
    assert tables[0] == tables[1]
    assert len(tables[0]) > 12 * len(HOSTS) * len(SLOTS)


def test_configured_columns_of_tickets_are_used(server: str, tmp_path: Path) -> None:
    (tmp_path / "jira.csv").write_text("Key,Board,Since\nT-1,16010,2025-01-01 10:00\n")
    mapping = 'columns = {gpu_serial = "Board", failed_at = "Since"}\n'
    (tmp_path / "forewarn.toml").write_text(f"[tickets]\n{mapping}")
    words = ["--repairs", str(tmp_path / "jira.csv"), "--out", str(tmp_path)]
    assert main(["start", "--prometheus", server, *words]) == 0
    assert pq.read_table(tmp_path / "records/failures.parquet")["gpu_serial"].to_pylist() == [
        "16010"
    ]
    settings = load_settings(tmp_path / "forewarn.toml")
    assert Path(settings.site.repairs).name == "jira.csv"
    assert mapping in (tmp_path / "forewarn.toml").read_text()


def test_first_configuration_escapes_its_values() -> None:
    path = 'a "b" \\ c\n'
    text = first_configuration("http://h:9090", path, "", {"xid": ["DCGM_FI_DEV_XID_ERRORS"]})
    assert tomllib.loads(text)["site"] == {
        "records": "records",
        "lists": "lists",
        "prometheus": "http://h:9090",
        "cmdb": path,
    }


def test_either_name_of_a_metric_counts() -> None:
    names = frozenset({"DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"})
    missing = missing_fields(names)
    assert not {"xid", "temperature_gpu"} & missing.keys()
    assert missing["rows_remapped"] == (
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    )
