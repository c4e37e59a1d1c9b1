"""GPUs that some sources identify by UUID only, and whose serial becomes known later."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipelines.ingest.killed_landing import killed_without

from forewarn.features.telemetry.failure_evidence import TICKETS
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.ingest.cmdb import Cmdb
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.storage.records.compaction import compact_date

pytestmark = pytest.mark.long

START = 1_740_787_200 * SECOND  # 2025-03-01
INTERVAL = 10 * MINUTE
NO_READINGS, NO_EVENTS = READINGS.empty_table(), EVENTS.empty_table()
Row = dict[str, Any]


def gpu(minute: float, number: int, serial: str | None = None, **more: Any) -> Row:
    row: Row = {"machine_id": "gn01", "gpu_serial": serial, "gpu_uuid": f"GPU-{number}"}
    row |= {"pci": f"0000:4{number}:00", "slot": number, "temperature_gpu": 40.0 + number}
    row |= {"timestamp": START + round(minute * MINUTE), "log_read": True}
    return row | {"utilization_gpu": 90.0, "boot_time": START - HOUR} | more


def xid(minute: float, code: int = 79, **more: Any) -> Row:
    row = {"machine_id": "gn01", "kind": "xid", "code": code, "id": f"{minute}-{code}-{more}"}
    time = START + round(minute * MINUTE)
    return row | {"timestamp": time, "known_at": time} | more


def land(folder: Path, readings: Sequence[Row], events: Sequence[Row] = (), **more: Any) -> None:
    landing = Landing(folder, INTERVAL, **more)
    landing.land(build_table(readings, READINGS), build_table(events, EVENTS))


def gpus(folder: Path) -> set[str]:
    files = sorted(folder.glob("date=*/*.parquet"))
    return {
        name
        for file in files
        for name in pq.read_table(file, partitioning=None)["gpu_serial"].to_pylist()
    }


def failures(folder: Path) -> list[str]:
    names: list[str] = pq.read_table(folder / "failures.parquet")["gpu_serial"].to_pylist()
    return names


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files whose content does not depend on the order of arrival.

    Recoveries are excluded. They are checkpoints, of which there are more if a later failure
    arrived later; failures contain their result.
    """
    patterns = ("date=*/*.parquet", "failures.parquet", "_state/*.parquet")
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    files = [path for path in files if path.stem not in ("evidence", "recoveries")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_late_serial_renames_earlier_records(
    tmp_path: Path,
) -> None:
    land(tmp_path, [gpu(10, 2), gpu(30, 2)], [xid(40, gpu_uuid="GPU-2")])
    assert gpus(tmp_path) == {"GPU-2"}
    compact_date(tmp_path, dt.date(2025, 3, 1))
    land(tmp_path, [gpu(70, 2, "0165")])
    assert gpus(tmp_path) == {"0165"}
    assert failures(tmp_path) == ["0165"]
    land(tmp_path, [gpu(130, 2)], [xid(131, 48, gpu_uuid="GPU-2")])
    assert gpus(tmp_path) == {"0165"}
    assert set(failures(tmp_path)) == {"0165"}


def test_ambiguous_uuid_names_rows_by_uuid(tmp_path: Path) -> None:
    land(tmp_path, [gpu(10, 2)], [xid(10, gpu_uuid="GPU-2")])
    land(tmp_path, [gpu(70, 2, "S1")])
    compact_date(tmp_path, dt.date(2025, 3, 1))
    assert (gpus(tmp_path), failures(tmp_path)) == ({"S1"}, ["S1"])
    land(tmp_path, [gpu(130, 2, "S2")])
    assert (gpus(tmp_path), failures(tmp_path)) == ({"GPU-2", "S1", "S2"}, ["GPU-2"])


def test_serial_with_two_uuids_is_ambiguous(tmp_path: Path) -> None:
    land(tmp_path, [gpu(10, 2), gpu(10, 3), gpu(70, 2, "S1")])
    land(tmp_path, [gpu(130, 3, "S1")])
    assert gpus(tmp_path) == {"GPU-2", "GPU-3", "S1"}


def test_board_gpu_is_named_in_all_hours(tmp_path: Path) -> None:
    land(tmp_path, [gpu(10, 2), gpu(70, 2, "B1")], [xid(11, gpu_uuid="GPU-2")])
    assert gpus(tmp_path) == {"B1"}
    land(tmp_path, [gpu(130, 2, "B1"), gpu(130, 3, "B1")])
    assert gpus(tmp_path) == {"B1/GPU-2", "B1/GPU-3"}
    assert failures(tmp_path) == ["B1/GPU-2"]


def test_late_cmdb_serial_renames_earlier_records(tmp_path: Path) -> None:
    land(tmp_path, [gpu(10, 2)], [xid(11, gpu_uuid="GPU-2")])
    land(tmp_path, [gpu(70, 2)], cmdb=Cmdb(serial_of_uuid={"GPU-2": "S1"}))
    assert (gpus(tmp_path), failures(tmp_path)) == ({"S1"}, ["S1"])


def test_tickets_and_cmdb_by_uuid_apply(tmp_path: Path) -> None:
    cmdb = Cmdb(pa.table({"gpu_serial": ["GPU-2"], "rack": ["r1"]}))
    moments = {"failed_at": START + 20 * MINUTE, "repaired_at": None, "known_at": None}
    row = {"gpu_serial": "GPU-2", "cause": "fan"} | moments
    landing = Landing(tmp_path, INTERVAL, cmdb=cmdb)
    rows = build_table([gpu(10, 2)], READINGS)
    landing.land(rows, NO_EVENTS, pa.Table.from_pylist([row], schema=TICKETS))
    landed = landing.land(build_table([gpu(70, 2, "S1")], READINGS), NO_EVENTS)
    assert (failures(tmp_path), landed.unknown, landed.ticket_boards) == (["S1"], set(), {})
    assert (landed.cmdb_boards, landed.unknown_tickets) == ({}, frozenset())
    for file in sorted(tmp_path.glob("date=*/*.parquet")):
        table = pq.read_table(file, partitioning=None)
        pairs = zip(*(table[name].to_pylist() for name in ("gpu_serial", "rack")), strict=True)
        assert set(pairs) == {("S1", "r1")}


def test_no_names_stored_with_all_serials(tmp_path: Path) -> None:
    land(tmp_path, [gpu(10, 2, "S2"), gpu(70, 3, "S3")], [xid(11, gpu_uuid="GPU-9")])
    assert not (tmp_path / "_state" / "gpu_names.parquet").exists()


@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(0, 60))
@settings(max_examples=12, deadline=None)
def test_landing_is_idempotent_with_late_serials(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, parts: int, n_writes: int
) -> None:
    # One GPU gets its serial late and one early, one has two, two share one, two form a board.
    serials: dict[int, list[str | None]] = {1: [None, "S1"], 2: ["S2", None], 3: [None, "X", "Y"]}
    serials |= {4: [None, "Z"], 5: [None, "Z"], 6: [None, "B"], 7: [None, "B"], 8: [None]}
    seen = [
        gpu(10 * tick, number, names[tick * len(names) // 20 if number != 5 else tick % 2])
        for tick in range(20)
        for number, names in serials.items()
        if (number, tick // 10) != (4, 0) and not (number == 5 and tick >= 10)
    ]
    # A copied host repeats a UUID, and one source has no address.
    seen += [gpu(10 * tick + 3, 1, machine_id="copy", pci=None) for tick in range(5, 15)]
    found = [xid(m, gpu_uuid=f"GPU-{n}") for n in serials for m in (3 + n, 101 + n)]
    found += [xid(64, 48, pci="0000:48:00"), xid(97, 31, gpu_uuid="GPU-1")]
    whole, cut = (tmp_path_factory.mktemp("landed") for _ in range(2))
    land(whole, seen, found)
    rows = [("r", row) for row in seen] + [("e", row) for row in found]
    rows += chance.sample(rows, 10)
    chance.shuffle(rows)
    if chance.random() < 0.5:
        rows.sort(key=lambda row: row[1]["timestamp"])
    writes = iter(range(n_writes))
    size = -(-len(rows) // parts)
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        batch = [[row for kind, row in some if kind == part] for part in "re"]
        with killed_without(writes):
            land(cut, *batch)
        land(cut, *batch)
    assert contents(cut) == contents(whole)


def test_two_calls_of_ingest_give_the_files_of_one(tmp_path: Path) -> None:
    header = "timestamp, index, serial, uuid, pci.bus_id, name, temperature.gpu, power.draw [W]"
    for name in ("once", "twice"):
        (tmp_path / name / "raw" / "gn01").mkdir(parents=True)
    for part, serial, hours in (("early", "[N/A]", (0, 1)), ("late", "0165", (2, 3))):
        lines = [
            f"2025/03/01 0{hour}:{minute}:03.000, 1, {serial}, GPU-2, 00000000:02:00.0, "
            "NVIDIA H100, 42, 99.5 W"
            for hour in hours
            for minute in range(10, 60, 10)
        ]
        log = f"[Sat Mar  1 0{hours[0]}:05:00 2025] NVRM: Xid (PCI:0000:02:00): 79, pid=7, text\n"
        for name in ("once", "twice"):
            place = tmp_path / name / "raw" / "gn01"
            (place / f"{part}.csv").write_text("\n".join([header, *lines]) + "\n")
            (place / f"{part}.dmesg.log").write_text(log)
            if name == "twice" or part == "late":
                out = str(tmp_path / name / "records")
                assert main(["ingest", "--raw", str(place.parent), "--out", out]) == 0
    once, twice = (contents(tmp_path / name / "records") for name in ("once", "twice"))
    assert once == twice
    assert gpus(tmp_path / "twice" / "records") == {"0165"}
    assert set(failures(tmp_path / "twice" / "records")) == {"0165"}
