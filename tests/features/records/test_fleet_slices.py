from __future__ import annotations

import numpy as np
import pytest

from forewarn.features.records.fleet_slices import MAX_SLICES, assign_slices

SERIALS = [f"GPU-{number:05}" for number in range(6400)]


def test_slices_have_similar_size() -> None:
    sizes = np.bincount(assign_slices(SERIALS), minlength=MAX_SLICES)
    assert sizes.sum() == len(SERIALS)
    assert 60 <= sizes.min() <= sizes.max() <= 140  # 100 plus or minus four standard deviations


def test_slice_depends_on_serial_only() -> None:
    assert assign_slices(SERIALS[::-1]).tolist() == assign_slices(SERIALS).tolist()[::-1]
    assert assign_slices(["é"]).tolist() == assign_slices(["x", "é"]).tolist()[1:]


@pytest.mark.parametrize("n", [1, 2, 5, 8, 64])
def test_coarse_slices_are_unions_of_fine_ones(n: int) -> None:
    pairs = sorted(
        set(zip(assign_slices(SERIALS).tolist(), assign_slices(SERIALS, n).tolist(), strict=True))
    )
    assert [finest for finest, _ in pairs] == list(
        range(MAX_SLICES)
    )  # each is in one coarser slice
    coarser = [coarse for _, coarse in pairs]
    assert coarser == sorted(coarser)
    assert set(coarser) == set(range(n))


@pytest.mark.parametrize("n", [0, 65])
def test_invalid_number_of_slices_is_rejected(n: int) -> None:
    with pytest.raises(ValueError, match=f"found {n} slices, expected 1 to 64"):
        assign_slices(SERIALS, n)


def test_no_gpus_have_no_slices() -> None:
    assert assign_slices([]).tolist() == []
