from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.exporter_events import XID_WINDOW, exporter_events
from forewarn.features.telemetry.gauge_events import Sample, detect_changes, detect_increases
from forewarn.features.telemetry.parsers.prometheus_answers import GpuLabels
from forewarn.features.time_units import MINUTE

RECENT = 10 * MINUTE
GPU = GpuLabels(uuid="GPU-1")


def samples(*values: float, exporter: str = "a", first: int = 0) -> list[Sample]:
    return [((first + i) * MINUTE, exporter, value) for i, value in enumerate(values)]


def changes(of: list[Sample], *, at_start: bool = False) -> list[tuple[int, float]]:
    found = detect_changes(of, recent=RECENT, at_start=at_start)
    return [(change.time // MINUTE, change.value) for change in found]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0, 0, 79, 79, 0), [(2, 79)]),
        ((0, 79, 79, 79, 45, 45), [(1, 79), (4, 45)]),
        ((79, 79, 79), []),  # an old Xid
        ((31, 0, 31), [(2, 31)]),  # the exporter restarted in between
        ((31, 43, 31), [(1, 43), (2, 31)]),
        ((0,), []),
        ((), []),
    ],
)
def test_changed_value_is_an_event(
    values: tuple[float, ...], expected: list[tuple[int, float]]
) -> None:
    assert changes(samples(*values)) == expected


def test_gaps_and_new_series_are_transparent() -> None:
    before = samples(0, 0)
    assert changes([*before, *samples(79, first=500)]) == [(500, 79)]
    assert changes([*before, *samples(79, exporter="new", first=2)]) == [(2, 79)]
    shown = samples(79, 79)
    assert changes([*shown, *samples(79, first=500)]) == []
    assert changes([*shown, *samples(79, exporter="new", first=500)]) == []


def test_initial_zero_of_exporter_is_no_event() -> None:
    old, new = samples(79, 79, 79), samples(0, 0, 0, exporter="new", first=1)
    assert changes([*old, *new]) == []
    assert changes([*old, *new, *samples(45, exporter="new", first=4)]) == [(4, 45)]


def test_two_exporters_give_one_event() -> None:
    first, second = samples(0, 79, 79), samples(0, 79, 79, exporter="b")
    assert changes([*first, *[(t + 5, name, value) for t, name, value in second]]) == [(1, 79)]
    assert changes([*first, *samples(0, 0, 0, exporter="c")]) == [(1, 79)]


def test_first_state_is_an_event() -> None:
    assert changes(samples(1, 1, 2), at_start=True) == [(0, 1), (2, 2)]


@given(st.lists(st.sampled_from([0.0, 31.0, 79.0]), max_size=12), st.data())
def test_events_are_independent_of_series(values: list[float], data: st.DataObject) -> None:
    """One exporter whose series change labels with each job."""
    whole = samples(*values)
    assert changes(data.draw(st.permutations(whole))) == changes(whole)
    assert changes([*whole, *whole[: len(whole) // 2]]) == changes(whole)


def test_windowed_count_rises_with_each_event() -> None:
    counts = samples(1, 1, 3, 2, 0, 1)
    rises = [(r.time // MINUTE, r.value) for r in detect_increases(counts, window=XID_WINDOW)]
    assert rises == [(0, 1), (2, 2), (5, 1)]
    later = [*samples(1), *samples(1, first=60)]
    assert [r.time // MINUTE for r in detect_increases(later, window=XID_WINDOW)] == [0, 60]


def rows(
    states: dict[str, list[Sample]], counted: dict[int, list[Sample]] | None = None
) -> list[tuple[int, object, object]]:
    found = exporter_events(GPU, "gn01", states, counted or {})
    return sorted(
        (row["timestamp"] // MINUTE, row["kind"], row.get("code", row.get("action")))
        for row in found
    )


def test_xid_of_gauge_and_count_merges() -> None:
    gauge, count = samples(0, 0, 45, 45), samples(2, first=4)
    assert rows({"xid": gauge}, {45: count}) == [(2, "xid", 45)]
    assert rows({"xid": gauge}, {45: samples(1, first=1)}) == [(1, "xid", 45)]
    assert rows({"xid": gauge}, {62: samples(1, first=2)}) == [(2, "xid", 45), (2, "xid", 62)]
    (row,) = exporter_events(GPU, None, {"xid": gauge}, {45: count})
    assert row["count"] == 2


def test_recovery_action_and_remap_failure_are_events() -> None:
    states = {"recovery_action": samples(0, 1, 1, 4), "row_remap_failure": samples(1, 1)}
    assert rows(states) == [
        (0, "needs_reset", None),
        (1, "needs_reset", "reset"),
        (3, "needs_reset", "drain_and_reset"),
    ]
    assert rows({"recovery_action": samples(9)}) == []


def test_event_id_is_stable() -> None:
    names = [
        {row["id"] for row in exporter_events(GPU, host, {"xid": samples(*values)}, {})}
        for host, values in (("gn01", (0, 79)), (None, (0, 79, 79)))
    ]
    assert names[0] == names[1]
