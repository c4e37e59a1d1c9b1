from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forewarn.features.records.few_hours import FewHours

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6))
SUMS = hnp.arrays(np.float64, SHAPES, elements=st.sampled_from([0.0, 0.0, 0.1, 3.0]))


@given(SUMS, st.randoms(use_true_random=False))
def test_gpus_have_the_numbers_that_they_had(
    hourly: npt.NDArray[np.float64], random: object
) -> None:
    few = FewHours.of(hourly)
    assert len(few.cell) == np.count_nonzero(hourly)
    gpus = random.choices(range(len(hourly)), k=4)  # type: ignore[attr-defined]
    assert np.array_equal(few.of_gpus(gpus), hourly[gpus])


def test_arrays_that_lie_hour_after_hour_are_kept_alike() -> None:
    hourly = np.array([[0, 2], [5, 0], [0, 0]], dtype=np.int32).T
    few = FewHours.of(hourly)
    assert few.of_gpus([1]).tolist() == [[2, 0, 0]]
    assert few.value.dtype == np.int32
