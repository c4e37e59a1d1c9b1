"""Why a GPU is on the list, in words: the feature, its value and unit, what is usual."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.history import span_name
from forewarn.features.prediction.inputs import InstanceValues
from forewarn.features.prediction.plan import Plan
from forewarn.features.time_units import Nanoseconds
from forewarn.features.xid_severity import severity
from forewarn.pipelines.at_risk.reason_phrases import RECORD, Reading, channel_of, in_words

__all__ = ["reasons_of"]

Floats = npt.NDArray[np.float64]

_MOST = 3
_LEAST_SHARE = 0.05


def reasons_of(
    values: InstanceValues,
    contributions: Mapping[str, Floats],
    plan: Plan,
    group: npt.NDArray[np.int64],
) -> list[str]:
    """Say for each of n GPUs which channels speak most for a failure.

    Parameters
    ----------
    values : InstanceValues of n instances
    contributions : mapping of ndarray of shape (n,)
        How much each feature speaks for a failure, in log odds, by its name.
    plan : Plan
    group : ndarray of shape (n,)
        Peers: whose median of a feature counts as usual.

    Returns
    -------
    list of str
        At most three reasons each, the strongest first, separated by "; ".
    """
    names = tuple(contributions)
    if not names or not len(values):
        return [""] * len(values)
    table = np.stack([contributions[name] for name in names], axis=1)
    channels = np.array([channel_of(name) for name in names])
    distinct = sorted(set(channels.tolist()))
    summed = np.stack([table[:, channels == channel].sum(axis=1) for channel in distinct], axis=1)
    readings = _Readings(values, plan, group)
    total = np.maximum(np.where(summed > 0, summed, 0.0).sum(axis=1), 1e-9)
    phrases = []
    for i in range(len(values)):
        reasons = []
        for position in np.argsort(-summed[i], kind="stable")[:_MOST]:
            if summed[i, position] > _LEAST_SHARE * total[i]:
                members = np.flatnonzero(channels == distinct[position])
                reasons.append(readings.phrase(i, names[members[np.argmax(table[i, members])]]))
        phrases.append("; ".join(dict.fromkeys(reasons)))
    return phrases


class _Readings:
    """Values of features by name, and the medians of the peers."""

    def __init__(self, values: InstanceValues, plan: Plan, group: npt.NDArray[np.int64]) -> None:
        self._values, self._plan, self._group = values, plan, group
        self._columns: dict[str, npt.NDArray[np.float32]] = {}
        self._usual: dict[str, dict[int, float]] = {}

    def phrase(self, row: int, feature: str) -> str:
        """Return the words for one feature of one instance."""
        record = RECORD.fullmatch(feature)
        name = record[1] if record else feature
        kind = self._kind(name) if record else ""
        column = self._column(name, kind)
        usual = self._medians(name, column)[int(self._group[row])]
        never = self._never(name, float(column[row]))
        window = span_name(self._plan.window)
        return never or in_words(Reading(name, kind, float(column[row]), usual, window))

    def _never(self, name: str, value: float) -> str:
        """Return the words for a time since that is as long as what was looked at."""
        kind = name.split(":")[0]
        if kind not in ("since", "window_since"):
            return ""
        times = max(self._plan.history, default=1) if kind == "since" else 1
        span = Nanoseconds(times * self._plan.window)
        return f"no {channel_of(name)} within {span_name(span)}" if value >= span / 3.6e12 else ""

    def _kind(self, name: str) -> str:
        """Return how the window of a channel is summed up: gained, seen or last."""
        if name in self._plan.kinds.counter:
            return "gained"
        return "seen" if name in self._plan.kinds.code else "last"

    def _column(self, name: str, kind: str) -> npt.NDArray[np.float32]:
        if name not in self._columns:
            self._columns[name] = self._read(name, kind)
        return self._columns[name]

    def _read(self, name: str, kind: str) -> npt.NDArray[np.float32]:
        if not kind:
            return self._values.context[:, self._values.context_names.index(name)]
        window = self._values.sequence[..., self._values.sequence_names.index(name)]
        if kind == "gained":
            nothing = np.isnan(window).all(axis=1)
            return np.where(nothing, np.float32(np.nan), np.nansum(window, axis=1))
        if kind == "last":
            return np.asarray(window[:, -1])
        gravest = np.argmax(severity(window) * 1e4 + window, axis=1)
        return np.asarray(window[np.arange(len(window)), gravest])

    def _medians(self, name: str, column: npt.NDArray[np.float32]) -> dict[int, float]:
        if name not in self._usual:
            self._usual[name] = {
                int(number): _median(column[self._group == number])
                for number in np.unique(self._group)
            }
        return self._usual[name]


def _median(values: npt.NDArray[np.float32]) -> float:
    finite_values = values[np.isfinite(values)]
    return float(np.median(finite_values)) if len(finite_values) else float("nan")
