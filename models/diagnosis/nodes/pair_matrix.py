"""Tests of pairs of nodes, summarised as one value per pair."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array

__all__ = ["PairMatrix", "PairTest", "build_matrix"]


@dataclass(frozen=True, slots=True)
class PairTest:
    """A test of two nodes, from `a` to `b` if the direction matters.

    Attributes
    ----------
    a, b : str
    bandwidth : float or None
        In any unit, over 0; None if the test failed.
    """

    a: str
    b: str
    bandwidth: float | None


@dataclass(frozen=True, slots=True)
class PairMatrix:
    """Symmetric tables of the pairs.

    Attributes
    ----------
    nodes : tuple of str
    logs : Float64Array
        Log bandwidth of the slower direction; NaN where there is none.
    failed : BoolArray
        Pairs where at least half of the tests of a direction failed.
    """

    nodes: tuple[str, ...]
    logs: Float64Array
    failed: BoolArray

    @property
    def tested(self) -> BoolArray:
        """Pairs with a result."""
        return np.isfinite(self.logs) | self.failed


def build_matrix(nodes: Sequence[str], tests: Sequence[PairTest]) -> PairMatrix:
    """Return the median of each direction of each pair, then the slower direction.

    Parameters
    ----------
    nodes : sequence of str
        Those of the tests, and others that were not tested.
    tests : sequence of PairTest
    """
    index = {node: number for number, node in enumerate(nodes)}
    directions: dict[tuple[int, int], list[float | None]] = {}
    for test in tests:
        directions.setdefault((index[test.a], index[test.b]), []).append(test.bandwidth)
    logs = np.full((len(index), len(index)), np.nan)
    failed = np.zeros(logs.shape, dtype=bool)
    for pair, values in directions.items():
        passed = [value for value in values if value is not None]
        if 2 * len(passed) <= len(values):
            failed[pair] = True
        else:
            logs[pair] = math.log(statistics.median(passed))
    logs, failed = np.fmin(logs, logs.T), failed | failed.T
    logs[failed] = np.nan
    return PairMatrix(tuple(index), logs, failed)
