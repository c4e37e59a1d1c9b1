from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import accumulate
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.telemetry.record_join import RECORDS
from forewarn.features.telemetry.recovery_evidence import (
    Recovery,
    RecoveryEvidence,
    evidence_rows,
    recoveries_from_table,
    recovery_table,
)
from forewarn.features.time_units import DAY, HOUR


def after(records: Iterable[RecoveryEvidence], since: int = 0) -> Recovery:
    """Return the evidence of hourly records for a failure at hour `since`."""
    start = Recovery("S1", since * HOUR, 0)
    return reduce(lambda seen, record: seen.after(record, HOUR), records, start)


def record(
    hour: int, *, load: bool = False, healthy: bool = True, energy: float | None = None
) -> RecoveryEvidence:
    return RecoveryEvidence(hour * HOUR, energy, healthy, healthy and load)


def test_load_and_telemetry_presume_an_end() -> None:
    idle_then_loaded = [record(hour, load=hour > 20) for hour in range(1, 25)]
    seen = after(idle_then_loaded)
    assert (seen.works_from, seen.presumed_known) == (HOUR, DAY)
    assert after(idle_then_loaded[:-1]).presumed_known is None
    assert after(record(hour, load=hour > 21) for hour in range(1, 25)).presumed_known is None
    late = [record(hour, load=hour in (30, 31, 32, 50)) for hour in range(1, 60)]
    assert after(late).presumed_known == 50 * HOUR


def test_hours_without_telemetry_do_not_count() -> None:
    gap = [record(hour, load=True) for hour in (*range(1, 11), *range(100, 114))]
    assert after(gap).presumed_known == 113 * HOUR
    assert after(gap[:-1]).presumed_known is None


def test_recovery_request_resets_evidence() -> None:
    seen = after(record(hour, load=True, healthy=hour != 20) for hour in range(1, 50))
    assert (seen.works_from, seen.presumed_known) == (21 * HOUR, 44 * HOUR)


def test_interval_overlapping_failure_is_ignored() -> None:
    seen = after([record(hour, load=True) for hour in range(1, 40)], since=10)
    assert (seen.works_from, seen.presumed_known) == (11 * HOUR, 34 * HOUR)
    within = Recovery("S1", 10 * HOUR + 1, 0).after(record(11, load=True), HOUR)
    assert (within.works_from, within.healthy) == (None, 0)


def test_energy_decrease_with_load_is_restart() -> None:
    before = [record(hour, load=True, energy=1e6 + hour) for hour in (1, 2)]
    restarted = [record(3, energy=5e3), record(4, energy=6e3), record(5, load=True, energy=8e3)]
    seen = after([*before, *restarted], since=2)
    assert (seen.restarted, seen.boot_known) == (3 * HOUR, 5 * HOUR)
    assert after([*before, *restarted[:2]], since=2).boot_known is None
    # A GPU off the bus has no records until it returns.
    assert after([before[0], *restarted], since=2).boot_known == 5 * HOUR


def test_exporter_restart_is_no_gpu_restart() -> None:
    """The counter continues, possibly a few seconds of power lower."""
    energies = [1e6, 1.01e6, None, 1.02e6, 1.0199e6, 1.03e6]
    seen = after(record(h, load=True, energy=e) for h, e in enumerate(energies, start=1))
    assert (seen.restarted, seen.boot_known) == (None, None)


def test_earlier_restart_does_not_end_failure() -> None:
    records = [record(1, energy=1e6), record(2, energy=10.0), record(3, load=True, energy=20.0)]
    assert after(records, since=2).boot_known is None


TICK = HOUR // 6


def ticks(energies: Iterable[float | None], since: float, load: bool = True) -> Recovery:
    """Return the evidence of records every ten minutes at 300 W for a failure at tick `since`."""
    start = Recovery("S1", round(since * TICK), 0)
    rows = (
        RecoveryEvidence(tick * TICK, e, True, load, 300.0)
        for tick, e in enumerate(energies, start=1)
    )
    return reduce(lambda seen, row: seen.after(row, TICK), rows, start)


def test_reloaded_driver_must_work_an_hour() -> None:
    counter = [1e9, 1.001e9, *(1e3 * tick for tick in range(1, 8))]
    assert ticks(counter, 1.5).boot_known == 9 * TICK
    assert ticks(counter[:-1], 1.5).boot_known is None
    assert ticks(counter, 1.5, load=False).boot_known is None


def test_restart_within_failure_interval_may_count() -> None:
    """The energy since the restart is that of five minutes, or of nearly ten."""
    for minutes, known in ((5, 9 * TICK), (9.5, None)):
        counter = [1e9, *(300 * 60 * (minutes + 10 * tick) for tick in range(8))]
        assert ticks(counter, 1.2).boot_known == known


GLITCHES = st.sampled_from([None, 1.0, 1e3, 4e8, 8.9e8])


@given(
    st.lists(st.floats(1e3, 1e6), min_size=8, max_size=40),
    st.dictionaries(st.integers(0, 13), st.tuples(GLITCHES, GLITCHES)),
    st.dictionaries(st.integers(0, 13), st.sampled_from([5e9, 1e15])),
    st.floats(0, 20),
)
@settings(max_examples=300, deadline=None)
def test_occasional_wrong_counter_ends_no_failure(
    steps: list[float], low: dict[int, Any], high: dict[int, float], since: float
) -> None:
    """Of three consecutive records one is right, and no two consecutive ones are too high."""
    counter: list[float | None] = [*accumulate(steps, initial=1e9)]
    wrong = {3 * n + i + 1: pair[i] for n, pair in low.items() for i in (0, 1)}
    wrong |= {3 * n + 1: value for n, value in high.items()}
    values = (wrong.get(tick, energy) for tick, energy in enumerate(counter))
    assert ticks(values, since).boot_known is None


def test_evidence_of_records() -> None:
    rows: list[dict[str, Any]] = [
        {"gpu_serial": "B", "timestamp": HOUR, "utilization_gpu": 9.9, "temperature_gpu": 40.0},
        {"gpu_serial": "A", "timestamp": 2 * HOUR, "utilization_gpu": 10.0}
        | {"energy_consumption": 0.0},
        {"gpu_serial": "A", "timestamp": HOUR, "energy_consumption": 7.0},
        {"gpu_serial": "C", "timestamp": HOUR, "power_draw": 90.0, "sm_active": 0.5},
        {"gpu_serial": "D", "timestamp": HOUR, "utilization_gpu": 80.0, "recovery_action": 1.0},
        {"gpu_serial": "E", "timestamp": HOUR, "utilization_gpu": 80.0, "row_remap_failure": 1.0},
        {"gpu_serial": "F", "timestamp": HOUR, "utilization_gpu": 80.0, "recovery_action": 0.0},
    ]
    assert evidence_rows(pa.Table.from_pylist(rows, schema=RECORDS)) == [
        ("A", RecoveryEvidence(HOUR, 7.0, False, False)),
        ("A", RecoveryEvidence(2 * HOUR, None, True, True)),
        ("B", RecoveryEvidence(HOUR, None, True, False)),
        ("C", RecoveryEvidence(HOUR, None, True, True, 90.0)),
        ("D", RecoveryEvidence(HOUR, None, False, False)),
        ("E", RecoveryEvidence(HOUR, None, False, False)),
        ("F", RecoveryEvidence(HOUR, None, True, True)),
    ]
    few = pa.Table.from_pylist(rows[:1]).select(["gpu_serial", "timestamp", "temperature_gpu"])
    assert evidence_rows(few) == [("B", RecoveryEvidence(HOUR, None, True, False))]


records_of_a_gpu = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.booleans(),
        st.sampled_from([True] * 30 + [False]),
        st.one_of(st.none(), st.sampled_from([1.0, 89.0, 91.0, 100.0])),
    ),
    max_size=90,
)


@given(records_of_a_gpu, st.integers(0, 20))
def test_incremental_and_batch_evidence_agree(rows: Any, since: int) -> None:
    hour, records = 0, []
    for step, load, healthy, energy in rows:
        hour += step
        records.append(record(hour, load=load, healthy=healthy, energy=energy))
    seen = after(records, since)
    assert seen.presumed_known == presumed(records, since)
    assert (seen.restarted, seen.boot_known) == restarted(records, since)
    assert recoveries_from_table(recovery_table([seen])) == [seen]


def presumed(records: list[RecoveryEvidence], since: int) -> int | None:
    """Return the first time with 24 healthy hours, 4 of them under load, before it."""
    later = [r for r in records if r.time - HOUR >= since * HOUR]
    for end in range(1, len(later) + 1):
        sick = [i for i in range(end) if not later[i].healthy]
        healthy = later[sick[-1] + 1 if sick else 0 : end]
        if len(healthy) >= 24 and sum(r.loaded for r in healthy) >= 4:
            return later[end - 1].time
    return None


def restarted(records: list[RecoveryEvidence], since: int) -> tuple[int | None, int | None]:
    """Return the record of the first lasting energy decrease, and the first load after it."""
    counted = [(r, r.energy) for r in records if r.energy is not None]
    reference = last = float("inf")
    for number, (row, energy) in enumerate(counted):
        limit = 0.9 * reference
        if row.time - HOUR < since * HOUR or energy >= limit or reference == float("inf"):
            reference, last = min(energy, last), energy
            continue
        later = counted[number + 1 :]
        stays = [energy <= value < limit for _, value in later]
        fallen = [record for record, _ in later[: (*stays, False).index(False)]]
        known = next((record.time for record in fallen if record.loaded), None)
        if known is not None or len(fallen) == len(later):
            return row.time, known
    return None, None
