"""Sampled hours for the fit of residuals: every n-th hour with readings of both sensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.prediction import hourly_residuals
from forewarn.features.prediction.hourly_residuals import GpuTypes, SliceMeans

N_GPUS, N_HOURS = 6, 5
KNOWN = st.lists(st.booleans(), min_size=N_GPUS * N_HOURS, max_size=N_GPUS * N_HOURS)


def sampled(means: dict[str, Any], gpus: list[list[int]]) -> list[list[float]]:
    """Return x and y of the sampled hours, for GPUs in slices."""
    nothing: Any = None
    slices = [
        SliceMeans(
            nothing,
            np.array(gpu),
            unused_history(),
            {name: values[gpu] for name, values in means.items()},
        )
        for gpu in gpus
    ]
    x, y, group = hourly_residuals._sample_pairs(("y", "x"), slices, GpuTypes(None))
    assert (group == -1).all()
    return [x.tolist(), y.tolist()]


def unused_history() -> Any:
    """Return a placeholder; the history is not read with a single GPU type."""

    class History:
        grid = None

    return History()


@given(y_known=KNOWN, x_known=KNOWN, most=st.integers(1, 40), cut=st.integers(1, N_GPUS - 1))
def test_sample_does_not_depend_on_slices(
    y_known: list[bool], x_known: list[bool], most: int, cut: int
) -> None:
    number = np.arange(N_GPUS * N_HOURS, dtype=np.float32)
    known = np.array(y_known) & np.array(x_known)
    means = {
        "y": np.where(y_known, number, np.nan).reshape(N_GPUS, N_HOURS),
        "x": np.where(x_known, -number, np.inf).reshape(N_GPUS, N_HOURS),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hourly_residuals, "RESIDUAL_SAMPLE", most)
        whole = sampled(means, [[*range(N_GPUS)]])
        taken = number[known][:: max(1, int(known.sum()) // most)]
        assert whole == [(-taken).tolist(), taken.tolist()]
        order = [*range(cut, N_GPUS), *range(cut)]
        assert sampled(means, [order[:2], order[2:]]) == whole
