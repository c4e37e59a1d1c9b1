"""The choice of a training span from several finished windows, which are pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import interval, machine_draws

__all__ = ["Flagged", "steady_length"]

Span = TypeVar("Span", bound=int)  # of whatever unit


@dataclass(frozen=True, slots=True)
class Flagged:
    """The instances that a training span would have flagged in the windows that are pooled.

    Attributes
    ----------
    hit : ndarray of shape (n,), bool
        The instance was followed by a failure.
    machine : ndarray of shape (n,), int
        Number of its machine.
    """

    hit: npt.NDArray[np.bool_]
    machine: npt.NDArray[np.int64]

    @property
    def precision(self) -> float:
        """Share of hits; -1 where nothing is flagged, so that anything is better."""
        return float(self.hit.mean()) if len(self.hit) else -1.0

    def draws(self, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the precision of every draw of machines; NaN where none of the flagged is in."""
        weight = weights[:, self.machine]
        with np.errstate(invalid="ignore"):
            precision: npt.NDArray[np.float64]
            precision = (weight * self.hit).sum(axis=1) / weight.sum(axis=1)
        return precision


def steady_length(
    spans: Sequence[Span],
    in_use: Span,
    flagged: Mapping[Span, Flagged],
    *,
    n_machines: int,
    seed: int,
) -> Span:
    """Return the best training span, or that in use unless the gain exceeds its interval.

    Parameters
    ----------
    spans : sequence of Nanoseconds
        Candidates.
    in_use : Nanoseconds
    flagged : mapping of Nanoseconds to Flagged
        Of each candidate that was scored in all windows.
    n_machines, seed : int
        For drawing machines; all spans are compared on the same draws.

    Examples
    --------
    >>> few = {n: Flagged(np.array([n > 9, True]), np.array([0, 1])) for n in (9, 12)}
    >>> steady_length([9, 12], 9, few, n_machines=2, seed=0)  # two flags are no evidence
    9
    """
    compared = [span for span in spans if span in flagged]
    if not compared:
        return in_use
    best = max(compared, key=lambda span: (flagged[span].precision, -span))
    if in_use not in flagged or (not len(flagged[in_use].hit) and len(flagged[best].hit)):
        return best
    weights = machine_draws(n_machines, seed=seed)
    gain = interval(flagged[best].draws(weights) - flagged[in_use].draws(weights))
    return best if gain is not None and gain[0] > 0 else in_use
