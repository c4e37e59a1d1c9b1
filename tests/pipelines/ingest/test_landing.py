from __future__ import annotations

import datetime as dt
import hashlib
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.telemetry.failure_evidence import FAILURES, TICKETS
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, TableError, build_table
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.pipelines.ingest.cmdb import Cmdb
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.storage.records.compaction import compact_date

pytestmark = pytest.mark.long

START = 1_740_787_200 * SECOND  # 2025-03-01
INTERVAL = 10 * MINUTE
NO_READINGS, NO_EVENTS = READINGS.empty_table(), EVENTS.empty_table()


def reading(minute: float, serial: str, **more: Any) -> dict[str, Any]:
    row = {"machine_id": "node-1", "gpu_serial": serial, "pci": f"0000:0{serial[-1]}:00"}
    return row | {"timestamp": START + round(minute * MINUTE), "temperature_gpu": 40.0} | more


def xid(minute: float, pci: str, code: int, **more: Any) -> dict[str, Any]:
    row = {"machine_id": "node-1", "pci": f"0000:0{pci}:00", "kind": "xid", "code": code}
    name = f"{minute}-{pci}-{code}"
    return row | {"timestamp": START + round(minute * MINUTE), "id": name} | more


def readings(*rows: dict[str, Any]) -> pa.Table:
    return build_table(rows, READINGS)


def events(*rows: dict[str, Any]) -> pa.Table:
    return build_table(rows, EVENTS)


def digests(folder: Path) -> dict[str, str]:
    """Return the content of each file of a data set, by name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.parquet"))
    }


def records(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("date=*/*.parquet"))
    rows: list[dict[str, Any]] = pa.concat_tables(
        pq.read_table(file, partitioning=None) for file in files
    ).to_pylist()
    return rows


def test_landing_writes_and_counts_rows(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL, cmdb=Cmdb(pa.table({"gpu_serial": ["S1"]})))
    rows = [reading(10, "S1"), reading(10, "S2"), reading(70, "S1"), reading(70, "S1")]
    nameless = reading(10, "S3") | {"gpu_serial": None}
    landed = landing.land(readings(*rows, nameless), events(xid(5, "2", 79), xid(5, "9", 13)))
    assert (landed.readings, landed.events, landed.doubled, landed.records) == (4, 2, 1, 3)
    assert (landed.failures, landed.nameless, landed.unplaced) == (1, 1, 1)
    assert landed.unknown == {"S2"}
    written = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.glob("date=*/*"))]
    assert written == [
        "date=2025-03-01/collected-00.parquet",
        "date=2025-03-01/collected-01.parquet",
    ]


def test_late_rows_go_into_their_partition(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(reading(24 * 60 + 10, "S1")), NO_EVENTS)
    landing.land(readings(reading(23 * 60, "S1"), reading(24 * 60, "S1")), NO_EVENTS)
    assert [path.name for path in sorted(tmp_path.glob("date=*"))] == [
        "date=2025-03-01",
        "date=2025-03-02",
    ]
    # The interval that ends at midnight belongs to the next day.
    assert len(pq.read_table(tmp_path / "date=2025-03-02", partitioning=None)) == 2


def test_late_event_changes_its_record(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(reading(10, "S1", log_read=True)), NO_EVENTS)
    assert [row["xid"] for row in records(tmp_path)] == [0]
    landing.land(NO_READINGS, events(xid(5, "1", 79)))
    assert [row["xid"] for row in records(tmp_path)] == [79]


def test_late_event_changes_compacted_date(tmp_path: Path) -> None:
    landing, date = Landing(tmp_path, INTERVAL), dt.date(2025, 3, 1)
    landing.land(readings(*(reading(m, "S1", log_read=True) for m in (10, 70))), NO_EVENTS)
    compact_date(tmp_path, date)
    landing.land(NO_READINGS, events(xid(5, "1", 79)))
    assert sorted(path.name for path in tmp_path.glob("date=*/*.parquet")) == [
        "00-compacted.parquet",
        "collected-00.parquet",
    ]
    compact_date(tmp_path, date)
    assert [path.name for path in tmp_path.glob("date=*/*.parquet")] == ["00-compacted.parquet"]
    assert [row["xid"] for row in records(tmp_path)] == [79, 0]


def test_event_gets_gpu_known_later(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    assert landing.land(NO_READINGS, events(xid(5, "1", 79))).unplaced == 1
    assert pq.read_table(tmp_path / "failures.parquet").num_rows == 0
    landed = landing.land(readings(reading(130, "S1", log_read=True)), NO_EVENTS)
    assert landed.failures == 1
    (event,) = pq.read_table(tmp_path / "_events" / "date=2025-03-01" / "00.parquet").to_pylist()
    assert event["gpu_serial"] == "S1"


def test_first_copy_of_event_sets_known_time(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(reading(0, "S1")), events(xid(5, "1", 79, known_at=START + 6 * MINUTE)))
    landing.land(NO_READINGS, events(xid(5, "1", 79, known_at=START + HOUR)))
    (failure,) = pq.read_table(tmp_path / "failures.parquet").to_pylist()
    assert failure["known_at"].value == START + 6 * MINUTE


def test_repeated_ticket_replaces_earlier_one(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    for repaired in (None, START + HOUR):
        ticket = {"gpu_serial": "S1", "failed_at": START, "repaired_at": repaired, "cause": "fan"}
        landing.land(NO_READINGS, NO_EVENTS, pa.Table.from_pylist([ticket], schema=TICKETS))
    (failure,) = pq.read_table(tmp_path / "failures.parquet").to_pylist()
    assert failure["repaired_at"].value == START + HOUR


def test_empty_failures_table_is_written(tmp_path: Path) -> None:
    Landing(tmp_path, INTERVAL).land(readings(reading(10, "S1")), NO_EVENTS)
    table = pq.read_table(tmp_path / "failures.parquet")
    assert (table.num_rows, table.column_names) == (0, FAILURES.names)


def test_remove_stale_files_of_killed_process(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(reading(10, "S1")), NO_EVENTS)
    left = tmp_path / "date=2025-03-01" / ".collected-00.parquet.1.tmp"
    left.write_bytes(b"half")
    before = digests(tmp_path)
    landing.remove_stale_files()
    assert not left.exists()
    assert digests(tmp_path) == before


@given(st.randoms(use_true_random=False), st.integers(1, 6))
@settings(max_examples=25)
def test_landing_is_order_independent(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, parts: int
) -> None:
    seen = [
        reading(10 * tick, f"S{gpu}", log_read=True, boot_time=START - MINUTE)
        for tick in range(14)
        for gpu in range(3)
    ]
    # A GPU that moved, a reboot of the host, and many Xids.
    seen[20] |= {"pci": "0000:07:00"}
    seen[-3:] = [row | {"boot_time": START + 125 * MINUTE} for row in seen[-3:]]
    found = [
        xid(minute, str(gpu), code, known_at=START + 200 * MINUTE)
        for minute, gpu, code in ((5, 1, 79), (33, 0, 13), (61, 2, 63), (119, 2, 48), (5, 7, 31))
    ]
    whole, shuffled = (tmp_path_factory.mktemp("landed") for _ in range(2))
    Landing(whole, INTERVAL).land(readings(*seen), events(*found))
    rows = [("r", row) for row in seen] + [("e", row) for row in found]
    rows += chance.sample(rows, 10)
    chance.shuffle(rows)
    for part in range(parts):
        some = rows[part::parts]
        Landing(shuffled, INTERVAL).land(
            readings(*(row for kind, row in some if kind == "r")),
            events(*(row for kind, row in some if kind == "e")),
        )
    tables = ("date=*/*.parquet", "failures.parquet")
    for pattern in tables:
        names = [path.relative_to(whole) for path in sorted(whole.glob(pattern))]
        assert names == [path.relative_to(shuffled) for path in sorted(shuffled.glob(pattern))]
        for name in names:
            assert (whole / name).read_bytes() == (shuffled / name).read_bytes(), name


def test_xid_of_conflicting_host_is_no_failure(
    tmp_path: Path,
) -> None:
    copy = {"machine_id": "node-2", "pci": "0000:07:00"}
    landing = Landing(tmp_path, INTERVAL)
    for minute in (10, 20):
        rows = readings(reading(minute - 1, "S1"), reading(minute, "S1", **copy))
        assert landing.land(rows, NO_EVENTS).conflicts
    # The second event is in the next hour, which has no reading yet.
    of_copy = events(xid(25, "7", 79, machine_id="node-2"), xid(61, "7", 79, machine_id="node-2"))
    assert landing.land(NO_READINGS, of_copy).failures == 0
    (tmp_path / "_state" / "rivals.parquet").unlink()
    assert landing.land(NO_READINGS, NO_EVENTS).failures == 0
    assert landing.land(NO_READINGS, events(xid(26, "1", 79))).failures == 1


def test_xid_counts_after_gpu_moved(tmp_path: Path) -> None:
    elsewhere = {"machine_id": "node-2", "pci": "0000:07:00"}
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(reading(9, "S1"), reading(10, "S1", **elsewhere)), NO_EVENTS)
    landing.land(readings(reading(180, "S1", **elsewhere)), NO_EVENTS)
    assert landing.land(NO_READINGS, events(xid(190, "7", 79, machine_id="node-2"))).failures == 1


def test_events_of_older_schema_are_kept(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(reading(1, "S1")), events(xid(2, "1", 79)))
    for path in (*tmp_path.glob("_events/*/*.parquet"), tmp_path / "_state/evidence.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).drop(["severity", "action"]), path)
    done = landing.land(NO_READINGS, events(xid(3, "1", 149, severity="fatal")))
    assert not done.quarantined
    (path,) = tmp_path.glob("_events/*/*.parquet")
    rows = pq.read_table(path, partitioning=None).to_pylist()
    assert [(row["code"], row["severity"]) for row in rows] == [(79, None), (149, "fatal")]


def test_restored_event_keeps_vouched(tmp_path: Path) -> None:
    landing = Landing(tmp_path, INTERVAL)
    landing.land(readings(reading(1, "S1")), events(xid(2, "1", 79, vouched="shared")))
    (path,) = tmp_path.glob("_events/*/*.parquet")
    path.write_bytes(b"broken")
    landing.land(NO_READINGS, events(xid(3, "1", 48, vouched="host")))
    rows = pq.read_table(path, partitioning=None).to_pylist()
    assert [(row["code"], row["vouched"]) for row in rows] == [(79, "shared"), (48, "host")]


def test_unknown_event_word_is_rejected() -> None:
    with pytest.raises(TableError, match=r"column `severity`: 'bad', expected"):
        events(xid(1, "1", 149, severity="bad"))
