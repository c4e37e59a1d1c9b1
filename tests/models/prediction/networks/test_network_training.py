from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import DAY, HOUR
from forewarn.models.prediction.networks.network_training import split_by_time

moments = st.lists(st.integers(0, 40 * DAY), min_size=1, max_size=60)
shares = st.floats(0.01, 0.99)
purges = st.integers(0, 10 * DAY)


def test_split_by_hand() -> None:
    ends = np.arange(11) * DAY
    early, late = split_by_time(ends, 0.2, DAY)
    assert np.flatnonzero(early).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert np.flatnonzero(late).tolist() == [8, 9, 10]


def test_share_refers_to_time_span() -> None:
    ends = np.array([0] * 90 + [100])
    _, late = split_by_time(ends, 0.2, 0)
    assert late.sum() == 1


@given(moments, shares, purges)
def test_early_part_ends_one_purge_before_late(
    moments: list[int], share: float, purge: int
) -> None:
    ends = np.array(moments, dtype=np.int64)
    early, late = split_by_time(ends, share, purge)
    assert not (early & late).any()
    assert late[ends == ends.max()].all()
    if early.any():
        assert ends[early].max() + purge <= ends[late].min()


@given(moments, shares, purges)
def test_excluded_instances_lie_between_parts(moments: list[int], share: float, purge: int) -> None:
    ends = np.array(moments, dtype=np.int64)
    early, late = split_by_time(ends, share, purge)
    begin = ends.max() - (ends.max() - ends.min()) * share
    between = ends[~early & ~late]
    assert (between < begin + 1).all()
    assert (between > begin - purge - 1).all()


@given(st.permutations(list(range(12))), shares)
def test_instance_order_does_not_matter(order: list[int], share: float) -> None:
    ends = np.arange(12, dtype=np.int64) * HOUR
    early, late = split_by_time(ends, share, 2 * HOUR)
    shuffled = split_by_time(ends[order], share, 2 * HOUR)
    assert np.array_equal(shuffled[0], early[order])
    assert np.array_equal(shuffled[1], late[order])


def test_no_instances_give_empty_parts() -> None:
    early, late = split_by_time(np.array([], dtype=np.int64), 0.2, HOUR)
    assert (early.size, late.size) == (0, 0)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="`share` must lie between 0 and 1, got"):
        split_by_time(np.array([0, 1]), share, 0)


def test_negative_purge_is_refused() -> None:
    with pytest.raises(ValueError, match="`purge` must be at least 0 nanoseconds, got -1"):
        split_by_time(np.array([0, 1]), 0.2, -1)
