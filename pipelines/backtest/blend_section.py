"""What each model adds to the blend and what intersecting adds, as sentences and rows."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.evaluation.prediction.metrics.intersection_worth import IntersectionWorth
from forewarn.evaluation.prediction.metrics.member_worth import BlendWorth
from forewarn.evaluation.prediction.metrics.paired_differences import PairedDifference
from forewarn.pipelines.backtest.report_results import Estimate, Method
from forewarn.pipelines.rendering.templates import amount, count, per_hundred, plural

__all__ = ["MemberRow", "blend_text", "intersection_text", "member_rows"]

_MEANINGS = {
    "better": "earns its vote",
    "worse": "lowers the blend",
    "not distinguishable": "no difference shows",
    "not comparable": "no interval",
}


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A model with a vote: its average precision alone, and what it adds to the others."""

    label: str
    vote: float
    average_precision: float | None
    added: Estimate
    meaning: str


def member_rows(worth: BlendWorth | None) -> list[MemberRow]:
    """Return a row for each model with a vote, what adds most first."""
    if worth is None:
        return []
    rows = [
        MemberRow(
            _label(name),
            member.vote,
            member.average_precision,
            _estimate(member.added),
            "only model" if member.added is None else _MEANINGS[member.added.verdict],
        )
        for name, member in worth.members.items()
    ]
    return sorted(rows, key=lambda row: -(row.added.value or 0.0))


def blend_text(worth: BlendWorth | None) -> list[str]:
    """Return which models earn their vote, and whether one of them would do."""
    rows = member_rows(worth)
    if worth is None or len(rows) < 2:
        return []
    votes = ", ".join(
        f"{row.label} {per_hundred(row.vote)} %: {row.meaning}{_interval(row.added)}"
        for row in rows
    )
    lines = [
        f"Average precision of the blend: {amount(worth.average_precision)}. Models, their vote, "
        f"and what each adds to the others: {votes}."
    ]
    if worth.sufficient is not None:
        ahead = _estimate(worth.members[worth.sufficient].ahead)
        lines.append(
            f"One model would do: the blend is not better than {_label(worth.sufficient)} alone"
            f"{_interval(ahead)}."
        )
    return lines


def intersection_text(worth: IntersectionWorth | None) -> list[str]:
    """Return whether the parallel model is better than equally short lists; empty if unknown."""
    if worth is None:
        return []
    groups: dict[str, list[str]] = {}
    for name, difference in worth.same_length.items():
        text = f"{_label(name)}{_interval(_estimate(difference))}"
        groups.setdefault(difference.verdict, []).append(text)
    compared = "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in groups.items())
    return [
        f"The intersection flags {count(worth.flagged)} of the {count(worth.allowed)} instances "
        f"that each member may flag, on {plural(worth.gpus, 'GPU')}. Compared with lists of its "
        f"length, it is {compared}."
    ]


def _label(name: str) -> str:
    return Method(name, "").label


def _estimate(difference: PairedDifference | None) -> Estimate:
    if difference is None:
        return Estimate(None)
    return Estimate(difference.difference, *(difference.interval or (None, None)))


def _interval(figure: Estimate) -> str:
    """Format a difference with its interval in parentheses."""
    if figure.value is None:
        return ""
    text = f" ({figure.value:+.3f}"
    if figure.low is None or figure.high is None:
        return f"{text})"
    return f"{text}, interval {figure.low:+.3f} to {figure.high:+.3f})"
