from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.evaluation.prediction.metrics.daily_list import Alerts, DayRows, raise_alerts
from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.time_units import DAY, HOUR

START = 20_000 * DAY
NEVER = float("inf")


def hours(*values: float) -> Int64Array:
    """Return times given in hours after a midnight."""
    return np.array([START + round(value * HOUR) for value in values], dtype=np.int64)


def fails(*values: float) -> Float64Array:
    return np.array([START + value * HOUR if value < NEVER else NEVER for value in values])


def day_rows(
    gpu: list[int],
    ends: Int64Array,
    fails_at: Float64Array,
    step: int = 2,
    unseen_from: int | None = None,
) -> list[tuple[int, int]]:
    """Return row and day, in days after the start, of all list entries without repetitions."""
    found = DayRows.from_instances(
        np.array(gpu), ends, fails_at, step=step * HOUR, day=DAY, unseen_from=unseen_from
    )
    return [
        (row, (day - START) // DAY)
        for row, day in zip(found.row.tolist(), found.day.tolist(), strict=True)
    ]


def test_instance_must_end_within_step_before_midnight() -> None:
    ends = hours(21.9, 22.0, 23.9)
    assert day_rows([0, 1, 2], ends, fails(NEVER, NEVER, NEVER)) == [(1, 1), (2, 1)]


def test_instance_ending_at_midnight_is_excluded() -> None:
    assert day_rows([0], hours(24.0), fails(NEVER)) == []
    assert day_rows([0], hours(24.0), fails(NEVER), step=24) == [(0, 2)]


def test_two_day_step_ranks_every_gpu_daily() -> None:
    # GPU 0 has instances at noon of days 0 and 2, GPU 1 of days 1 and 3. Each midnight lists both;
    # the first lists only GPU 0, because GPU 1 has no instance yet.
    gpu, ends = [0, 1, 0, 1], hours(12, 36, 60, 84)
    assert day_rows(gpu, ends, fails(*[NEVER] * 4), step=48) == [
        (0, 1), (0, 2), (1, 2), (2, 3), (1, 3), (2, 4), (3, 4), (3, 5),
    ]  # fmt: skip


def test_failed_gpu_leaves_lists_with_long_step() -> None:
    assert day_rows([0], hours(12), fails(30), step=72) == [(0, 1)]
    assert day_rows([0], hours(12), fails(50), step=72) == [(0, 1), (0, 2)]


def test_lists_after_first_untested_instance_are_excluded() -> None:
    gpu, ends = [0, 0, 0], hours(23, 47, 71)
    never = fails(NEVER, NEVER, NEVER)
    assert day_rows(gpu, ends, never, unseen_from=START + 48 * HOUR) == [(0, 1), (1, 2)]
    assert day_rows(gpu, ends, never, unseen_from=START + 48 * HOUR - 1) == [(0, 1)]


def test_newest_instance_per_gpu_and_day() -> None:
    gpu = [1, 0, 0, 1, 0]
    ends = hours(22.0, 23.5, 22.5, 46.5, 47.0)
    assert day_rows(gpu, ends, fails(*[NEVER] * 5)) == [(1, 1), (0, 1), (4, 2), (3, 2)]


def test_gpus_failed_by_midnight_are_excluded() -> None:
    ends = hours(23.0, 23.0, 23.0)
    assert day_rows([0, 1, 2], ends, fails(23.5, 24.0, 24.5)) == [(2, 1)]


def test_no_instances_no_lists() -> None:
    assert day_rows([], hours(), fails()) == []


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    rows = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 95)), max_size=60))
    return [gpu for gpu, _ in rows], [end for _, end in rows]


@given(instances(), st.integers(1, 80))
def test_day_rows_match_brute_force(case: tuple[list[int], list[int]], step: int) -> None:
    gpu, ends = case
    expected = []
    for day in range(1, 9):
        for number in sorted(set(gpu)):
            near = [
                (end, i)
                for i, (mine, end) in enumerate(zip(gpu, ends, strict=True))
                if mine == number and 24 * day - step <= end < 24 * day
            ]
            if near:
                expected.append((number, max(near)[0], day))
    found = day_rows(gpu, hours(*ends), fails(*[NEVER] * len(gpu)), step=step)
    assert [(gpu[row], ends[row], day) for row, day in found] == expected


def alerts(gpu: list[int], days: list[int], horizon: int = 24) -> list[tuple[int, int]]:
    """Return GPU and day of each alert."""
    n = len(gpu)
    found = raise_alerts(
        np.array(gpu, dtype=np.int64),
        hours(*[24 * day for day in days]),
        fails(*[NEVER] * n),
        horizon=horizon * HOUR,
    )
    return [
        (number, (moment - START) // DAY)
        for number, moment in zip(found.gpu.tolist(), found.raised_at.tolist(), strict=True)
    ]


def test_alert_lasts_for_horizon() -> None:
    assert alerts([7, 7, 7, 7], [1, 2, 3, 4], horizon=48) == [(7, 1), (7, 3)]
    assert alerts([7, 7, 7], [1, 2, 3], horizon=24) == [(7, 1), (7, 2), (7, 3)]
    assert alerts([7, 7, 7], [1, 2, 3], horizon=25) == [(7, 1), (7, 3)]


def test_gpus_have_their_own_alerts() -> None:
    assert alerts([1, 2, 1, 3], [1, 1, 2, 2], horizon=72) == [(1, 1), (2, 1), (3, 2)]


def test_empty_lists_raise_no_alerts() -> None:
    assert alerts([], []) == []


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), unique=True, max_size=40),
    st.integers(1, 120),
)
def test_alerts_cover_listed_days_without_overlap(
    listed: list[tuple[int, int]], horizon: int
) -> None:
    listed = sorted(listed)
    days, gpu = [day for day, _ in listed], [number for _, number in listed]
    raised = alerts(gpu, days, horizon)
    assert set(raised) <= set(zip(gpu, days, strict=True))
    for number in set(gpu):
        mine = [24 * day for one, day in raised if one == number]
        assert all(b - a >= horizon for a, b in pairwise(mine))
        for day in (day for day, one in listed if one == number):
            assert any(moment <= 24 * day < moment + horizon for moment in mine)


def test_caught_failure_counts_once_with_longest_lead() -> None:
    found = Alerts(np.array([4, 4, 4, 5]), hours(0, 24, 72, 24), fails(30, 30, 80, NEVER))
    caught = found.caught()
    assert {key: lead / HOUR for key, lead in caught.items()} == {
        (4, START + 30 * HOUR): pytest.approx(30),
        (4, START + 80 * HOUR): pytest.approx(8),
    }
