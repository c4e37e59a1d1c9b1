from __future__ import annotations

import numpy as np
import pytest

from forewarn.models.prediction.linear.row_batches import row_batches, score_in_batches


@pytest.mark.parametrize("n", [0, 1, 16_384, 40_000])
def test_batch_scores_keep_row_order(n: int) -> None:
    values = np.arange(n, dtype=np.float64)
    assert score_in_batches(lambda rows: values[rows] / 2, n).tolist() == (values / 2).tolist()


def test_batches_are_disjoint_and_bounded() -> None:
    parts = [np.arange(40_000)[rows] for rows in row_batches(40_000)]
    assert np.concatenate(parts).tolist() == list(range(40_000))
    assert max(map(len, parts)) == 16_384
