"""Output of dcgm-exporter at real sites, from Prometheus and as text: ../shared/data.

The column `right` of telemetry_cases/README.md states the expected results.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.ingest.host_file_ingest import ingest_host_files
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
from forewarn.pipelines.ingest.prometheus_ingest import PullResult, pull

UUID = "GPU-aaaa0000-0000-0000-0000-0000000000{:02}"
TEXT_UUID = "GPU-eeeeeeee-0000-0000-0000-00000000000{}"


class FixedClock:
    """The morning after the samples."""

    def now(self) -> int:
        return moment("2026-11-26 06:00")

    def wait(self, *_: object) -> bool:
        raise AssertionError("nothing here waits")


def moment(text: str) -> int:
    return pd.Timestamp(text, tz="UTC").value


def table(folder: Path, pattern: str) -> pd.DataFrame:
    files = sorted(folder.glob(pattern))
    rows: pd.DataFrame = pd.concat(
        [pq.read_table(file, partitioning=None).to_pandas() for file in files]
    )
    return rows


@pytest.fixture(scope="module")
def url(shared_data: Path, prometheus_over: Callable[[Path], str]) -> str:
    return prometheus_over(shared_data / "telemetry_cases" / "prometheus" / "series.openmetrics")


def pulled_from(url: str, out: Path, start: str, end: str) -> PullResult:
    landing = Landing(out, 10 * MINUTE, clock=FixedClock())
    with closing(PrometheusClient(url)) as server:
        return pull(
            server, landing, start=moment(f"2026-11-25 {start}"), end=moment(f"2026-11-25 {end}")
        )


@pytest.fixture(scope="module")
def pulled(url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[PullResult, Path]:
    out = tmp_path_factory.mktemp("series")
    return pulled_from(url, out, "10:10", "12:00"), out


@pytest.fixture
def records_of(pulled: tuple[PullResult, Path]) -> Callable[[int], pd.DataFrame]:
    """Return the records of a GPU, by the last digits of its UUID."""
    records = table(pulled[1], "date=*/*.parquet")
    return lambda number: records[records["gpu_serial"] == UUID.format(number)]


@pytest.fixture
def xids_of(pulled: tuple[PullResult, Path]) -> Callable[[int], list[tuple[str, int]]]:
    events = table(pulled[1], "_events/date=*/*.parquet")

    def of_gpu(number: int) -> list[tuple[str, int]]:
        of = events[events["gpu_serial"] == UUID.format(number)].sort_values("timestamp")
        clocks = of["timestamp"].dt.strftime("%H:%M")
        return list(zip(clocks, of["code"].astype(int), strict=True))

    return of_gpu


Records = Callable[[int], pd.DataFrame]
Xids = Callable[[int], list[tuple[str, int]]]


@pytest.mark.parametrize("gpu", [5, 6])
def test_p1_series_of_gpu_are_joined(gpu: int, records_of: Records, xids_of: Xids) -> None:
    records = records_of(gpu)
    assert len(records) == 12
    # Three of the samples from 10:31 to 10:40 belong to the first job.
    assert records["temperature_gpu"].to_list() == [80.0] * 3 + [45.0] + [30.0] * 8
    assert records["ecc_uncorrected"].to_list() == [5] * 3 + [9] * 9
    assert records["xid"].to_list() == [0] * 3 + [79] + [0] * 8
    assert xids_of(gpu) == [("10:34", 79)]


@pytest.mark.parametrize(("gpu", "machine"), [(1, "gn01"), (2, "gn02"), (3, "gn03"), (4, "gn04")])
def test_p3_p4_machine_is_not_pod(gpu: int, machine: str, records_of: Records) -> None:
    assert len(records_of(gpu)) == 12
    assert set(records_of(gpu)["machine_id"]) == {machine}


def test_p3_choice_is_reported(pulled: tuple[PullResult, Path]) -> None:
    reasons = "\n".join(pulled[0].machines.reasons)
    assert "label `hostname` names the machine of 1 GPUs (not `Hostname`: it names pods" in reasons
    assert "label `instance` names the machine of 1 GPUs" in reasons


def test_p5_most_severe_xid_of_interval(records_of: Records, xids_of: Xids) -> None:
    assert xids_of(10) == [("10:22", 79), ("10:25", 45)]
    assert records_of(10)["xid"].to_list() == [0, 0, 79, *[0] * 9]


def test_p6_exporter_counters(records_of: Records, xids_of: Xids) -> None:
    assert xids_of(8) == [("10:25", 45), ("10:25", 62)]
    assert records_of(8)["xid"].to_list() == [0, 0, 62, *[0] * 9]


def test_p7_gap_is_no_change(records_of: Records, xids_of: Xids) -> None:
    assert xids_of(9) == []
    assert records_of(9)["xid"].fillna(0).to_list() == [0] * 12


def test_p8_parts_of_split_gpu(
    pulled: tuple[PullResult, Path], records_of: Records, xids_of: Xids
) -> None:
    assert records_of(7)["temperature_gpu"].to_list() == [61.0] * 12
    assert xids_of(7) == [("10:25", 79)]
    assert pulled[0].parts == {(UUID.format(7), "3"), (UUID.format(7), "4")}


def test_failures(pulled: tuple[PullResult, Path]) -> None:
    failures = pq.read_table(pulled[1] / "failures.parquet").to_pylist()
    assert [(row["gpu_serial"][-2:], row["cause"]) for row in failures] == [
        ("05", "xid 79"),
        ("06", "xid 79"),
        ("07", "xid 79"),
        ("08", "xid 62"),
        ("10", "xid 79"),
    ]


@pytest.mark.parametrize("minutes", [10, 30, 70])
def test_batch_boundaries_change_nothing(
    minutes: int, url: str, pulled: tuple[PullResult, Path], tmp_path: Path
) -> None:
    start = moment("2026-11-25 10:10")
    landing = Landing(tmp_path, 10 * MINUTE, clock=FixedClock())
    with closing(PrometheusClient(url)) as server:
        for end in range(start, moment("2026-11-25 12:00") + 1, minutes * MINUTE):
            pull(server, landing, start=start if end == start else None, end=end)
        pull(server, landing, start=None, end=moment("2026-11-25 12:00"))
    keys = ["gpu_serial", "timestamp"]
    for pattern in ("date=*/*.parquet", "_events/date=*/*.parquet"):
        once, often = (table(path, pattern).sort_values(keys) for path in (pulled[1], tmp_path))
        pd.testing.assert_frame_equal(once.reset_index(drop=True), often.reset_index(drop=True))


# --- as text -------------------------------------------------------------------------------------


@pytest.fixture
def read(shared_data: Path, tmp_path: Path) -> Callable[[str], tuple[dict[str, Any], Unread]]:
    """Return the only record in the text of a case, and what was left out."""

    def of_case(case: str) -> tuple[dict[str, Any], Unread]:
        folder = shared_data / "telemetry_cases" / case / "raw"
        landing = Landing(tmp_path, 10 * MINUTE, clock=FixedClock())
        done = ingest_host_files(folder, landing, now=FixedClock().now())
        rows = table(tmp_path, "date=*/*.parquet")
        assert len(rows) == 1
        return {str(name): rows[name].iloc[0] for name in rows}, done.unread

    return of_case


Read = Callable[[str], tuple[dict[str, Any], Unread]]


def test_p6_exp_xid_counter_text(read: Read, tmp_path: Path) -> None:
    record, unread = read("exp-xid-counter-text")
    assert (record["gpu_serial"], record["machine_id"]) == (TEXT_UUID.format(1), "gn04")
    assert (record["xid"], record["temperature_gpu"], record["sm_active"]) == (62, 55.0, 0.972)
    assert (record["dram_active"], record["row_remap_failure"]) == (0.4, 1.0)
    (failure,) = pq.read_table(tmp_path / "failures.parquet").to_pylist()
    assert failure["cause"] == "xid 62"
    events = table(tmp_path, "_events/date=*/*.parquet")
    seen = zip(events["kind"], events["code"].fillna(0), events["count"], strict=True)
    assert set(seen) == {("xid", 62, 1), ("xid", 45, 3), ("needs_reset", 0, 1)}
    assert not unread


def test_p8_mig_exporter_text(read: Read) -> None:
    record, unread = read("mig-exporter-text")
    assert (record["machine_id"], record["gpu_serial"][:12]) == ("gn03", "GPU-dddddddd")
    assert (record["temperature_gpu"], record["power_draw"]) == (51.0, 201.5)
    assert (record["clock_sm"], record["ecc_uncorrected"]) == (1275.0, 2)
    assert unread.counts == {"no series of the whole GPU (MIG); its instances were joined": 1}


def test_s14_federate_timestamps(read: Read) -> None:
    record, unread = read("federate-timestamps")
    assert (record["temperature_gpu"], record["power_draw"]) == (55.0, 300.0)
    assert record["timestamp"].value == 1_795_601_400 * SECOND
    assert not unread


def test_s15_one_gpu_three_exports(read: Read) -> None:
    record, unread = read("one-gpu-three-exports")
    assert (record["gpu_serial"], record["temperature_gpu"]) == (TEXT_UUID.format(2), 55.0)
    assert record["ecc_uncorrected"] == 2
    assert not unread
