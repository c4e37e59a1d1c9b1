"""The two committees of the paper: which models decide together, what they flag, how they rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.models.prediction.ensembles import (
    cascade_flags,
    parallel_flags,
    top_k_count,
    top_k_mask,
    worst_rank,
)

__all__ = ["CASCADE_FIRST", "Committee"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
CASCADE_FIRST = "cascade_first"


@dataclass(frozen=True, slots=True)
class Committee:
    """Which scores make the parallel and the cascade model (arXiv 2201.11853, ensembles).

    Attributes
    ----------
    parallel : tuple of str
        Names of the members.
    cascade : tuple of (str, float)
        Name and share of all instances kept, in order.
    """

    parallel: tuple[str, ...]
    cascade: tuple[tuple[str, float], ...]

    @classmethod
    def of_models(
        cls,
        models: Sequence[str],
        parallel: Sequence[str],
        cascade: Sequence[tuple[str, float]],
    ) -> Committee:
        """Return the configured ensembles, as far as their members are run.

        The cascade's first model is trained with a loss of its own, and so has its own score.
        """
        members = tuple(name for name in parallel if name in models) or tuple(models)
        stages = [(name, share) for name, share in cascade if name in models]
        stages = stages or [(models[0], cascade[-1][1])]
        return cls(members, ((CASCADE_FIRST, stages[0][1]), *stages[1:]))

    def flags(self, method: str, scores: Mapping[str, Floats], k: float, order: Ints) -> Flags:
        """Mark what a method flags of n instances, one test set or one list.

        Parameters
        ----------
        method : str
            `parallel`: what every member has among its top K; `cascade`: what passes every
            stage; else the name of a score: its top K.
        scores : mapping of ndarray of shape (n,)
        k : float
            Share of the n instances that a score flags. A cascade has its own.
        order : ndarray of shape (n,)
            Breaks ties: the lower one first.
        """
        n = len(order)
        if method == "parallel":
            members = {name: scores[name] for name in self.parallel}
            return parallel_flags(members, top_k_count(k, n), order)
        if method == "cascade":
            stages = [(scores[name], top_k_count(share, n)) for name, share in self.cascade]
            return cascade_flags(stages, order)
        return top_k_mask(scores[method], top_k_count(k, n), order)

    def ranks(self, method: str, scores: Mapping[str, Floats], order: Ints) -> Ints:
        """Rank n instances by a method (see `flags`); 1 is the most at risk.

        The parallel model ranks by the worst of its members' ranks, the cascade by how many
        stages are passed, then by the score of the stage that is next.
        """
        if method == "parallel":
            return worst_rank({name: scores[name] for name in self.parallel}, order)
        if method == "cascade":
            return self._rank_cascade(scores, order)
        return _ranked(np.lexsort((order, -scores[method])))

    def _rank_cascade(self, scores: Mapping[str, Floats], order: Ints) -> Ints:
        n = len(order)
        passed = np.zeros(n, dtype=np.int64)
        standing = np.zeros(n)
        for stage, (name, share) in enumerate(self.cascade):
            alive = np.flatnonzero(passed == stage)
            standing[alive] = scores[name][alive]
            best = alive[np.lexsort((order[alive], -standing[alive]))[: top_k_count(share, n)]]
            passed[best] = stage + 1
        return _ranked(np.lexsort((order, -standing, -passed)))


def _ranked(best_first: Ints) -> Ints:
    ranks = np.empty(len(best_first), dtype=np.int64)
    ranks[best_first] = np.arange(1, len(best_first) + 1)
    return ranks
