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
    "drain": "an immediate drain",
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
    calibration : MonitoredCalibration, optional
        Calibration of past lists; None without past lists with probabilities.
    """

    share: float
    costs: ActionCosts | None = None
    calibration: MonitoredCalibration | None = None

    def choose(
        self, probability: Float64Array, suspected: BoolArray | None = None
    ) -> FlaggingResult:
        """Choose GPUs of a ranking.

        Parameters
        ----------
        probability : ndarray of shape (n,)
            In rank order; NaN if unknown.
        suspected : ndarray of shape (n,), optional
            GPUs that rules speak against; only these can be listed. None: all.
        """
        n = len(probability)
        listed = np.arange(n) < (top_k_count(self.share, n) if n else 0)
        if suspected is not None:
            listed &= suspected
        priced = self.costs is not None and bool(np.isfinite(probability).any())
        if self.costs is not None and priced:
            listed &= self.costs.pays_off(probability)
        flagged = listed & (np.arange(n) < np.ceil(self._length * listed.sum()))
        action = np.full(n, "", dtype=object)
        if self.costs is not None and priced:
            action[flagged] = self.costs.action_for(probability[flagged])
        sentences = [
            _unsuspected_text(suspected),
            self._cost_text(probability, listed, priced),
            self._calibration_text(n),
        ]
        return FlaggingResult(listed, flagged, action, tuple(text for text in sentences if text))

    @property
    def _length(self) -> float:
        return 1.0 if self.calibration is None else self.calibration.length

    def _cost_text(self, probability: Float64Array, listed: BoolArray, priced: bool) -> str:
        """Return why the list is empty, or that costs could not be used."""
        if self.costs is None or not len(probability):
            return ""
        if not priced:
            return "No probability is known, so action costs are not used."
        if listed.any():
            return ""
        return (
            "No action pays off today: the highest probability is "
            f"{chance_text(float(np.nanmax(probability)))}, and the cheapest action pays off above "
            f"{chance_text(self.costs.break_even)}."
        )

    def _calibration_text(self, n: int) -> str:
        """Return whether past lists were calibrated."""
        calibration = self.calibration
        if calibration is None or not n:
            return ""
        if calibration.state == CalibrationState.UNKNOWN:
            return (
                "It is not known yet whether the probabilities are calibrated: "
                f"{plural(calibration.judged, 'past alert')} with a known outcome, "
                f"{MIN_LABELLED_ALERTS} are needed."
            )
        past = (
            f"of {plural(calibration.judged, 'past alert')}, {chance_text(calibration.predicted)} "
            f"were expected to fail and {chance_text(calibration.precision)} did"
        )
        if calibration.state == CalibrationState.BROKEN:
            return self._miscalibration_text(calibration)
        if not calibration.changes:
            return f"The probabilities are calibrated: {past}."
        since = f": since then, {past}" if calibration.judged else ""
        text = f"The probabilities were not calibrated but have recovered{since}."
        if calibration.length == 1.0:
            return text
        return f"{text} Only the first {100 * calibration.length:.0f} % of the list is flagged."

    def _miscalibration_text(self, calibration: MonitoredCalibration) -> str:
        """Return why past lists were not calibrated, the alerts since then, and what to do."""
        why = "".join(
            f": of {plural(by.alerts, 'past alert')} in a row, {amount(by.expected, 1)} were "
            f"expected to fail and {count(by.hits)} did"
            for by in calibration.changes[-1:]
        )
        since = ""
        if calibration.predicted is not None:
            since = (
                f" Since then, of {count(calibration.judged)} more, "
                f"{amount(calibration.predicted * calibration.judged, 1)} were expected to fail "
                f"and {count(calibration.hits)} did."
            )
        return (
            f"Recent probabilities were not calibrated{why}.{since} No GPU is flagged. The ranking "
            "is still monitored, so that flags can return. Retrain."
        )

    def summary(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "share": self.share,
            "costs": None if self.costs is None else self.costs.to_dict(),
            "break_even": None if self.costs is None else self.costs.break_even,
            "promise": None if self.calibration is None else self.calibration.to_dict(),
        }


def _unsuspected_text(suspected: BoolArray | None) -> str:
    """Return how many GPUs a list by rules leaves out, because it cannot rank them."""
    if suspected is None or suspected.all():
        return ""
    n = int((~suspected).sum())
    return f"No rule speaks against {plural(n, 'GPU')}, so their order means nothing."
