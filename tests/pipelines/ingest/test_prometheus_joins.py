"""Series of GPUs, split at random as jobs, exporters and MIG instances come and go."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
from forewarn.pipelines.ingest.prometheus_ingest import pull

START = 1_740_787_200  # 2025-03-01
END = START + 3 * 3600
INTERVAL = 600
METRICS = {
    "temperature_gpu": "DCGM_FI_DEV_GPU_TEMP",
    "ecc_uncorrected": "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "energy_consumption": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "xid": "DCGM_FI_DEV_XID_ERRORS",
}


@dataclass
class Gpu:
    """A GPU whose labels, counters and Xids change at random."""

    number: int
    rng: random.Random
    pod: int = 0
    exporter: int = 0
    xid: int = 0
    errors: int = 0
    restarted: int = START - 100_000
    silent_until: int = 0

    def __post_init__(self) -> None:
        self.host = f"gn{self.number // 4:02}"
        self.step = self.rng.choice([15, 30, 60, 240])
        self.copies = self.rng.choice([1, 1, 3])
        self.is_split = self.rng.random() < 0.3

    def live(self, time: int) -> None:
        """Apply random changes, mostly none."""
        chance = self.rng.random
        self.pod += chance() < 0.01
        self.errors += chance() < 0.02
        if chance() < 0.004:  # another exporter pod, whose gauge starts at 0
            self.exporter, self.xid = self.exporter + 1, 0
        if chance() < 0.003:
            self.silent_until = time + self.rng.choice([300, 1500, 4000])
        if chance() < 0.002:
            self.restarted, self.xid = time - 5, 0
        if chance() < 0.01:
            self.xid = self.rng.choice([31, 79, 45, 48])

    def scrape(self, time: int) -> dict[str, float]:
        return {
            "temperature_gpu": self.rng.randint(30, 90),
            "ecc_uncorrected": self.errors,
            "energy_consumption": 300_000 * (time - self.restarted),
            "xid": self.xid,
        }

    def labels(self, column: str, copy: int, value: float) -> str:
        names = {"gpu": str(self.number % 4), "UUID": f"GPU-{self.number}", "job": "dcgm"}
        names |= {"Hostname": f"nvidia-dcgm-exporter-ab{self.exporter % 100:02}c"}
        names |= {"node": self.host} | ({"pod": f"p{self.pod}"} if self.pod % 3 else {})
        names |= {"GPU_I_ID" if self.is_split else "vgpu": str(copy)} if self.copies > 1 else {}
        names |= {"err_code": str(value)} if column == "xid" else {}
        return ",".join(f'{name}="{text}"' for name, text in names.items())


@dataclass
class Truth:
    """The exported samples: by series, by GPU and interval, and each Xid."""

    series: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    scrapes: dict[tuple[str, int], list[dict[str, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    xids: set[tuple[str, int, int]] = field(default_factory=set)

    def add(self, gpu: Gpu, time: int, values: dict[str, float]) -> None:
        name = f"GPU-{gpu.number}"
        self.scrapes[name, -(-time // INTERVAL) * INTERVAL].append(values)
        for column, value in values.items():
            for copy in range(gpu.copies):
                labels = gpu.labels(column, copy, value)
                line = f"{METRICS[column]}{{{labels}}} {value} {time}\n"
                self.series[column, labels].append(line)

    def text(self) -> Iterator[str]:
        for column, metric in METRICS.items():
            yield f"# TYPE {metric} gauge\n"
            for (of_column, _), lines in self.series.items():
                yield from lines if of_column == column else ()
        yield "# EOF\n"


def exported(seed: int) -> Truth:
    rng, truth = random.Random(seed), Truth()
    for number in range(12):
        gpu, shown = Gpu(number, rng), None
        for time in range(START + rng.randrange(1, gpu.step), END, gpu.step):
            gpu.live(time)
            if time >= gpu.silent_until:
                truth.add(gpu, time, gpu.scrape(time))
                if shown is not None and shown != gpu.xid > 0:
                    truth.xids.add((f"GPU-{number}", time, gpu.xid))
                shown = gpu.xid
    return truth


def rows(folder: Path, pattern: str) -> pd.DataFrame:
    table: pd.DataFrame = pd.concat(
        pq.read_table(file, partitioning=None).to_pandas() for file in folder.glob(pattern)
    )
    table["time"] = table["timestamp"].astype("datetime64[ns, UTC]").astype("int64") // SECOND
    return table.set_index(["gpu_serial", "time"]).sort_index()


@pytest.mark.parametrize("seed", [1, 2])
def test_records_and_events_match_samples(
    seed: int, prometheus_over: Callable[[Path], str], tmp_path: Path
) -> None:
    truth = exported(seed)
    (tmp_path / "samples.txt").write_text("".join(truth.text()))
    url = prometheus_over(tmp_path / "samples.txt")
    with closing(PrometheusClient(url)) as server:
        landing = Landing(tmp_path / "records", INTERVAL * SECOND)
        pull(server, landing, start=(START + INTERVAL) * SECOND, end=END * SECOND)
    records = rows(tmp_path / "records", "date=*/*.parquet")
    scrapes = dict(sorted(truth.scrapes.items()))
    assert records.index.to_list() == list(scrapes)
    temperatures = [fmean(s["temperature_gpu"] for s in some) for some in scrapes.values()]
    assert records["temperature_gpu"].to_list() == pytest.approx(temperatures)
    last = pd.DataFrame([some[-1] for some in scrapes.values()])
    assert records["ecc_uncorrected"].to_list() == last["ecc_uncorrected"].to_list()
    energy = (last["energy_consumption"] / 1000).to_list()
    assert records["energy_consumption"].to_list() == pytest.approx(energy)
    machines = [f"gn{int(gpu.removeprefix('GPU-')) // 4:02}" for gpu, _ in scrapes]
    assert records["machine_id"].to_list() == machines
    events = rows(tmp_path / "records", "_events/date=*/*.parquet")
    keys = events.index.to_frame()
    xids = zip(keys["gpu_serial"], keys["time"], events["code"].astype(int), strict=True)
    assert list(xids) == sorted(truth.xids)
