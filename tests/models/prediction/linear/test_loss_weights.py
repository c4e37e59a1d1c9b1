from __future__ import annotations

import numpy as np
import pytest

from forewarn.models.prediction.linear.loss_weights import loss_weights

LABELS = np.array([1, 0, 0, 0], dtype=np.int8)


def test_positives_weigh_more_with_unit_mean() -> None:
    weighted = loss_weights(LABELS, np.ones(4, dtype=np.float32), 5.0)
    assert weighted.tolist() == [2.5, 0.5, 0.5, 0.5]


def test_weight_scale_does_not_matter() -> None:
    weights = np.array([1.0, 2.0, 3.0, 4.0], dtype=np.float32)
    once, thousandfold = (loss_weights(LABELS, weights * unit, 2.0) for unit in (1, 1000))
    assert np.allclose(once, thousandfold)


def test_relative_weights_are_kept() -> None:
    weighted = loss_weights(LABELS, np.array([1, 1, 1, 3], dtype=np.float32), 1.0)
    assert np.allclose(weighted, [2 / 3, 2 / 3, 2 / 3, 2])


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_single_class_is_refused(labels: list[int]) -> None:
    with pytest.raises(ValueError, match="`labels` must hold 0 and 1 with weight, got"):
        loss_weights(np.array(labels, dtype=np.int8), np.ones(4, dtype=np.float32), 1.0)


def test_positives_without_weight_are_refused() -> None:
    with pytest.raises(ValueError, match="got 1 positives among 4 instances"):
        loss_weights(LABELS, np.array([0, 1, 1, 1], dtype=np.float32), 1.0)


def test_zero_positive_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="`positive_weight` must be positive, got 0"):
        loss_weights(LABELS, np.ones(4, dtype=np.float32), 0.0)
