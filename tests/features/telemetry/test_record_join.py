from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.record_join import (
    RECORDS,
    build_records,
    event_ticks,
    reading_ticks,
)
from forewarn.features.telemetry.telemetry_rows import OPTIONAL_NUMBERS
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.features.xid_severity import severity

START = 1_740_787_200 * SECOND
TICK = 10 * MINUTE
NONE = pa.table({"gpu_serial": pa.array([], pa.string())})

Rows = Callable[..., pa.Table]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    place = table.schema.get_field_index("timestamp")
    minutes = (table["timestamp"].cast(pa.int64()).to_numpy() - START) / MINUTE
    rows: list[dict[str, Any]] = table.set_column(place, "timestamp", pa.array(minutes)).to_pylist()
    return rows


def test_small_delay_belongs_to_interval(readings: Rows) -> None:
    table = readings((0, "S1"), (0.4, "S1"), (0.6, "S1"), (10, "S1"), (10.5, "S1"), (10.51, "S1"))
    minutes = (reading_ticks(table, TICK) - START) / MINUTE
    assert minutes.tolist() == [0, 0, 10, 10, 10, 20]


def test_an_event_is_never_late(events: Rows) -> None:
    table = events((0, "S1", 13), (0.1, "S1", 13), (10, "S1", 13), (10.1, "S1", 13))
    assert ((event_ticks(table, TICK) - START) / MINUTE).tolist() == [0, 10, 10, 20]


def test_gauges_are_means_others_last_values(readings: Rows, events: Rows) -> None:
    table = readings(
        (4, "S1", {"temperature_gpu": 50.0, "ecc_corrected": 9, "machine_id": "node-2"}),
        (1, "S1", {"temperature_gpu": 40.0, "ecc_corrected": 7, "driver_version": "550"}),
        (9, "S1", {"power_draw": 100.0}),
    )
    (row,) = rows_of(build_records(table, events(), NONE, interval=TICK))
    assert (row["gpu_serial"], row["timestamp"], row["machine_id"]) == ("S1", 10, "node-1")
    assert (row["temperature_gpu"], row["power_draw"], row["ecc_corrected"]) == (45, 100, 9)
    assert (row["driver_version"], row["utilization_gpu"], row["xid"]) == ("550", None, None)


def test_optional_numbers_are_optional_columns(readings: Rows, events: Rows) -> None:
    first = {"energy_consumption": 7.0, "recovery_action": 2.0, "row_remap_failure": 1.0}
    first |= {"throttle_hardware": 1.0, "nvlink_errors": 3.0, "sm_active": 0.5}
    second = {"energy_consumption": 5.0, "recovery_action": 0.0, "row_remap_failure": 0.0}
    second |= {"throttle_hardware": 0.0, "nvlink_errors": 4.0, "sm_active": 1.0}
    table = readings((1, "S1", first), (2, "S1", second), (2, "S2"))
    found = build_records(table, events(), NONE, interval=TICK)
    expected = {"energy_consumption": 5.0, "recovery_action": 2.0, "row_remap_failure": 1.0}
    expected |= {"throttle_hardware": 0.5, "nvlink_errors": 4.0, "sm_active": 0.75}
    row, other = rows_of(found)
    assert {name: row[name] for name in OPTIONAL_NUMBERS if name in row} == expected
    assert {other[name] for name in expected} == {None}


def test_most_severe_xid_or_zero(readings: Rows, events: Rows) -> None:
    read = {"log_read": True}
    table = readings((10, "S1", read), (20, "S1", read), (30, "S1"), (10, "S2", read), (40, "S1"))
    xids = events(
        (3, "S1", 13), (4, "S1", 79), (5, "S1", 31), (12, "S2", 79), (22, "S1", 63), (23, "S1", 61)
    )
    rows = rows_of(build_records(table, xids, NONE, interval=TICK))
    found = {(row["gpu_serial"], row["timestamp"]): row["xid"] for row in rows}
    # Of equal severities the later Xid wins; an event without a record is ignored.
    assert found == {
        ("S1", 10): 79,
        ("S1", 20): 0,
        ("S1", 30): 61,
        ("S1", 40): None,
        ("S2", 10): 0,
    }


def test_events_without_gpu_are_no_xid(readings: Rows, events: Rows) -> None:
    table = readings((10, "S1", {"log_read": True}))
    others = events((5, "S1", "lost"), (5, None, 79), (6, "S1", "blind"), (5, "S1", "xid"))
    (row,) = rows_of(build_records(table, others, NONE, interval=TICK))
    assert row["xid"] == 0


def test_cmdb_wins_except_for_location(readings: Rows, events: Rows) -> None:
    cmdb = pa.table(
        {
            "gpu_serial": ["S1", "S9"],
            "gpu_type": ["H100 SXM", "A100"],
            "machine_id": ["node-7", "node-9"],
            "slot": ["3", "4"],
            "rack": ["r1", "r9"],
            "owner": ["team", None],
            "temperature_gpu": ["99", "99"],
        }
    )
    table = readings(
        (10, "S1", {"gpu_type": "NVIDIA H100", "slot": 0}),
        (10, "S2", {"gpu_type": "NVIDIA H100", "slot": 1}),
        (20, "S1", {"machine_id": None}),
    )
    found = build_records(table, events(), cmdb, interval=TICK)
    always = [name for name in RECORDS.names if name not in OPTIONAL_NUMBERS]
    assert found.column_names == [*always, "owner"]
    first, second, other = rows_of(found)
    assert (first["gpu_type"], first["machine_id"], first["slot"]) == ("H100 SXM", "node-1", 0)
    assert (first["rack"], first["owner"], first["temperature_gpu"]) == ("r1", "team", None)
    assert (second["machine_id"], second["slot"]) == ("node-7", 3)
    assert (other["gpu_type"], other["rack"], other["owner"]) == ("NVIDIA H100", None, None)


def test_nothing_gives_nothing(readings: Rows, events: Rows) -> None:
    assert len(build_records(readings(), events(), NONE, interval=TICK)) == 0
    nameless = readings((10, "S1", {"gpu_serial": None}))
    assert len(build_records(nameless, events(), NONE, interval=TICK)) == 0


moments = st.integers(0, 40)
gpus = st.sampled_from(["S1", "S2"])
values = st.none() | st.integers(0, 5)


@given(
    st.lists(st.tuples(moments, gpus, values, st.booleans()), max_size=12),
    st.lists(st.tuples(moments, gpus, st.sampled_from([13, 31, 63, 79])), max_size=8),
)
def test_records_match_reference_loop(
    seen: list[tuple[int, str, int | None, bool]], xids: list[tuple[int, str, int]]
) -> None:
    """Times are multiples of five minutes, away from the tolerance."""
    readings = [
        {
            "timestamp": START + 5 * m * MINUTE,
            "gpu_serial": gpu,
            "temperature_gpu": None if value is None else float(value),
            "log_read": read,
        }
        for m, gpu, value, read in seen
    ]
    events = [
        {"timestamp": START + 5 * m * MINUTE, "gpu_serial": gpu, "kind": "xid", "code": code}
        | {"id": str(i)}
        for i, (m, gpu, code) in enumerate(xids)
    ]
    found = build_records(
        build_table(readings, READINGS), build_table(events, EVENTS), NONE, interval=TICK
    )
    got = [
        (row["gpu_serial"], row["timestamp"], row["temperature_gpu"], row["xid"])
        for row in rows_of(found)
    ]
    assert got == plain(seen, xids)


def test_fatal_xid_is_most_severe() -> None:
    reading = {"timestamp": START + 5 * MINUTE, "gpu_serial": "S1"}
    words = [(149, "fatal"), (145, "nonfatal"), (63, None)]
    events = [
        {"timestamp": START + m * MINUTE, "gpu_serial": "S1", "kind": "xid", "code": code}
        | {"id": str(code), "severity": word}
        for m, (code, word) in enumerate(words, 1)
    ]
    found = build_records(
        build_table([reading], READINGS), build_table(events, EVENTS), NONE, interval=TICK
    )
    assert [row["xid"] for row in rows_of(found)] == [149]


def plain(
    seen: list[tuple[int, str, int | None, bool]], xids: list[tuple[int, str, int]]
) -> list[tuple[Any, ...]]:
    rows = []
    for gpu, tick in sorted({(gpu, 10 * math.ceil(m / 2)) for m, gpu, _, _ in seen}):
        mine = [s for s in seen if s[1] == gpu and 10 * math.ceil(s[0] / 2) == tick]
        known = [s[2] for s in mine if s[2] is not None]
        codes = [x for x in xids if x[1] == gpu and 10 * math.ceil(x[0] / 2) == tick]
        ranked = sorted(
            enumerate(codes),
            key=lambda one: (severity(np.array([one[1][2]], np.float32))[0], one[1][0], one[0]),
        )
        none = 0 if any(s[3] for s in mine) else None
        xid = ranked[-1][1][2] if ranked else none
        rows.append((gpu, tick, sum(known) / len(known) if known else None, xid))
    return rows


@pytest.mark.parametrize("interval", [TICK, HOUR, 10**9])
def test_any_cadence(readings: Rows, events: Rows, interval: int) -> None:
    table = readings(*((minute, "S1") for minute in range(0, 240, 10)))
    found = build_records(table, events(), NONE, interval=interval)
    times = found["timestamp"].cast(pa.int64()).to_numpy()
    assert (times % interval == 0).all()
    assert len(found) == (5 if interval == HOUR else 24)
