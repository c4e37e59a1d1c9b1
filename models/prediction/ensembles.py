"""Ensembles: flags and ranks computed from the scores of several models.

A higher score always means a higher risk. `order` is an integer array of shape (n,) that ranks the
instances by serial, then window end: of two equal scores, the one with the lower `order` comes
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.models.prediction.builtin_rules import BASE_LOG_ODDS
from forewarn.models.prediction.linear.log_odds import logit, sigmoid
from forewarn.models.prediction.model_names import CASCADE_FIRST, LINEAR

__all__ = [
    "CASCADE_FIRST",
    "Committee",
    "cascade_flags",
    "parallel_flags",
    "top_k_count",
    "top_k_mask",
    "worst_rank",
]


def top_k_count(share: float, n: int) -> int:
    """Return max(1, round(`share` x `n`)) (docs/formats.md, section 3), halves rounded to even.

    >>> top_k_count(0.02, 100), top_k_count(0.02, 125), top_k_count(0.02, 10)
    (2, 2, 1)
    """
    return max(1, round(share * n))


def _ranks(scores: Float64Array, order: Int64Array) -> Int64Array:
    """Return distinct ranks from 1 for the highest score."""
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.lexsort((order, -scores))] = np.arange(1, len(scores) + 1)
    return ranks


def top_k_mask(scores: Float64Array, k: int, order: Int64Array) -> BoolArray:
    """Mark the `k` highest of n scores; all of them if n <= k.

    >>> top_k_mask(np.array([0.5, 0.9, 0.5]), 2, order=np.array([1, 2, 0])).tolist()
    [False, True, True]
    """
    if k < 1:
        raise ValueError(f"`k` must be at least 1, got {k}.")
    return _ranks(scores, order) <= k


def parallel_flags(scores: Mapping[str, Float64Array], k: int, order: Int64Array) -> BoolArray:
    """Mark the instances in the top `k` of every member (arXiv 2201.11853, parallel model)."""
    _check_members(scores)
    masks = np.stack([top_k_mask(member, k, order) for member in scores.values()])
    return np.asarray(masks.all(axis=0), dtype=np.bool_)


def _check_members(scores: Mapping[str, Float64Array]) -> None:
    if not scores:
        raise ValueError("`scores` must hold the scores of at least one member, got none.")


def cascade_flags(stages: Sequence[tuple[Float64Array, int]], order: Int64Array) -> BoolArray:
    """Mark the instances that pass every stage; each stage keeps its top k of the survivors.

    Parameters
    ----------
    stages : sequence of (scores of shape (n,), k)
        In order; k is a share of all n instances. With fewer than k survivors, all pass.
    order : ndarray of shape (n,)

    Examples
    --------
    >>> first, second = np.array([0.9, 0.8, 0.7, 0.1]), np.array([0.2, 0.3, 0.4, 0.9])
    >>> cascade_flags([(first, 3), (second, 1)], np.arange(4)).tolist()
    [False, False, True, False]
    """
    survives = np.ones(len(order), dtype=np.bool_)
    for scores, k in stages:
        survivors = np.flatnonzero(survives)
        survives[survivors] = top_k_mask(scores[survivors], k, order[survivors])
    return survives


def worst_rank(scores: Mapping[str, Float64Array], order: Int64Array) -> Int64Array:
    """Rank instances by their worst rank among the members; rank 1 is the highest risk.

    The first k ranks are the instances that `parallel_flags` flags with the smallest k. Ties go to
    the better mean rank of the members, then to the lower `order`.

    Returns
    -------
    ndarray of shape (n,), int64
        Distinct ranks from 1 to n.
    """
    _check_members(scores)
    ranks = np.stack([_ranks(member, order) for member in scores.values()])
    result = np.empty(len(order), dtype=np.int64)
    result[np.lexsort((order, ranks.sum(axis=0), ranks.max(axis=0)))] = np.arange(1, len(order) + 1)
    return result


@dataclass(frozen=True, slots=True)
class Committee:
    """Members and weights of the parallel and the cascade model (arXiv 2201.11853, ensembles).

    Attributes
    ----------
    parallel : tuple of str
        Names of the members.
    cascade : tuple of (str, float)
        Name and share of all instances kept, in order.
    rules : float
        Factor for the points of the built-in rules, which are added to the members' mean log odds
        in the score that ranks a list.
    linear : float
        Weight of the linear model in the score that ranks a list; the members share the rest.
    start : tuple of str
        Names of models of another site. Together they have the same weight as the members in the
        score that ranks a list; they are used nowhere else.
    """

    parallel: tuple[str, ...]
    cascade: tuple[tuple[str, float], ...]
    rules: float = 0.0
    start: tuple[str, ...] = ()
    linear: float = 0.0

    @classmethod
    def from_models(
        cls,
        models: Sequence[str],
        parallel: Sequence[str],
        cascade: Sequence[tuple[str, float]],
        rules: float = 0.0,
        linear: float = 0.0,
    ) -> Committee:
        """Return the configured ensembles, restricted to the models that are run.

        The cascade's first model is trained with its own loss and has its own score.
        """
        members = tuple(name for name in parallel if name in models) or tuple(models)
        stages = [(name, share) for name, share in cascade if name in models]
        stages = stages or [(models[0], cascade[-1][1])]
        cascade_run = ((CASCADE_FIRST, stages[0][1]), *stages[1:])
        return cls(members, cascade_run, rules, linear=linear)

    @property
    def votes(self) -> dict[str, float]:
        """Share of each model in the score that ranks a list, without zeros; they sum to 1.

        Examples
        --------
        >>> Committee(("cnn", "gbdt", "linear"), (), linear=0.25).votes
        {'cnn': 0.25, 'gbdt': 0.25, 'linear': 0.5}
        """
        votes = dict.fromkeys(self.parallel, (1.0 - self.linear) / len(self.parallel))
        votes[LINEAR] = votes.get(LINEAR, 0.0) + self.linear
        if self.start:
            theirs = dict.fromkeys(self.start, 0.5 / len(self.start))
            votes = {name: vote / 2.0 for name, vote in votes.items()} | theirs
        return {name: vote for name, vote in votes.items() if vote}

    def blend(
        self, scores: Mapping[str, Float64Array], *, without: str | None = None
    ) -> Float64Array:
        """Return the score that ranks a list, of shape (n,), in (0, 1).

        It is the mean log odds of the members and the linear model, plus the points of the rules.
        Rules contribute knowledge about events before any failure was observed; models learn the
        weight of those events at a site. The errors of the linear model differ from those of the
        other models.

        Parameters
        ----------
        scores : mapping of ndarray of shape (n,)
            Scores of all models with a vote and, where they have a factor, of `rules`.
        without : str, optional
            A model whose vote goes to the others.

        Raises
        ------
        ValueError
            If no other model has a vote.
        """
        votes = {name: vote for name, vote in self.votes.items() if name != without}
        if not votes:
            raise ValueError(f"`without` must leave a model with a vote, got {without!r}.")
        log_odds = [vote * logit(scores[name]) for name, vote in votes.items()]
        blended: Float64Array = np.sum(log_odds, axis=0) / sum(votes.values())
        if self.rules:
            points = np.maximum(logit(scores["rules"]) - BASE_LOG_ODDS, 0.0)
            blended = blended + self.rules * points
        return sigmoid(blended)

    def flags(
        self, method: str, scores: Mapping[str, Float64Array], k: float, order: Int64Array
    ) -> BoolArray:
        """Mark the instances that a method flags among n instances of one test set or list.

        Parameters
        ----------
        method : str
            `parallel`: in the top K of every member. `cascade`: passes every stage. Otherwise the
            name of a score, whose top K is flagged.
        scores : mapping of ndarray of shape (n,)
        k : float
            Share of the n instances that a score flags. A cascade has its own shares.
        order : ndarray of shape (n,)
            Tie-breaker: lower first.
        """
        n = len(order)
        if method == "parallel":
            members = {name: scores[name] for name in self.parallel}
            return parallel_flags(members, top_k_count(k, n), order)
        if method == "cascade":
            stages = [(scores[name], top_k_count(share, n)) for name, share in self.cascade]
            return cascade_flags(stages, order)
        return top_k_mask(scores[method], top_k_count(k, n), order)

    def ranks(
        self, method: str, scores: Mapping[str, Float64Array], order: Int64Array
    ) -> Int64Array:
        """Rank n instances by a method (see `flags`); rank 1 is the highest risk.

        The parallel model ranks by the worst rank among its members. The cascade ranks by the
        number of stages passed, then by the score of the next stage.
        """
        if method == "parallel":
            return worst_rank({name: scores[name] for name in self.parallel}, order)
        if method == "cascade":
            return self._rank_cascade(scores, order)
        return _ranked(np.lexsort((order, -scores[method])))

    def _rank_cascade(self, scores: Mapping[str, Float64Array], order: Int64Array) -> Int64Array:
        n = len(order)
        passed = np.zeros(n, dtype=np.int64)
        standing = np.zeros(n)
        for stage, (name, share) in enumerate(self.cascade):
            alive = np.flatnonzero(passed == stage)
            standing[alive] = scores[name][alive]
            best = alive[np.lexsort((order[alive], -standing[alive]))[: top_k_count(share, n)]]
            passed[best] = stage + 1
        return _ranked(np.lexsort((order, -standing, -passed)))


def _ranked(best_first: Int64Array) -> Int64Array:
    ranks = np.empty(len(best_first), dtype=np.int64)
    ranks[best_first] = np.arange(1, len(best_first) + 1)
    return ranks
