from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipelines.ingest.killed_landing import killed_without

from forewarn.features.telemetry.failure_evidence import TICKETS
from forewarn.features.telemetry.slot_conflicts import SlotConflict
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.pipelines.ingest.cmdb import Cmdb
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.landing_counts import serial_notes
from forewarn.pipelines.storage.records.compaction import compact_date

pytestmark = pytest.mark.long

START = 1_740_787_200 * SECOND  # 2025-03-01
INTERVAL = 10 * MINUTE
NO_READINGS, NO_EVENTS = READINGS.empty_table(), EVENTS.empty_table()
Row = dict[str, Any]


def gpu(minute: float, number: int, serial: str = "B1", **more: Any) -> Row:
    """Return a reading of one GPU of a board; its number is in UUID, address and slot."""
    row: Row = {"machine_id": "vdi01", "gpu_serial": serial, "gpu_uuid": f"GPU-{serial}-{number}"}
    row |= {"pci": f"0000:4{number}:00", "slot": number, "temperature_gpu": 40.0 + number}
    row |= {"timestamp": START + round(minute * MINUTE), "log_read": True}
    return row | {"boot_time": START - HOUR} | more


def xid(minute: float, number: int, code: int = 79) -> Row:
    row = {"machine_id": "vdi01", "pci": f"0000:4{number}:00", "kind": "xid", "code": code}
    return row | {"timestamp": START + round(minute * MINUTE), "id": f"{minute}-{number}-{code}"}


def readings(*rows: Row) -> pa.Table:
    return build_table(rows, READINGS)


def events(*rows: Row) -> pa.Table:
    return build_table(rows, EVENTS)


def records(folder: Path) -> list[Row]:
    files = sorted(folder.glob("date=*/*.parquet"))
    tables = [pq.read_table(file, partitioning=None) for file in files]
    rows: list[Row] = pa.concat_tables(tables, promote_options="default").to_pylist()
    return rows


def gpus(folder: Path) -> set[str]:
    return {row["gpu_serial"] for row in records(folder)}


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files whose content does not depend on the order of arrival."""
    patterns = ("date=*/*.parquet", "failures.parquet", "_state/*.parquet")
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    files = [path for path in files if path.name != "evidence.parquet"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_shared_serial_is_a_board(
    tmp_path: Path,
) -> None:
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(gpu(10, 0)), events(xid(9, 0)))
    assert gpus(tmp_path) == {"B1"}
    landed = landing.land(readings(gpu(130, 0), gpu(130, 1)), NO_EVENTS)
    assert gpus(tmp_path) == {"B1/GPU-B1-0", "B1/GPU-B1-1"}
    assert landed.boards == {"B1": 2}
    assert landing.land(readings(gpu(140, 0), gpu(140, 1)), NO_EVENTS).boards == {}
    (failure,) = pq.read_table(tmp_path / "failures.parquet").to_pylist()
    assert failure["gpu_serial"] == "B1/GPU-B1-0"
    assert pq.read_table(tmp_path / "_state" / "boards.parquet").to_pylist() == [
        {"gpu_serial": "B1", "known_at": START + 130 * MINUTE}
    ]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([gpu(10, 0), gpu(20, 0, gpu_uuid="GPU-new")], id="flashed"),
        pytest.param([gpu(11, 0), gpu(12, 0, gpu_uuid="GPU-new")], id="flashed in an interval"),
        pytest.param([gpu(10, 0), gpu(20, 1)], id="exchanged"),
        pytest.param([gpu(12, 0), gpu(18, 1)], id="exchanged within an interval"),
        pytest.param([gpu(10, 0), gpu(10, 1, machine_id="vdi02")], id="another host"),
        pytest.param([gpu(10, 0), gpu(10, 0, pci=None, gpu_uuid=None)], id="a source without UUID"),
    ],
)
def test_single_gpu_is_no_board(tmp_path: Path, rows: list[Row]) -> None:
    Landing(tmp_path, INTERVAL).land(readings(*rows), NO_EVENTS)
    assert gpus(tmp_path) == {"B1"}


def test_late_board_changes_compacted_dates(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(*(gpu(m, 0) for m in (10, 70)), gpu(10, 5, "S2")), NO_EVENTS)
    compact_date(tmp_path, dt.date(2025, 3, 1))
    landing.land(readings(gpu(80, 0), gpu(80, 1)), NO_EVENTS)
    names = [(row["gpu_serial"], row["timestamp"].value) for row in records(tmp_path)]
    assert sorted(names) == [
        ("B1/GPU-B1-0", START + 10 * MINUTE),
        ("B1/GPU-B1-0", START + 70 * MINUTE),
        ("B1/GPU-B1-0", START + 80 * MINUTE),
        ("B1/GPU-B1-1", START + 80 * MINUTE),
        ("S2", START + 10 * MINUTE),
        ("S2", START + 10 * MINUTE),  # the hour was rebuilt; the later file wins
    ]
    before = records(tmp_path)
    compact_date(tmp_path, dt.date(2025, 3, 1))
    assert len(records(tmp_path)) == len(before) - 1


def ticket(serial: str, minute: float = 60) -> Row:
    moments = {"failed_at": START + round(minute * MINUTE), "repaired_at": None, "known_at": None}
    return {"gpu_serial": serial, "cause": "fan"} | moments


def failures(folder: Path) -> list[tuple[str, str]]:
    rows = pq.read_table(folder / "failures.parquet").to_pylist()
    return [(row["gpu_serial"], row["cause"]) for row in rows]


@pytest.mark.parametrize("before", [True, False])
def test_tickets_and_cmdb_apply_to_board(tmp_path: Path, before: bool) -> None:
    cmdb = Cmdb(pa.table({"gpu_serial": ["B1", "B1/GPU-B1-1"], "rack": ["r1", "r2"]}))
    landing = Landing(tmp_path, INTERVAL, cmdb=cmdb)
    batches = [[gpu(10, 0)], [gpu(20, 0), gpu(20, 1)]]
    tickets = pa.Table.from_pylist([ticket("B1"), ticket("B1/GPU-B1-0", 90)], schema=TICKETS)
    for batch in batches if before else reversed(batches):
        landed = landing.land(readings(*batch), NO_EVENTS, tickets)
    assert (landed.ticket_boards, landed.cmdb_boards) == ({"B1": 2}, {"B1": 2})
    assert (landed.unknown, landed.unknown_tickets) == (set(), frozenset())
    assert failures(tmp_path) == [("B1/GPU-B1-0", "fan"), ("B1/GPU-B1-1", "fan")]
    racks = {row["gpu_serial"]: row["rack"] for row in records(tmp_path)}
    assert racks == {"B1/GPU-B1-0": "r1", "B1/GPU-B1-1": "r2"}


def test_serial_without_leading_zeros_matches(tmp_path: Path) -> None:
    cmdb = Cmdb(pa.table({"gpu_serial": ["324"], "rack": ["r1"]}))
    landing = Landing(tmp_path, INTERVAL, cmdb=cmdb)
    tickets = [ticket("324"), ticket("7"), ticket("99")]
    rows = [gpu(10, 0, "0324"), gpu(10, 1, "07"), gpu(10, 2, "007")]
    landed = landing.land(readings(*rows), NO_EVENTS, pa.Table.from_pylist(tickets, schema=TICKETS))
    assert landed.zeros == {"324": "0324"}
    assert landed.unknown_tickets == {"7", "99"}  # the first is ambiguous
    assert failures(tmp_path) == [("0324", "fan"), ("7", "fan"), ("99", "fan")]
    assert {row["gpu_serial"]: row["rack"] for row in records(tmp_path)}["0324"] == "r1"


def test_board_readings_without_uuid_are_counted(tmp_path: Path) -> None:
    nameless = (gpu(10, number) | {"gpu_uuid": None} for number in range(4))
    rows = readings(*nameless, gpu(10, 0, "S2"))
    landed = Landing(tmp_path, INTERVAL).land(rows, NO_EVENTS)
    assert (landed.nameless, landed.boards) == (4, {"B1": 0})
    assert gpus(tmp_path) == {"S2"}


def test_copied_host_with_board_is_dropped(tmp_path: Path) -> None:
    landing, there = Landing(tmp_path, INTERVAL), [gpu(9, 0), gpu(9, 1)]
    copy = [row | {"machine_id": "vdi02", "timestamp": START + 10 * MINUTE} for row in there]
    landed = landing.land(readings(*there, *copy), NO_EVENTS)
    assert {(conflict.gpu_serial, conflict.holder) for conflict in landed.conflicts} == {
        ("B1/GPU-B1-0", "vdi01"),
        ("B1/GPU-B1-1", "vdi01"),
    }
    assert {row["machine_id"] for row in records(tmp_path)} == {"vdi01"}


@pytest.mark.parametrize(
    ("minute", "slot", "conflict"), [(10.5, 0, True), (18, 0, False), (10, 1, False)]
)
def test_slot_conflict_is_noted(tmp_path: Path, minute: float, slot: int, conflict: bool) -> None:
    rows = [gpu(10, 0, "S1"), gpu(minute, 5, "S2", slot=slot)]
    landed = Landing(tmp_path, INTERVAL).land(readings(*rows), NO_EVENTS)
    assert landed.slot_conflicts == (
        {SlotConflict("vdi01", 0, ("S1", "S2"))} if conflict else set()
    )
    assert gpus(tmp_path) == {"S1", "S2"}
    assert sum("slot 0 of vdi01 (S1 and S2)" in line for line in serial_notes(landed)) == conflict


def test_gpu_names_are_not_file_names(tmp_path: Path) -> None:
    names = {"gpu_serial": "../../outside", "gpu_uuid": "../GPU/..%2f"}
    rows = [gpu(10, number) | names for number in range(2)]
    rows[1]["gpu_uuid"] = "/etc/passwd"
    landing = Landing(tmp_path / "records", INTERVAL)
    landing.land(readings(*rows), events(xid(5, 0)), pa.Table.from_pylist([], schema=TICKETS))
    assert [path.name for path in tmp_path.iterdir()] == ["records"]
    assert gpus(tmp_path / "records") == {
        "../../outside/../GPU/..%2f",
        "../../outside//etc/passwd",
    }
    assert not any("outside" in str(path) for path in tmp_path.rglob("*"))


@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(0, 60))
@settings(max_examples=12, deadline=None)
def test_landing_is_idempotent(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, parts: int, n_writes: int
) -> None:
    seen = [gpu(10 * tick, number) for tick in range(14) for number in range(3)]
    seen += [gpu(10 * tick, number, "B2") for tick in (1, 9) for number in (4, 5)]
    seen += [gpu(10 * tick, 7, "S3") for tick in range(14)]
    # GPUs of a board sometimes report alone, and one board reports UUIDs only at the end.
    seen = [row for i, row in enumerate(seen) if i % 4 or row["gpu_serial"] != "B1"]
    # Copies of two hosts, one with a board: the order within an hour decides which host wins.
    seen += [gpu(10 * tick + 3, 7, "S3", machine_id=f"copy{tick % 2}") for tick in range(3, 12)]
    seen += [gpu(10 * tick, 1, machine_id="copy0") for tick in range(14)]
    found = [xid(minute, number) for minute, number in ((5, 1), (33, 0), (61, 2), (119, 7), (9, 5))]
    whole, shuffled = (tmp_path_factory.mktemp("landed") for _ in range(2))
    Landing(whole, INTERVAL).land(readings(*seen), events(*found))
    rows = [("r", row) for row in seen] + [("e", row) for row in found]
    rows += chance.sample(rows, 10)
    chance.shuffle(rows)
    writes = iter(range(n_writes))
    for part in range(parts):
        some = rows[part::parts]
        batch = (
            readings(*(row for kind, row in some if kind == "r")),
            events(*(row for kind, row in some if kind == "e")),
        )
        with killed_without(writes):
            Landing(shuffled, INTERVAL).land(*batch)
        Landing(shuffled, INTERVAL).land(*batch)
    assert contents(shuffled) == contents(whole)
