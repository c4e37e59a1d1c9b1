"""What each model adds to the blend that ranks the list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.prediction.metrics.paired_differences import PairedDifference
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.evaluation.prediction.metrics.window_average_precision import (
    WindowAveragePrecision,
    average_precision_by_set,
    average_precision_of_scores,
    mean_draws,
)

__all__ = ["BlendWorth", "MemberWorth", "averages_without", "blend_worth", "measured_blend"]

_BLEND = "blend"
Averages = Mapping[str, WindowAveragePrecision]


@dataclass(frozen=True, slots=True)
class MemberWorth:
    """What a model with a vote in the blend adds to it, in average precision at true prevalence.

    Attributes
    ----------
    vote : float
        Share of the vote.
    average_precision : float or None
        Of the model alone; None without failures.
    added : PairedDifference or None
        Blend minus the blend of the other models; None for the only model.
    ahead : PairedDifference or None
        Blend minus the model alone.
    """

    vote: float
    average_precision: float | None
    added: PairedDifference | None
    ahead: PairedDifference | None


@dataclass(frozen=True, slots=True)
class BlendWorth:
    """The average precision of the blend, and what each model adds to it.

    Attributes
    ----------
    average_precision : float or None
    members : mapping of str to MemberWorth
    """

    average_precision: float | None
    members: Mapping[str, MemberWorth]

    @property
    def sufficient(self) -> str | None:
        """The best model, if the blend is not better by the interval of the difference."""
        ranked = sorted(
            (member.average_precision, name)
            for name, member in self.members.items()
            if member.average_precision is not None
        )
        if len(ranked) < 2:
            return None
        best = ranked[-1][1]
        ahead = self.members[best].ahead
        return best if ahead is not None and ahead.verdict != "better" else None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return asdict(self) | {"sufficient": self.sufficient}


def averages_without(table: ScoreTable) -> dict[str, WindowAveragePrecision]:
    """Return the average precision of the blend without each of its models, on all rows.

    Empty if the blend has one model, or if the table lacks scores of some.
    """
    committee, sets = table.protocol.committee, [rows for _, rows in table.windows]
    votes = committee.votes
    if len(votes) < 2 or not sets or not {_BLEND, *votes} <= set(table.scores):
        return {}
    return {
        name: average_precision_of_scores(table, committee.blend(table.scores, without=name), sets)
        for name in votes
    }


def blend_worth(
    votes: Mapping[str, float], averages: Averages, without: Averages
) -> BlendWorth | None:
    """Return what each model adds to the blend; None if its scores are unknown.

    Parameters
    ----------
    votes : mapping of str to float
        Share of each model (`Committee.votes`).
    averages : mapping of str to WindowAveragePrecision
        By method, among them `blend` and the models.
    without : mapping of str to WindowAveragePrecision
        Of the blend without each model (`averages_without`).
    """
    if not {_BLEND, *votes} <= set(averages):
        return None
    blended = averages[_BLEND]
    members = {
        name: MemberWorth(
            vote,
            averages[name].mean,
            _difference(blended, without[name]) if name in without else None,
            _difference(blended, averages[name]),
        )
        for name, vote in votes.items()
    }
    return BlendWorth(blended.mean, members)


def measured_blend(table: ScoreTable) -> BlendWorth | None:
    """Return what each model adds to the blend on the rows of a table; None without failures."""
    votes, sets = table.protocol.committee.votes, [rows for _, rows in table.windows]
    if not sets:
        return None
    averages = {
        name: average_precision_by_set(table, name, sets)
        for name in (_BLEND, *votes)
        if name in table.scores
    }
    return blend_worth(votes, averages, averages_without(table))


def _difference(
    blended: WindowAveragePrecision, other: WindowAveragePrecision
) -> PairedDifference | None:
    value, theirs = blended.mean, other.mean
    if value is None or theirs is None:
        return None
    draws = mean_draws(blended.draws) - mean_draws(other.draws)
    return PairedDifference(value - theirs, percentile_interval(draws))
