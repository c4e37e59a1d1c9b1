"""Stretches of rows that have no hour in common: those of days, mostly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.placed_rows import DayByDay

N_HOURS = 10
SPANS = st.lists(
    st.tuples(st.integers(0, N_HOURS - 1), st.integers(0, 3), st.integers(1, 4)), max_size=12
)


@given(SPANS, st.integers(1, 20))
def test_stretches_share_no_hour_and_hold_all_rows(
    runs: list[tuple[int, int, int]], least: int
) -> None:
    first = np.array([run[0] for run in runs], dtype=np.int64)
    last = np.minimum(first + np.array([run[1] for run in runs], dtype=np.int64), N_HOURS - 1)
    n_rows = np.array([run[2] for run in runs], dtype=np.int64)
    row, end = np.cumsum(n_rows) - n_rows, int(n_rows.sum())
    days, run = DayByDay.of_runs(row, first, last, N_HOURS, end)
    assert days.begin == [*row[run[:-1]].tolist(), *([end] if runs else [])]
    for stretches in (days, days.of_least(least)):
        assert len(stretches.hours) == max(0, len(stretches.begin) - 1)
        assert stretches.begin[:1] + stretches.begin[-1:] == ([0, end] if runs else [])
        for number, (low, high) in enumerate(stretches.hours):
            inside = (row >= stretches.begin[number]) & (row < stretches.begin[number + 1])
            assert low <= first[inside].min()
            assert last[inside].max() < high
        ends = [high for _, high in stretches.hours]
        assert [low for low, _ in stretches.hours[1:]] == ends[:-1]
    sizes = np.diff(days.of_least(least).begin)
    assert (sizes[:-1] >= least).all()


def test_days_of_two_gpus_are_parted_and_late_rows_keep_a_day_open() -> None:
    row, day = np.array([0, 4, 8, 12]), np.array([0, 0, 1, 1])
    days, _ = DayByDay.of_runs(row, 24 * day, 24 * day + 23, 48, end=16)
    assert days.hours == [(0, 24), (24, 48)]
    late = np.array([0, 0, 1, 0])
    days, _ = DayByDay.of_runs(row, 24 * late, 24 * late + 23, 48, end=16)
    assert days.hours == [(0, 48)]
