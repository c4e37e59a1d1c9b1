from __future__ import annotations

import numpy as np
import pytest

from forewarn.features.records.times_as_read import TimesAsRead

SECOND = 10**9


@pytest.mark.parametrize("odd", [1_500_000_000, -SECOND, 2**31 * SECOND])
def test_times_that_32_bits_cannot_hold_are_kept_whole(odd: int) -> None:
    times = TimesAsRead(3)
    times.put(slice(0, 2), np.array([SECOND, 5 * SECOND]))
    times.put(slice(2, 3), np.array([odd]))
    values, unit = times.counted_for(60 * SECOND)
    assert (values.tolist(), unit) == ([SECOND, 5 * SECOND, odd], 1)


def test_an_interval_of_half_a_second_is_counted_in_nanoseconds() -> None:
    times = TimesAsRead(1)
    times.put(slice(0, 1), np.array([3 * SECOND]))
    assert times.counted_for(2 * SECOND)[1] == SECOND
    values, unit = times.counted_for(SECOND // 2)
    assert (values.tolist(), unit) == ([3 * SECOND], 1)
