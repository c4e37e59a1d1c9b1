from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.errors import InputError
from forewarn.features.records.record_table import HOUR
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.storage.evidence.host_events import HostEvents

START = 1_740_787_200 * SECOND  # 2025-03-01


def event(minute: int, machine: str, code: int | None, kind: str = "xid") -> dict[str, object]:
    return {
        "timestamp": START + minute * MINUTE,
        "machine_id": machine,
        "gpu_serial": "S1",
        "kind": kind,
        "code": code,
        "raw": f"NVRM: Xid (PCI:0000:10:00): {code}",
        "id": f"{machine}-{minute}-{kind}",
    }


def put(records: Path, hour: int, rows: list[dict[str, object]]) -> None:
    path = records / "_events" / "date=2025-03-01" / f"{hour:02d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(build_table(rows, EVENTS), path)


def test_xids_of_machine_over_two_hours(tmp_path: Path) -> None:
    put(tmp_path, 0, [event(50, "a", 48), event(10, "a", 13), event(55, "b", 79)])
    put(tmp_path, 1, [event(62, "a", 79), event(63, "a", None, "blind"), event(90, "a", 31)])
    found = HostEvents.open(tmp_path).xids("a", START + 45 * MINUTE, START + 70 * MINUTE)
    assert [one["xid"] for one in found] == [79, 48]  # the newest first, and none outside the span
    assert found[0]["time"] == "2025-03-01T01:02:00Z"
    assert found[0]["gpu_serial"] == "S1"
    assert found[0]["raw"] == "NVRM: Xid (PCI:0000:10:00): 79"


def test_missing_hour_has_no_xid(tmp_path: Path) -> None:
    put(tmp_path, 0, [event(50, "a", 48)])
    assert HostEvents.open(tmp_path).xids("a", START + 5 * HOUR, START + 6 * HOUR) == []


def test_missing_events_are_one_error_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no `_events`"):
        HostEvents.open(tmp_path)
    path = tmp_path / "_events" / "date=2025-03-01" / "00.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"timestamp": pa.array([START], pa.timestamp("ns"))}), path)
    for broken in (lambda: None, lambda: path.write_bytes(path.read_bytes()[:100])):
        broken()
        with pytest.raises(InputError, match="cannot be used as events"):
            HostEvents.open(tmp_path).xids("a", START, START + HOUR)


def test_empty_landing_has_no_xid(tmp_path: Path) -> None:
    (tmp_path / "_readings").mkdir()
    assert HostEvents.open(tmp_path).xids("a", START, START + HOUR) == []


def test_landed_xid_is_found(tmp_path: Path) -> None:
    """Events are stored in the hour in which the interval of their record ends."""
    events = build_table([event(55, "a", 79)], EVENTS)
    Landing(tmp_path, 10 * MINUTE).land(READINGS.empty_table(), events, None)
    (xid,) = HostEvents.open(tmp_path).xids("a", START + 50 * MINUTE, START + 58 * MINUTE)
    assert xid["time"] == "2025-03-01T00:55:00Z"


def test_grave_errors_of_other_vendors_are_events(tmp_path: Path) -> None:
    rows = [
        event(minute, "a", None, "gpu_error") | {"severity": severity, "check": "umc"}
        for minute, severity in enumerate(("notice", "warning", "error", "critical", "ok"))
    ]
    put(tmp_path, 0, [*rows, event(9, "a", 79)])
    grave = HostEvents.open(tmp_path).grave_events(("a",), START, START + HOUR)
    assert [(row["xid"], row["severity"], row["check"]) for row in grave] == [
        *((79, None, None), (None, "critical", "umc"), (None, "error", "umc"))
    ]
