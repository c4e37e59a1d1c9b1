from __future__ import annotations

import numpy as np
import pytest

from forewarn.features.prediction.model_inputs import InstanceValues, ModelInputs


@pytest.fixture
def inputs() -> ModelInputs:
    sequence = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    context = np.arange(12, dtype=np.uint8).reshape(4, 3)
    return ModelInputs(sequence, context, ("a", "b"), ("c", "d", "e"), (30, 30), (12, 12, 12))


def test_length_is_number_of_instances(inputs: ModelInputs) -> None:
    sequence = np.zeros((5, 3, 2), dtype=np.float32)
    context = np.zeros((5, 4), dtype=np.float32)
    values = InstanceValues(sequence, context, ("a", "b"), tuple("cdef"))
    assert len(inputs) == 4
    assert len(values) == 5


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        (np.array([2, 0, 2]), [2, 0, 2]),
        (np.array([False, True, True, False]), [1, 2]),
        (slice(1, 3), [1, 2]),
        (np.zeros(0, dtype=np.int64), []),
    ],
)
def test_select_keeps_requested_order(
    rows: np.ndarray | slice, kept: list[int], inputs: ModelInputs
) -> None:
    part = inputs.select(rows)
    assert part.sequence.tolist() == [inputs.sequence[i].tolist() for i in kept]
    assert part.context.tolist() == [inputs.context[i].tolist() for i in kept]
    assert len(part) == len(kept)


def test_select_keeps_names_and_levels(inputs: ModelInputs) -> None:
    part = inputs.select(slice(0, 1))
    assert (part.sequence_names, part.context_names) == (("a", "b"), ("c", "d", "e"))
    assert (part.sequence_levels, part.context_levels) == ((30, 30), (12, 12, 12))
    assert len(inputs) == 4
