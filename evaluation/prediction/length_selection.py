"""Which training length to take when several finished windows are pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import interval, machine_draws

__all__ = ["Flagged", "steady_length"]


@dataclass(frozen=True, slots=True)
class Flagged:
    """What a length would have flagged in the windows that are pooled.

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
        mine = weights[:, self.machine]
        with np.errstate(invalid="ignore"):
            found: npt.NDArray[np.float64] = (mine * self.hit).sum(axis=1) / mine.sum(axis=1)
        return found


def steady_length(
    lengths: Sequence[int],
    current: int,
    flagged: Mapping[int, Flagged],
    *,
    n_machines: int,
    seed: int,
) -> int:
    """Return the best length, or the current one unless the gain exceeds its interval.

    Parameters
    ----------
    lengths : sequence of int
        Candidates.
    current : int
        In use.
    flagged : mapping of int to Flagged
        Of each candidate that was scored in all windows.
    n_machines, seed : int
        For drawing machines; all lengths are compared on the same draws.

    Examples
    --------
    >>> few = {n: Flagged(np.array([n > 9, True]), np.array([0, 1])) for n in (9, 12)}
    >>> steady_length([9, 12], 9, few, n_machines=2, seed=0)  # two flags are no evidence
    9
    """
    compared = [length for length in lengths if length in flagged]
    if not compared:
        return current
    best = max(compared, key=lambda length: (flagged[length].precision, -length))
    if current not in flagged or (not len(flagged[current].hit) and len(flagged[best].hit)):
        return best
    weights = machine_draws(n_machines, seed=seed)
    gain = interval(flagged[best].draws(weights) - flagged[current].draws(weights))
    return best if gain is not None and gain[0] > 0 else current
