"""Criteria for flagging GPUs: share of the fleet, action costs and calibration of past lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.evaluation.prediction.metrics.calibration_monitor import (
    MIN_LABELLED_ALERTS,
    CalibrationState,
    MonitoredCalibration,
)
from forewarn.features.array_types import BoolArray, Float64Array
from forewarn.models.prediction.ensembles import top_k_count
from forewarn.pipelines.rendering.templates import amount, chance_text, count, plural

__all__ = ["ACTION_WORDS", "FlaggingCriteria", "FlaggingResult"]

ACTION_WORDS = {
    "avoid": "no new long job",
    "check": "an inspection when it is idle",
    "move": "moving its job at the next stop",
    "drain": "a drain at once",
}


@dataclass(frozen=True, slots=True)
class FlaggingResult:
    """Listed and flagged GPUs of a ranking, and their actions.

    Attributes
    ----------
    listed, flagged : ndarray of shape (n,), bool
    action : ndarray of shape (n,)
        Empty without an action or without costs.
    sentences : tuple of str
        Notes for the reader; the first explains an empty list.
    """

    listed: BoolArray
    flagged: BoolArray
    action: npt.NDArray[np.object_]
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlaggingCriteria:
    """Criteria of a site.

    Attributes
    ----------
    share : float
        Maximum share of the fleet.
    costs : ActionCosts, optional
        Without costs, the length of the list is the share.
    promise : MonitoredCalibration, optional
        Calibration of past lists; None without past lists with probabilities.
    """

    share: float
    costs: ActionCosts | None = None
    promise: MonitoredCalibration | None = None

    def choose(self, probability: Float64Array) -> FlaggingResult:
        """Choose GPUs given probabilities in rank order; NaN if unknown."""
        n = len(probability)
        listed = np.arange(n) < (top_k_count(self.share, n) if n else 0)
        priced = self.costs is not None and bool(np.isfinite(probability).any())
        if self.costs is not None and priced:
            listed &= self.costs.pays(probability)
        flagged = listed & (np.arange(n) < np.ceil(self._length * listed.sum()))
        action = np.full(n, "", dtype=object)
        if self.costs is not None and priced:
            action[flagged] = self.costs.action_for(probability[flagged])
        sentences = [self._price_words(probability, listed, priced), self._promise_words(n)]
        return FlaggingResult(listed, flagged, action, tuple(text for text in sentences if text))

    @property
    def _length(self) -> float:
        return 1.0 if self.promise is None else self.promise.length

    def _price_words(self, probability: Float64Array, listed: BoolArray, priced: bool) -> str:
        """Return why the list is empty, or that costs could not be used."""
        if self.costs is None or not len(probability):
            return ""
        if not priced:
            return "No chance is known, so the prices of actions are not used."
        if listed.any():
            return ""
        return (
            "Nothing is worth an action today: the highest chance is "
            f"{chance_text(float(np.nanmax(probability)))}, and the cheapest action pays from "
            f"{chance_text(self.costs.break_even)} on."
        )

    def _promise_words(self, n: int) -> str:
        """Return whether past lists were calibrated."""
        promise = self.promise
        if promise is None or not n:
            return ""
        if promise.state == CalibrationState.UNKNOWN:
            return (
                f"Cannot tell yet whether the chances hold: {plural(promise.judged, 'alert')} of "
                f"past lists {'is' if promise.judged == 1 else 'are'} judged, "
                f"{MIN_LABELLED_ALERTS} are needed."
            )
        past = (
            f"{plural(promise.judged, 'past alert')} {'is' if promise.judged == 1 else 'are'} "
            f"judged, {chance_text(promise.promised)} of them were to fail and "
            f"{chance_text(promise.precision)} did"
        )
        if promise.state == CalibrationState.BROKEN:
            return self._broken_words(promise)
        if not promise.changes:
            return f"The chances hold: {past}."
        since = f": since then {past}" if promise.judged else ""
        text = f"The promise was broken, and the ranking has earned its way back{since}."
        if promise.length == 1.0:
            return text
        return f"{text} Only the first {100 * promise.length:.0f} % of the list call for action."

    def _broken_words(self, promise: MonitoredCalibration) -> str:
        """Return why past lists were not calibrated, the alerts since then, and what to do."""
        why = "".join(
            f": of {plural(by.alerts, 'past alert')} in a row {amount(by.expected, 1)} were to "
            f"fail, and {count(by.hits)} did"
            for by in promise.changes[-1:]
        )
        since = ""
        if promise.promised is not None:
            since = (
                f" Since then, of {count(promise.judged)} more "
                f"{amount(promise.promised * promise.judged, 1)} were to fail, and "
                f"{count(promise.hits)} did."
            )
        return (
            f"The promise is broken{why}.{since} No GPU is flagged for action; the ranking is made "
            "and judged on, so that it can earn its way back. Train anew."
        )

    def summary(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "share": self.share,
            "costs": None if self.costs is None else self.costs.to_dict(),
            "break_even": None if self.costs is None else self.costs.break_even,
            "promise": None if self.promise is None else self.promise.to_dict(),
        }
