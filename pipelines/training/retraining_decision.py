"""The decision that a retraining comes to: written down before anything is done about it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from forewarn.evaluation.prediction.metrics.backtest_metrics import ChampionComparison

__all__ = ["RetrainingDecision", "RetrainingOutcome"]


@dataclass(frozen=True, slots=True)
class RetrainingOutcome:
    """The outcome of a retraining.

    Attributes
    ----------
    version : str
        Number of the registered predictor.
    name : str
        `Predictor.version`.
    length_days : float
        Training length that was chosen.
    promoted : bool
    reasons : tuple of str
        Why not.
    comparison : Comparison or None
    champion : str or None
        Number of the champion now.
    run : str
        Of MLflow.
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
        """Return it as JSON holds it."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class RetrainingDecision:
    """The outcome of a retraining, and what is left to be done about it.

    It is written down before anything is done, so that a process that is killed in between can be
    followed by another one that does the same.

    Attributes
    ----------
    outcome : Retrained
    over : str or None
        Number of the champion that the challenger was compared with.
    alerts : tuple of (str, str)
        What, and text.
    """

    outcome: RetrainingOutcome
    over: str | None
    alerts: tuple[tuple[str, str], ...]

    def as_text(self) -> str:
        """Return it as a tag holds it."""
        return json.dumps(self.outcome.as_dict() | {"over": self.over, "alerts": self.alerts})

    @classmethod
    def from_text(cls, text: str) -> RetrainingDecision:
        """Read a tag; an older version wrote neither `over` nor `alerts`."""
        stored = json.loads(text)
        over = stored.pop("over", stored["champion"])
        alerts = tuple((what, message) for what, message in stored.pop("alerts", ()))
        return cls(_recorded(stored), over, alerts)


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
