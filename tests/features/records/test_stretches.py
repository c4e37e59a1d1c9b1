from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.stretches import Stretch

VALUES = st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.5, np.nan]), min_size=1, max_size=12)
LOW = 5


@given(VALUES, st.data())
def test_rows_are_numbered_as_they_are_read(values: list[float], data: st.DataObject) -> None:
    whole = Stretch(LOW, np.array(values, dtype=np.float32))
    inside = st.integers(LOW, whole.high)
    low, high = sorted(data.draw(st.tuples(inside, inside)))
    part = whole.between(low, high)
    assert (part.low, part.high) == (low, high)
    rows = np.arange(low, high)
    assert part.at(rows).tobytes() == whole.at(rows).tobytes() == whole.values[rows - LOW].tobytes()
    assert part.rows_not_zero().tolist() == [row for row in rows if values[row - LOW] != 0]
    assert part.mapped(np.negative).at(rows).tobytes() == (-part.values).tobytes()


@pytest.mark.parametrize("writeable", [True, False])
def test_values_that_may_not_be_written_to_stay_as_they_are(writeable: bool) -> None:
    values = np.ones(3, dtype=np.float32)
    values.flags.writeable = writeable
    without = Stretch(LOW, values).without(np.array([LOW + 1]))
    assert without.values.tolist() == pytest.approx([1, np.nan, 1], nan_ok=True)
    assert np.isnan(values).any() == writeable
