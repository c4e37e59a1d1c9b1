"""The decision of a retraining, recorded before it is carried out."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from forewarn.evaluation.prediction.metrics.backtest_metrics import ChampionComparison
from forewarn.pipelines.rendering.templates import plural

__all__ = ["RetrainingDecision", "RetrainingOutcome"]


@dataclass(frozen=True, slots=True)
class RetrainingOutcome:
    """Outcome of a retraining.

    Attributes
    ----------
    version : str
        Number of the registered predictor.
    name : str
        `Predictor.version`.
    length_days : float
        Chosen training length.
    promoted : bool
    reasons : tuple of str
        Reasons for a refusal.
    comparison : ChampionComparison or None
    champion : str or None
        Number of the current champion.
    run : str
        MLflow run.
    """

    version: str
    name: str
    length_days: float
    promoted: bool
    reasons: tuple[str, ...]
    comparison: ChampionComparison | None
    champion: str | None
    run: str

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return dataclasses.asdict(self)

    def describe(self, over: str | None) -> str:
        """Return the result in sentences, for MLflow.

        Parameters
        ----------
        over : str or None
            Number of the version that was the champion before.
        """
        text = f"Version {self.version} ({self.name}), trained on {self.length_days:.3g} days, "
        if self.promoted:
            replaced = f", in place of version {over}" if over not in (None, self.version) else ""
            text += f"became the champion{replaced}."
        else:
            stays = "the built-in rules stay" if over is None else f"version {over} stays"
            text += f"was refused, {stays}: {'; '.join(self.reasons)}."
        return text if self.comparison is None else f"{text} {_compared_text(self.comparison)}"


@dataclass(frozen=True, slots=True)
class RetrainingDecision:
    """Outcome of a retraining, and the actions that follow from it.

    It is recorded first, so that another process can complete it if this one is killed.

    Attributes
    ----------
    outcome : RetrainingOutcome
    over : str or None
        Number of the champion that the challenger was compared with.
    alerts : tuple of (str, str)
        Kind and text.
    """

    outcome: RetrainingOutcome
    over: str | None
    alerts: tuple[tuple[str, str], ...]

    def as_text(self) -> str:
        """Return the text of a tag."""
        return json.dumps(self.outcome.as_dict() | {"over": self.over, "alerts": self.alerts})

    @classmethod
    def from_text(cls, text: str) -> RetrainingDecision:
        """Parse the text of a tag; older versions wrote neither `over` nor `alerts`."""
        stored = json.loads(text)
        over = stored.pop("over", stored["champion"])
        alerts = tuple((what, message) for what, message in stored.pop("alerts", ()))
        return cls(_recorded(stored), over, alerts)


def _compared_text(comparison: ChampionComparison) -> str:
    rival = "the built-in rules" if comparison.by_rules else "the champion"
    low, high = comparison.interval or (None, None)
    interval = "" if low is None else f" [{low:+.3f}, {high:+.3f}]"
    return (
        f"Average precision on {plural(comparison.windows, 'finished window')}: "
        f"{comparison.challenger:.3f}, of {rival} {comparison.champion:.3f}, "
        f"difference {comparison.difference:+.3f}{interval}."
    )


def _recorded(stored: dict[str, Any]) -> RetrainingOutcome:
    comparison = stored.pop("comparison")
    if comparison is not None:
        pairs = {
            name: comparison[name] and tuple(comparison[name])
            for name in ("interval", "list_precision")
        }
        comparison = ChampionComparison(**{**comparison, **pairs})
    reasons = tuple(stored.pop("reasons"))
    return RetrainingOutcome(**stored, reasons=reasons, comparison=comparison)
