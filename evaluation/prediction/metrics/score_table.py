"""Score tables as arrays, and the protocol of their evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from forewarn.evaluation.bootstrap import bootstrap_weights
from forewarn.evaluation.prediction.metrics.daily_list import DayRows
from forewarn.features.array_types import BoolArray, Float64Array, Int8Array, Int64Array
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.models.prediction.ensembles import Committee, top_k_count
from forewarn.models.prediction.reliability import Judged, LabelledProbabilities

__all__ = ["ENSEMBLES", "EvaluationProtocol", "ScoreTable"]

ENSEMBLES = ("parallel", "cascade")


@dataclass(frozen=True, slots=True)
class EvaluationProtocol:
    """Rules for evaluating scores.

    Attributes
    ----------
    committee : Committee
    k : float
        Share of the sampled instances of a window that a method flags.
    threshold : float
        Score from which an instance counts as positive in the accuracy.
    share : float
        Share of the fleet on a daily list.
    step, horizon : Nanoseconds
        Between two instances of a GPU, and after an instance.
    seed : int
    """

    committee: Committee
    k: float
    threshold: float
    share: float
    step: Nanoseconds
    horizon: Nanoseconds
    seed: int


@dataclass(frozen=True)
class ScoreTable:
    """A table of scores (docs/formats.md, section 3) as arrays, by test window, serial and end.

    Serials and machines are numbered by name. If they are ordered categories, they are numbered by
    category, whether or not all categories occur in the table.

    Attributes
    ----------
    frame : DataFrame
    protocol : EvaluationProtocol
    unseen_from : int or None
        First end of an instance that is missing because its horizon exceeds the records.
    """

    frame: pd.DataFrame
    protocol: EvaluationProtocol
    unseen_from: int | None = None

    @cached_property
    def labels(self) -> Int8Array:
        """Labels of all rows."""
        return self.frame["label"].to_numpy(dtype=np.int8)

    @cached_property
    def scores(self) -> dict[str, Float64Array]:
        """Scores of all rows by name."""
        names = [name for name in self.frame.columns if name.startswith("score_")]
        return {name.removeprefix("score_"): self.frame[name].to_numpy(float) for name in names}

    @cached_property
    def window(self) -> Int64Array:
        """Start of the test window of each row."""
        return _nanoseconds(self.frame["test_window"])

    @cached_property
    def end(self) -> Int64Array:
        """End of each instance."""
        return _nanoseconds(self.frame["window_end"])

    @cached_property
    def gpu(self) -> Int64Array:
        """Number of each row's GPU, in the order of serials."""
        return _numbers(self.frame["gpu_serial"])

    @cached_property
    def machine(self) -> Int64Array:
        """Number of each row's machine, or GPU where machines are unknown."""
        if "machine_id" not in self.frame:
            return self.gpu
        return _numbers(self.frame["machine_id"])

    @cached_property
    def draws(self) -> Float64Array:
        """Bootstrap draws of machines, for intervals."""
        names = self.frame["machine_id" if "machine_id" in self.frame else "gpu_serial"]
        n = len(names.cat.categories) if _is_ordered(names) else int(self.machine.max()) + 1
        return bootstrap_weights(n, seed=self.protocol.seed)

    @cached_property
    def windows(self) -> list[tuple[int, Int64Array]]:
        """Start and rows of every test window that has positives."""
        starts = np.unique(self.window)
        rows = [(int(start), np.flatnonzero(self.window == start)) for start in starts]
        return [(start, members) for start, members in rows if (self.labels[members] == 1).any()]

    @cached_property
    def sampled(self) -> BoolArray:
        """Rows of the 1:8 test set."""
        return self.frame["sampled"].to_numpy(bool)

    @cached_property
    def fails_at(self) -> Float64Array:
        """Time of the GPU's next failure; inf if not within the horizon.

        It is computed exactly in nanoseconds before conversion to float, so one failure has the
        same time for all of its instances.
        """
        hours = self.frame["hours_to_failure"].to_numpy(float)
        fails = np.isfinite(hours)
        ahead = np.round(np.where(fails, hours, 0.0) * HOUR).astype(np.int64)
        return np.where(fails, (self.end + ahead).astype(np.float64), np.inf)

    @cached_property
    def days(self) -> DayRows:
        """The GPUs that can be on each daily list."""
        return DayRows.from_instances(
            self.gpu,
            self.end,
            self.fails_at,
            step=self.protocol.step,
            day=DAY,
            unseen_from=self.unseen_from,
        )

    @cached_property
    def failures(self) -> set[tuple[int, float]]:
        """The failures (GPU, time) for the evaluation of daily lists.

        Failures whose last list is left out are left out as well, because fewer lists could catch
        them.
        """
        positive = self.labels == 1
        if self.unseen_from is not None:
            last_list = (np.ceil(self.fails_at / DAY) - 1.0) * DAY
            positive &= last_list <= self.unseen_from
        return set(zip(self.gpu[positive].tolist(), self.fails_at[positive].tolist(), strict=True))

    @property
    def judged(self) -> Judged:
        """Probabilities, labels and machines of rows with fitted probabilities.

        These are the rows of windows after the first finished one; empty without probabilities.
        """
        if "probability" not in self.frame:
            return []
        fitted = np.ones(len(self.frame), dtype=bool)
        if "calibrated" in self.frame:
            fitted = self.frame["calibrated"].to_numpy(bool)
        probabilities = self.frame["probability"].to_numpy(float)
        return [
            LabelledProbabilities(probabilities[fitted], self.labels[fitted], self.machine[fitted])
        ]

    @property
    def evaluated_rows(self) -> Int64Array:
        """The rows of the test sets and daily lists, in ascending order.

        A table of these rows alone has the same test sets, lists and failures.
        """
        return np.union1d(np.flatnonzero(self.sampled), self.days.row)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of all methods: the scores, then the ensembles."""
        return (*self.scores, *ENSEMBLES)

    def flags(self, method: str, rows: Int64Array) -> BoolArray:
        """Return which of the `rows` of one test set a method flags."""
        scores, order = self._ordered_scores(rows)
        return self.protocol.committee.flags(method, scores, self.protocol.k, order)

    def ranks(self, method: str, rows: Int64Array) -> Int64Array:
        """Return the rank of each of the `rows` by a method; 1 is the highest risk."""
        return self.protocol.committee.ranks(method, *self._ordered_scores(rows))

    def listed(self, method: str) -> Int64Array:
        """Return which rows of `days` are on the daily lists of a method, in order of time."""
        listed = []
        for moment in np.unique(self.days.day).tolist():
            of_day = np.flatnonzero(self.days.day == moment)
            size = top_k_count(self.protocol.share, len(of_day))
            listed.append(of_day[self.ranks(method, self.days.row[of_day]) <= size])
        return np.concatenate(listed) if listed else np.zeros(0, dtype=np.int64)

    def _ordered_scores(self, rows: Int64Array) -> tuple[dict[str, Float64Array], Int64Array]:
        """Return the scores of `rows`, and their order by serial and end."""
        scores = {name: values[rows] for name, values in self.scores.items()}
        return scores, np.lexsort((self.end[rows], self.gpu[rows])).argsort()


def _numbers(names: pd.Series[Any]) -> Int64Array:
    """Return the number of each name in their order."""
    if not isinstance(names.dtype, pd.CategoricalDtype):
        return np.unique(names.astype(str), return_inverse=True)[1]
    codes = names.cat.codes.to_numpy()
    if _is_ordered(names):
        return codes.astype(np.int64)
    texts = names.cat.categories.astype(str).to_numpy()
    present = np.unique(codes)
    number = np.zeros(len(texts), dtype=np.int64)
    number[present] = np.unique(texts[present], return_inverse=True)[1]
    return np.asarray(number[codes])


def _is_ordered(names: pd.Series[Any]) -> bool:
    return isinstance(names.dtype, pd.CategoricalDtype) and bool(names.dtype.ordered)


def _nanoseconds(moments: pd.Series[Any]) -> Int64Array:
    return np.asarray(moments.dt.as_unit("ns").astype("int64"))
