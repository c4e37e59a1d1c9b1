from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.prediction.instances import (
    UNKNOWN,
    Instances,
    find_instances,
    hours_to_failure,
    label_instances,
    latest_instances,
)
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import Records
from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds, RecordCount

Make = Callable[..., Records]
Rows = Callable[..., list[dict[str, Any]]]
Minutes = Callable[..., list[float]]
Fail = Callable[..., Failures]


@pytest.fixture(scope="module")
def ends_of(minutes: Minutes) -> Callable[..., list[tuple[str, float]]]:
    """Return `ends_of(timeline, length, step)`: serial and minute of every instance."""

    def of(timeline: Timeline, length: int, step: int) -> list[tuple[str, float]]:
        found = find_instances(
            timeline,
            window_records=RecordCount(length),
            step_records=RecordCount(step),
            horizon=MINUTE,
        )
        serials = [timeline.records.serials[gpu] for gpu in found.gpu]
        return list(zip(serials, minutes(found.end), strict=True))

    return of


Ends = Callable[..., list[tuple[str, float]]]


@pytest.fixture(scope="module")
def healthy(assembled: Make, rows: Rows) -> Timeline:
    # Ten records: A has six, B three, C one.
    found = rows("A", range(0, 60, 10)) + rows("B", [5, 15, 25]) + rows("C", [30])
    return build_timeline(assembled(found), Failures.empty())


def test_instances_have_full_windows(healthy: Timeline, ends_of: Ends) -> None:
    assert ends_of(healthy, 3, 1) == [("A", 20), ("A", 30), ("A", 40), ("A", 50), ("B", 25)]
    assert ends_of(healthy, 7, 1) == []


@pytest.mark.parametrize(
    ("step", "ends"), [(1, [20, 30, 40, 50]), (2, [20, 40]), (3, [20, 50]), (4, [20])]
)
def test_step_counts_records_between_ends(
    step: int, ends: list[float], healthy: Timeline, ends_of: Ends
) -> None:
    assert [end for serial, end in ends_of(healthy, 3, step) if serial == "A"] == ends


def test_instance_rows_match_end_time(healthy: Timeline) -> None:
    found = find_instances(
        healthy, window_records=RecordCount(3), step_records=RecordCount(2), horizon=MINUTE
    )
    assert found.row.tolist() == [2, 4, 8]
    assert healthy.records.time[found.row].tolist() == found.end.tolist()


def test_long_gap_restarts_windows(assembled: Make, rows: Rows, ends_of: Ends) -> None:
    timeline = build_timeline(assembled(rows("A", [0, 10, 20, 50, 60, 70, 80])), Failures.empty())
    assert ends_of(timeline, 3, 1) == [("A", 20), ("A", 70), ("A", 80)]


def test_filled_record_never_ends_window(assembled: Make, rows: Rows, ends_of: Ends) -> None:
    timeline = build_timeline(assembled(rows("A", [0, 10, 30, 40, 50])), Failures.empty())
    assert ends_of(timeline, 3, 1) == [("A", 30), ("A", 40), ("A", 50)]
    assert ends_of(timeline, 3, 2) == [("A", 30), ("A", 40)]


def test_windows_exclude_failures_and_repairs(
    assembled: Make, rows: Rows, failures: Fail, ends_of: Ends
) -> None:
    records = assembled(rows("A", range(0, 100, 10)))
    timeline = build_timeline(records, failures(records, ("A", 30, 50)))
    assert ends_of(timeline, 3, 1) == [("A", 20), ("A", 70), ("A", 80), ("A", 90)]


# --- labels ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labels_of(minutes: Minutes) -> Callable[..., dict[float, int]]:
    """Return `labels_of(timeline, horizon_minutes)`: label by minute, windows of one record."""

    def of(timeline: Timeline, horizon: float) -> dict[float, int]:
        found = find_instances(
            timeline,
            window_records=RecordCount(1),
            step_records=RecordCount(1),
            horizon=Nanoseconds(round(horizon * MINUTE)),
        )
        return dict(zip(minutes(found.end), found.label.tolist(), strict=True))

    return of


Labels = Callable[..., dict[float, int]]


def test_horizon_excludes_window_end(
    assembled: Make, rows: Rows, failures: Fail, labels_of: Labels
) -> None:
    records = assembled(rows("A", range(0, 100, 10)))
    timeline = build_timeline(records, failures(records, ("A", 50)))
    assert labels_of(timeline, 20) == {0: 0, 10: 0, 20: 0, 30: 1, 40: 1}


def test_horizon_edges_are_exact(
    assembled: Make, rows: Rows, failures: Fail, labels_of: Labels
) -> None:
    records = assembled(rows("A", range(0, 100, 10)))
    nanosecond = 1 / MINUTE
    just_after = build_timeline(records, failures(records, ("A", 50 + nanosecond)))
    assert labels_of(just_after, 20) == {0: 0, 10: 0, 20: 0, 30: 0, 40: 1, 50: 1}
    just_before = build_timeline(records, failures(records, ("A", 50 - nanosecond)))
    assert labels_of(just_before, 20) == {0: 0, 10: 0, 20: 0, 30: 1, 40: 1}


def test_failure_at_window_end_does_not_count(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(rows("A", range(0, 50, 10)))
    timeline = build_timeline(records, failures(records, ("A", 40)))
    moment = records.time[4:5]
    assert label_instances(
        timeline, records.gpu[4:5], moment, Nanoseconds(100 * MINUTE)
    ).tolist() == [UNKNOWN]


def test_label_unknown_without_record_after_horizon(healthy: Timeline, labels_of: Labels) -> None:
    a = {end: one for end, one in labels_of(healthy, 20).items() if end % 10 == 0}
    assert a == {0: 0, 10: 0, 20: 0, 30: UNKNOWN, 40: UNKNOWN, 50: UNKNOWN}


def test_label_unknown_with_record_before_horizon_end(
    assembled: Make, rows: Rows, labels_of: Labels
) -> None:
    timeline = build_timeline(assembled(rows("A", [0, 10, 20, 29.9])), Failures.empty())
    assert labels_of(timeline, 20) == {0: 0, 10: UNKNOWN, 20: UNKNOWN, 29.9: UNKNOWN}


def test_gap_within_horizon_does_not_matter(assembled: Make, rows: Rows, labels_of: Labels) -> None:
    timeline = build_timeline(assembled(rows("A", [0, 10, 20, 500])), Failures.empty())
    assert labels_of(timeline, 60) == {0: 0, 10: 0, 20: 0, 500: UNKNOWN}


def test_failed_record_after_horizon_confirms_health(
    assembled: Make, rows: Rows, labels_of: Labels
) -> None:
    records = assembled(rows("A", range(0, 50, 10), failure=[0, 0, 0, 0, 1]))
    timeline = build_timeline(records, Failures.from_records(records))
    assert labels_of(timeline, 30) == {0: 0, 10: 1, 20: 1, 30: 1}


def test_vanished_then_failed_gpu_is_positive(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(rows("A", [0, 10, 20]) + rows("B", range(0, 90, 10)))
    timeline = build_timeline(records, failures(records, ("A", 70)))
    found = find_instances(
        timeline,
        window_records=RecordCount(1),
        step_records=RecordCount(1),
        horizon=HOUR,
    )
    assert found.label[:3].tolist() == [UNKNOWN, 1, 1]


def test_repeated_failures_both_label(
    assembled: Make, rows: Rows, failures: Fail, labels_of: Labels
) -> None:
    records = assembled(rows("A", range(0, 120, 10)))
    timeline = build_timeline(records, failures(records, ("A", 20, 40), ("A", 70, 80)))
    assert labels_of(timeline, 20) == {
        **{0: 1, 10: 1},
        **{40: 0, 50: 1, 60: 1},
        **{80: 0, 90: 0, 100: UNKNOWN, 110: UNKNOWN},
    }


def test_earlier_source_sets_failure_time(
    assembled: Make, rows: Rows, failures: Fail, labels_of: Labels
) -> None:
    records = assembled(rows("A", range(0, 80, 10), failure=[0] * 6 + [1, 1]))
    both = Failures.from_records(records).joined(failures(records, ("A", 38, None, 75)))
    assert labels_of(build_timeline(records, both), 10) == {0: 0, 10: 0, 20: 0, 30: 1}


def test_hours_to_next_failure(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(rows("A", range(0, 400, 10)) + rows("B", [0, 10]))
    timeline = build_timeline(records, failures(records, ("A", 90, 100), ("A", 150, 160)))
    gpu = np.array([0, 0, 0, 0, 1], dtype=np.int32)
    end = records.time[[0, 6, 10, 20, 40]]
    hours = hours_to_failure(timeline, gpu, end, Nanoseconds(100 * MINUTE))
    assert hours.tolist() == [1.5, 0.5, 50 / 60, math.inf, math.inf]


def test_gpu_without_records_has_unknown_label(
    assembled: Make, rows: Rows, at: Callable[[float], int]
) -> None:
    # A backtest labels the instances of an old window on records that start later.
    listed = rows("A", range(0, 50, 10)) + rows("B", range(0, 900, 10)) + rows("C", [0, 10])
    later = assembled(listed).between(at(400), at(900))
    timeline = build_timeline(later, Failures.empty())
    gpu, end = np.array([0, 2], dtype=np.int32), np.array([at(20), at(10)])
    assert label_instances(timeline, gpu, end, Nanoseconds(30 * MINUTE)).tolist() == [
        UNKNOWN,
        UNKNOWN,
    ]


# --- the list of today -------------------------------------------------------------------------


def test_latest_instance_of_every_gpu(
    assembled: Make, rows: Rows, failures: Fail, at: Callable[[float], int], minutes: Minutes
) -> None:
    records = assembled(
        rows("A", range(0, 100, 10))
        + rows("B", range(0, 60, 10))
        + rows("C", range(0, 80, 10))
        + rows("D", [70, 80])
    )
    timeline = build_timeline(records, failures(records, ("C", 75)))
    found = latest_instances(timeline, window_records=RecordCount(3), since=at(50))
    assert [records.serials[gpu] for gpu in found.gpu] == ["A", "B", "C"]
    assert minutes(found.end) == [90, 50, 70]
    assert found.label.tolist() == [UNKNOWN] * 3
    assert len(latest_instances(timeline, window_records=RecordCount(3), since=at(95))) == 0


# --- a part of them ----------------------------------------------------------------------------


def test_between_is_half_open(
    healthy: Timeline, at: Callable[[float], int], minutes: Minutes
) -> None:
    found = find_instances(
        healthy, window_records=RecordCount(3), step_records=RecordCount(1), horizon=MINUTE
    )
    part = found.between(at(20), at(40))
    assert minutes(part.end) == [20, 30, 25]
    assert len(part) == 3


def test_select_and_at_rows_keep_other_fields(healthy: Timeline) -> None:
    found = find_instances(
        healthy, window_records=RecordCount(3), step_records=RecordCount(1), horizon=MINUTE
    )
    part = found.select(np.array([4, 0]))
    assert part.row.tolist() == [found.row[4], found.row[0]]
    assert part.gpu.tolist() == [1, 0]
    moved = part.at_rows(np.array([7, 9]))
    assert moved.row.tolist() == [7, 9]
    assert (moved.gpu.tolist(), moved.end.tolist()) == (part.gpu.tolist(), part.end.tolist())


# --- brute force -------------------------------------------------------------------------------

Found = list[tuple[int, int]]  # minute and failure state of each row of one GPU
Spans = list[tuple[int, int | None, int]]  # times of failure, repair and report


@st.composite
def lives(draw: st.DrawFn) -> tuple[Found, Spans]:
    """Draw rows with jitter, gaps, duplicates and failures, and reported failures."""
    n = draw(st.integers(0, 24))
    there = draw(st.lists(st.sampled_from([1, 1, 1, 1, 1, 0]), min_size=n, max_size=n))
    found = []
    for i in (i for i in range(n) if there[i]):
        failed = draw(st.sampled_from([0] * 9 + [1]))
        time = 10 * i + draw(st.integers(-4, 4))
        found += [(time, failed)] * draw(st.sampled_from([1, 1, 1, 1, 2]))
    spans = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        failed = draw(st.integers(-20, 260))
        repaired = draw(st.none() | st.integers(failed + 1, failed + 60))
        spans.append((failed, repaired, draw(st.integers(failed - 10, failed + 60))))
    return draw(st.permutations(found)), spans


def _brute_records(found: Found) -> list[tuple[int, int, bool]]:
    """Return minute, failed and filled of the records of one GPU."""
    kept: list[tuple[int, int, bool]] = []
    for time, failed in sorted(dict(found).items()):
        steps = (2 * (time - kept[-1][0]) + 10) // 20 if kept else 1
        if steps == 2:
            kept.append((kept[-1][0] + 10, kept[-1][1], True))
        if steps or failed:
            kept.append((time, failed, False))
    return kept


def _brute_failures(
    records: list[tuple[int, int, bool]], spans: Spans
) -> list[tuple[float, float]]:
    """Return [failed, repaired) of both sources, merged if they overlap."""
    both = [(float(f), math.inf if r is None else float(r)) for f, r, _ in spans]
    real = [(time, failed) for time, failed, filled in records if not filled]
    for i, (time, failed) in enumerate(real):
        if failed and not (i and real[i - 1][1]):
            both.append((time, next((t for t, f in real[i:] if not f), math.inf)))
    merged: list[tuple[float, float]] = []
    for failed_at, repaired in sorted(both):
        if merged and failed_at <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], repaired))
        else:
            merged.append((failed_at, repaired))
    return merged


def _brute_instances(
    found: Found, spans: Spans, length: int, step: int, horizon: int
) -> list[tuple[float, int]]:
    """Return end and label of the instances of one GPU, following formats.md, section 1."""
    records = _brute_records(found)
    down = _brute_failures(records, spans)
    series: list[list[tuple[int, bool]]] = [[]]
    for time, failed, filled in records:
        if series[-1]:
            before = series[-1][-1][0]
            far = (2 * (time - before) + 10) // 20 > 1
            if far or any(before < moment <= time for span in down for moment in span):
                series.append([])
        if failed or any(f <= time < r for f, r in down):
            series.append([])
        else:
            series[-1].append((time, filled))
    ends = set()
    for one in series:
        for i in range(length - 1, len(one), step):
            ends |= {one[j][0] for j in (i, i + 1)[one[i][1] :][:1] if j < len(one)}
    last = max((time for time, _, filled in records if not filled), default=0)
    return [
        (
            end,
            1
            if any(end < f <= end + horizon for f, _ in down)
            else 0
            if last >= end + horizon
            else -1,
        )
        for end in sorted(ends)
    ]


REGULAR = [10 * i for i in range(90)]  # keeps the median spacing at one interval

fleets = st.tuples(lives(), lives(), lives())
cuts = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 80))


def _of_fleet(
    timeline: Timeline, minutes: Minutes, length: int, step: int, horizon: int
) -> list[tuple[str, float, int]]:
    found = find_instances(
        timeline,
        window_records=RecordCount(length),
        step_records=RecordCount(step),
        horizon=Nanoseconds(horizon * MINUTE),
    )
    serials = [timeline.records.serials[gpu] for gpu in found.gpu]
    all_of_them = zip(serials, minutes(found.end), found.label.tolist(), strict=True)
    return [one for one in all_of_them if one[0] != "Z"]


@given(fleets, cuts)
def test_instances_match_brute_force(
    assembled: Make,
    rows: Rows,
    failures: Fail,
    minutes: Minutes,
    fleet: tuple[tuple[Found, Spans], ...],
    cut: tuple[int, int, int],
) -> None:
    named = dict(zip("ABC", fleet, strict=True))
    listed = [
        one for s, (found, _) in named.items() for t, f in found for one in rows(s, [t], failure=f)
    ]
    # Of duplicates the last one in the file counts, here and in the plain loop.
    records = assembled(listed + rows("Z", REGULAR, failure=0))
    table = [
        (s, *span) for s, (_, spans) in named.items() if s in records.serials for span in spans
    ]
    known = Failures.from_records(records).joined(failures(records, *table))
    expected = [
        (serial, end, one)
        for serial, (found, spans) in named.items()
        for end, one in _brute_instances(found, spans, *cut)
    ]
    assert _of_fleet(build_timeline(records, known), minutes, *cut) == expected


@given(fleets, cuts, st.integers(0, 260))
def test_as_of_instances_match_brute_force(
    assembled: Make,
    rows: Rows,
    failures: Fail,
    minutes: Minutes,
    at: Callable[[float], int],
    fleet: tuple[tuple[Found, Spans], ...],
    cut: tuple[int, int, int],
    moment: int,
) -> None:
    named = dict(zip("ABC", fleet, strict=True))
    listed = [
        one for s, (found, _) in named.items() for t, f in found for one in rows(s, [t], failure=f)
    ]
    records = assembled(listed + rows("Z", REGULAR, failure=0))
    table = [
        (s, *span) for s, (_, spans) in named.items() if s in records.serials for span in spans
    ]
    known = (
        Failures.from_records(records).joined(failures(records, *table)).known_before(at(moment))
    )
    timeline = build_timeline(records.between(at(-100), at(moment)), known)
    expected = []
    for serial, (found, spans) in named.items():
        existed = [(time, failed) for time, failed in found if time < moment]
        told = [
            (f, r if r is not None and r < moment else None, k) for f, r, k in spans if k < moment
        ]
        expected += [(serial, *one) for one in _brute_instances(existed, told, *cut)]
    assert _of_fleet(timeline, minutes, *cut) == expected


def test_columns_have_equal_length() -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert len(Instances(empty, empty.astype(np.int32), empty, empty.astype(np.int8))) == 0
