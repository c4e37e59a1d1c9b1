"""A week of a small fleet in a real Prometheus, as exported by dcgm-exporter on Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.long

START = 1_740_787_200  # 2025-03-01
HOUR, DAY = 3600, 86_400
DAYS = 7
STEP = 300  # seconds between two samples
LATE = 7  # seconds from the full minute to a scrape
JOB = 20 * 60
INTERVAL = 1800
HOSTS = ("gn01", "gn02", "gn03")
SLOTS = range(4)
LOST_AT, RESTARTED_AT = START + 2 * DAY + 10 * HOUR, START + 2 * DAY + 16 * HOUR
BROKEN_AT = START + 3 * DAY + 8 * HOUR
ROLLED_OUT_AT = START + 4 * DAY
SWAPPED_AT = START + 5 * DAY + 12 * HOUR
REPAIR = 2 * HOUR
THROTTLED = 0x44
CONFIG = '[records]\ninterval = "30min"\n'


@dataclass
class Gpu:
    """One board: its location and its metrics over time."""

    host: str
    slot: int
    uuid: str
    first: int = START
    last: int = START + DAYS * DAY
    xids: list[tuple[int, int]] = field(default_factory=list)
    down: list[tuple[int, int]] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    worn: bool = False

    def times(self) -> Iterator[int]:
        for time in range(START + LATE, START + DAYS * DAY, STEP):
            hidden = any(begin <= time < end for begin, end in self.down)
            if self.first <= time < self.last and not hidden:
                yield time

    def labels(self, time: int) -> str:
        """Return its identity labels, and labels that change with exporter and job."""
        rolled_out = time >= ROLLED_OUT_AT
        number = HOSTS.index(self.host)
        pod = f"nvidia-dcgm-exporter-{'x9k2p6ldbb'[5 * rolled_out :][:4]}{number}"
        names = {
            "gpu": str(self.slot),
            "UUID": self.uuid,
            "device": f"nvidia{self.slot}",
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": pod,
            "node": self.host,
            "instance": f"10.2.{int(rolled_out)}.{number}:9400",
            "job": "dcgm-exporter",
        }
        job = (time - START) // JOB
        if job % 5:  # an idle GPU has no pod labels
            names |= {"namespace": "train", "container": "c", "pod": f"job-{job}"}
        return ",".join(f'{name}="{text}"' for name, text in names.items())

    def values(self, time: int) -> dict[str, tuple[str, float]]:
        """Return further labels and the value by metric."""
        busy = bool((time - START) // JOB % 5)
        since = max([START - DAY, *(at for at in self.restarts if at <= time)])
        exporter_start = max(since, ROLLED_OUT_AT if time >= ROLLED_OUT_AT else 0)
        shown = [code for at, code in self.xids if exporter_start <= at <= time]
        xid = shown[-1] if shown else 0
        errors = (time - START) // (6 * HOUR) * self.worn + sum(at <= time for at, _ in self.xids)
        throttled = THROTTLED if self.worn and busy else 0x1
        asks = any(at <= time < at + REPAIR for at, code in self.xids if code == 48)
        return {
            "DCGM_FI_DEV_GPU_TEMP": ("", 60 + self.slot if busy else 40),
            "DCGM_FI_DEV_GPU_UTIL": ("", 95 if busy else 0),
            "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": ("", errors),
            "DCGM_FI_DEV_XID_ERRORS": (f',err_code="{xid}"', xid),
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("", 400_000 * (time - since)),
            "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("", throttled),
            "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": ("", int(asks)),
        }


def fleet() -> list[Gpu]:
    gpus = [
        Gpu(host, slot, f"GPU-{number}{slot}")
        for number, host in enumerate(HOSTS)
        for slot in SLOTS
    ]
    for gpu in gpus:
        if gpu.host == "gn01":
            gpu.restarts, gpu.down = [RESTARTED_AT], [(RESTARTED_AT - HOUR, RESTARTED_AT)]
        if gpu.host == "gn03":
            gpu.restarts, gpu.down = [SWAPPED_AT], [(SWAPPED_AT - REPAIR, SWAPPED_AT)]
    lost, broken, swapped, worn = (gpus[i] for i in (1, 6, 8, 11))
    lost.xids, lost.down = [(LOST_AT, 79)], [(LOST_AT + 2 * STEP, RESTARTED_AT)]
    broken.xids = [(BROKEN_AT, 48), (BROKEN_AT + STEP, 45)]
    swapped.last = SWAPPED_AT - REPAIR
    worn.worn = True
    new = Gpu("gn03", 0, "GPU-new", first=SWAPPED_AT, restarts=[SWAPPED_AT])
    return [*gpus, new]


def open_metrics(gpus: list[Gpu]) -> Iterator[str]:
    for name in gpus[0].values(START):
        yield f"# TYPE {name} gauge\n"
        lines: dict[str, list[str]] = {}
        for gpu in gpus:
            for time in gpu.times():
                more, value = gpu.values(time)[name]
                labels = gpu.labels(time) + more
                lines.setdefault(labels, []).append(f"{name}{{{labels}}} {value} {time}\n")
        for of_series in lines.values():
            yield from of_series
    yield "# EOF\n"


@pytest.fixture(scope="module")
def folder(
    prometheus_over: Callable[[Path], str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a folder with the records of the week, pulled day by day."""
    out = tmp_path_factory.mktemp("fleet")
    (out / "config.toml").write_text(CONFIG)
    (out / "week.txt").write_text("".join(open_metrics(fleet())))
    ingest = ["ingest", "--prometheus", prometheus_over(out / "week.txt")]
    ingest += ["--out", str(out / "records"), "--config", str(out / "config.toml")]
    for day in (4, DAYS):
        start = ["--start", "2025-03-01T00:30:00Z"] if day == 4 else []
        end = pd.Timestamp(START + day * DAY, unit="s", tz="UTC").isoformat()
        assert main([*ingest, *start, "--end", end]) == 0
    return out


@pytest.fixture(scope="module")
def records(folder: Path) -> pd.DataFrame:
    rows: pd.DataFrame = pd.concat(
        pq.read_table(file, partitioning=None).to_pandas()
        for file in sorted((folder / "records").glob("date=*/*.parquet"))
    )
    return rows


def seconds(times: pd.Series) -> pd.Series:
    return times.astype("datetime64[ns, UTC]").astype("int64") // SECOND


def test_every_record_is_there(records: pd.DataFrame) -> None:
    expected = {
        (gpu.uuid, gpu.host, -(-time // INTERVAL) * INTERVAL)
        for gpu in fleet()
        for time in gpu.times()
    }
    keys = zip(
        records["gpu_serial"], records["machine_id"], seconds(records["timestamp"]), strict=True
    )
    assert set(keys) == expected
    assert len(records) == len(expected)


def test_values_cover_all_series(records: pd.DataFrame) -> None:
    for gpu in fleet():
        rows = records[records["gpu_serial"] == gpu.uuid].sort_values("timestamp")
        samples: dict[int, list[dict[str, float]]] = {}
        for time in gpu.times():
            values = {name: value for name, (_, value) in gpu.values(time).items()}
            samples.setdefault(-(-time // INTERVAL), []).append(values)
        for name, value in AS_RECORDED.items():
            expected = [value(intervals) for intervals in samples.values()]
            assert rows[name].to_list() == pytest.approx(expected), (gpu.uuid, name)


def mean_of(metric: str) -> Callable[[list[dict[str, float]]], float]:
    return lambda samples: fmean(values[metric] for values in samples)


AS_RECORDED: dict[str, Callable[[list[dict[str, float]]], float]] = {
    "temperature_gpu": mean_of("DCGM_FI_DEV_GPU_TEMP"),
    "utilization_gpu": mean_of("DCGM_FI_DEV_GPU_UTIL"),
    "ecc_uncorrected": lambda samples: samples[-1]["DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"],
    "energy_consumption": lambda samples: (
        samples[-1]["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] / 1000
    ),
    "recovery_action": lambda samples: max(
        values["DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"] for values in samples
    ),
    "throttle_hardware": lambda samples: fmean(
        values["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"] == THROTTLED for values in samples
    ),
}


def test_each_event_is_there_once(folder: Path) -> None:
    """Exporter rollouts and restarts show 0, and the gauge keeps its value."""
    events = pd.concat(
        pq.read_table(file, partitioning=None).to_pandas()
        for file in sorted((folder / "records" / "_events").glob("date=*/*.parquet"))
    )
    what = (
        events["code"]
        .astype("Int64")
        .astype(object)
        .where(events["kind"] == "xid", events["action"])
    )
    rows = zip(
        events["gpu_serial"], events["machine_id"], seconds(events["timestamp"]), what, strict=True
    )
    assert set(rows) == {
        ("GPU-01", "gn01", LOST_AT + LATE, 79),
        ("GPU-12", "gn02", BROKEN_AT + LATE, 48),
        ("GPU-12", "gn02", BROKEN_AT + LATE, "reset"),
        ("GPU-12", "gn02", BROKEN_AT + STEP + LATE, 45),
    }
    assert len(events) == 4


def test_failures_are_fatal_xids_with_end(folder: Path) -> None:
    """A reboot ends one failure, health and load end the other; rollouts end none."""
    rows = pq.read_table(folder / "records" / "failures.parquet").to_pandas()
    failed = list(zip(rows["gpu_serial"], rows["cause"], seconds(rows["failed_at"]), strict=True))
    assert failed == [
        ("GPU-01", "xid 79", LOST_AT + LATE),
        ("GPU-12", "xid 48", BROKEN_AT + LATE),
    ]
    assert rows["end_source"].to_list() == ["boot", "presumed"]
    restarted, presumed = seconds(rows["end_known_at"])
    assert RESTARTED_AT + HOUR <= restarted <= RESTARTED_AT + 2 * HOUR  # after an hour under load
    assert BROKEN_AT + DAY <= presumed < BROKEN_AT + 2 * DAY


def test_failures_end_by_prometheus_data(folder: Path) -> None:
    """One GPU restarts and works, the other continues; a rollout ends no failure."""
    rows = pq.read_table(folder / "records" / "failures.parquet").to_pandas()
    restarted, worked = rows.to_dict("records")
    assert (restarted["end_source"], worked["end_source"]) == ("boot", "presumed")
    (back,) = seconds(pd.Series([restarted["end_known_at"]]))
    assert RESTARTED_AT + HOUR <= back <= RESTARTED_AT + 2 * HOUR  # after an hour under load
    end, known, until = seconds(
        pd.Series([worked[name] for name in ("repaired_at", "end_known_at", "unknown_until")])
    )
    # It requests a reset for two hours first; then a day of telemetry suffices.
    assert BROKEN_AT + REPAIR < end <= BROKEN_AT + REPAIR + 2 * INTERVAL
    assert known - end == DAY - INTERVAL
    assert until == BROKEN_AT + LATE + 7 * DAY


def test_failing_gpus_are_on_the_list(folder: Path) -> None:
    at = pd.Timestamp(START + DAYS * DAY, unit="s", tz="UTC")
    score = ["score", "--records", str(folder / "records"), "--model", "builtin:rules"]
    score += ["--config", str(folder / "config.toml"), "--at", at.isoformat()]
    assert main([*score, "--out", str(folder / "lists")]) == 0
    (day,) = (folder / "lists").glob("date=*")
    ranked = pq.read_table(day / "at_risk.parquet", partitioning=None).to_pandas()
    ranked = ranked.sort_values("rank")
    assert ranked["gpu_serial"].iloc[0] == "GPU-23"
    present = {gpu.uuid for gpu in fleet() if gpu.last == START + DAYS * DAY}
    assert set(ranked["gpu_serial"]) == present
    assert set(ranked["machine_id"]) == set(HOSTS)
    unscored = pd.read_csv(day / "unscored.csv")
    assert unscored["gpu_serial"].to_list() == ["GPU-20"]
