"""What is measured of an instance: its window, its category, its past, its peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.failures import NEVER
from forewarn.features.inputs import InstanceValues
from forewarn.features.instances import Instances
from forewarn.features.past import Past
from forewarn.features.records import DAY, MACHINE, SLOT, FeatureKinds
from forewarn.features.residuals import ResidualFit
from forewarn.features.threads import in_threads
from forewarn.features.timeline import Timeline
from forewarn.features.xid import severity

__all__ = ["Measures", "Plan"]

FloatArray = npt.NDArray[np.float32]
Hourly = npt.NDArray[np.float64]

_XID = "xid"
_MOST_CATEGORIES = 32
_MOST_CODES = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """What the configuration asks to be measured.

    Attributes
    ----------
    kinds : FeatureKinds
    length : int
        Records in a window.
    interval : int
        Nanoseconds between two records.
    history : tuple of int
        Spans of the past beside the window, in window lengths.
    peers : tuple of str
        Text columns; a GPU is compared with the others of the same text.
    residuals : tuple of (str, str)
        Float columns: the first given the second.
    """

    kinds: FeatureKinds
    length: int
    interval: int
    history: tuple[int, ...] = ()
    peers: tuple[str, ...] = ()
    residuals: tuple[tuple[str, str], ...] = ()

    @property
    def window(self) -> int:
        """Nanoseconds that a window lasts."""
        return self.length * self.interval

    @property
    def reach(self) -> int:
        """Nanoseconds before the end of an instance that must be read to measure it."""
        longest = max((1, *self.history)) * self.window
        return longest + self.window + DAY

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        kinds = {name: list(getattr(self.kinds, name)) for name in FeatureKinds.__slots__}
        saved: dict[str, Any] = {"kinds": kinds, "length": self.length, "interval": self.interval}
        saved |= {"history": list(self.history), "peers": list(self.peers)}
        return saved | {"residuals": [list(pair) for pair in self.residuals]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave."""
        return cls(
            kinds=FeatureKinds(
                **{name: tuple(columns) for name, columns in saved["kinds"].items()}
            ),
            length=saved["length"],
            interval=saved["interval"],
            history=tuple(saved["history"]),
            peers=tuple(saved["peers"]),
            residuals=tuple((y, x) for y, x in saved["residuals"]),
        )


@dataclass(frozen=True, slots=True)
class Measures:
    """A plan fitted to training records: which categories and codes there are, what is expected.

    Attributes
    ----------
    plan : Plan
    categories : dict of tuple of str
        Texts of each categorical column that have a column of their own.
    codes : dict of tuple of int
        The most frequent codes of each event column.
    residuals : tuple of ResidualFit
        One for each pair of the plan.
    """

    plan: Plan
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    codes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    residuals: tuple[ResidualFit, ...] = ()

    @classmethod
    def fit(cls, plan: Plan, timeline: Timeline, instances: Instances) -> Self:
        """Fit to training instances and to the records of the timeline, which end before t."""
        categories = {
            name: _frequent_texts(timeline, name, instances) for name in plan.kinds.categorical
        }
        codes = {name: _frequent_codes(timeline, name) for name in plan.kinds.code}
        unfitted = cls(plan, categories, codes)
        return cls(plan, categories, codes, unfitted._fit_residuals(timeline))

    def _fit_residuals(self, timeline: Timeline) -> tuple[ResidualFit, ...]:
        if not self.plan.residuals:
            return ()
        grid = timeline.grid
        group, n_groups = self._types(timeline)
        grid.keep({name for pair in self.plan.residuals for name in pair})

        def fit(pair: tuple[str, str]) -> ResidualFit:
            y, x = (grid.sums(name, name).mean().ravel() for name in pair)
            return ResidualFit.fit(x, y, group, n_groups)

        return tuple(in_threads(fit, self.plan.residuals))

    def left_over(self, timeline: Timeline, pair: int) -> Hourly:
        """Return the hourly means of a pair's y less what its x lets expect.

        Parameters
        ----------
        timeline : Timeline
        pair : int
            Its number in the plan.

        Returns
        -------
        ndarray of shape (n_gpus, n_hours)
            NaN where either is missing.
        """
        y, x = self.plan.residuals[pair]
        found, given = (timeline.grid.sums(name, name).mean() for name in (y, x))
        expected = self.residuals[pair].expected(given.ravel(), self._types(timeline)[0])
        return np.asarray(found - expected.reshape(found.shape))

    def _types(self, timeline: Timeline) -> tuple[npt.NDArray[np.int64], int]:
        """Return per cell of the grid the type of its GPU (its first categorical), and how many."""
        grid = timeline.grid
        if not self.plan.kinds.categorical:
            return np.full(grid.size, -1, dtype=np.int64), 0
        name = self.plan.kinds.categorical[0]
        place = {text: i for i, text in enumerate(self.categories[name])}
        texts = timeline.records.texts[name].texts
        number = np.array([*(place.get(text, -1) for text in texts), -1], dtype=np.int64)
        return number[grid.group_of(name).ravel()], len(place)

    def values(self, timeline: Timeline, instances: Instances) -> InstanceValues:
        """Measure the chosen instances.

        Parameters
        ----------
        timeline : Timeline
            Reaches `plan.reach` back before the first instance.
        instances : Instances
            n of that timeline.
        """
        sequence, names = self._sequence(timeline, instances)
        context = dict(self._context(timeline, instances, sequence, names))
        columns = list(context.values())
        table = np.array(columns, dtype=np.float32).reshape(len(columns), len(instances)).T
        return InstanceValues(sequence, table, names, tuple(context))

    def _sequence(
        self, timeline: Timeline, instances: Instances
    ) -> tuple[FloatArray, tuple[str, ...]]:
        """Gather the windows, shape (n, length, n_channels)."""
        kinds = self.plan.kinds
        names = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code)
        rows = instances.row[:, None] + np.arange(1 - self.plan.length, 1)
        records, as_read = timeline.records, timeline.records.order[rows]
        found = in_threads(lambda name: records.numbers(name, rows, as_read), names)
        # Channel after channel in memory: what follows takes them one by one.
        channels = np.array(found, dtype=np.float32).reshape(len(names), *rows.shape)
        return np.moveaxis(channels, 0, -1), names

    def _context(
        self,
        timeline: Timeline,
        instances: Instances,
        sequence: FloatArray,
        names: tuple[str, ...],
    ) -> Iterator[tuple[str, FloatArray]]:
        yield from self._categories(timeline, instances)
        yield from self._dates(timeline, instances)
        for name in self.plan.kinds.code:
            yield from self._codes(name, sequence[..., names.index(name)])
        if self.plan.history or self.plan.peers or self.plan.residuals:
            yield from Past.of(self, timeline, instances).columns()
        if self.plan.history:
            yield from _earlier_failures(timeline, instances, self.plan.reach)

    def _categories(
        self, timeline: Timeline, instances: Instances
    ) -> Iterator[tuple[str, FloatArray]]:
        # In the order of the plan: that of a dict may change when it is saved and loaded.
        for name in self.plan.kinds.categorical:
            known = timeline.records.texts[name].texts
            codes = timeline.records.codes(name, instances.row)
            for text in self.categories[name]:
                number = known.index(text) if text in known else -2
                yield f"category:{name}={text}", (codes == number).astype(np.float32)

    def _dates(self, timeline: Timeline, instances: Instances) -> Iterator[tuple[str, FloatArray]]:
        for name in self.plan.kinds.date:
            days = timeline.records.numbers(name, instances.row) - instances.end / DAY
            yield f"days_until:{name}", days.astype(np.float32)

    def _codes(self, name: str, window: FloatArray) -> Iterator[tuple[str, FloatArray]]:
        """Count the codes of the window; `window` has shape (n, length)."""
        yield f"count:{name}", (window != 0).sum(axis=1, dtype=np.float32)
        for code in self.codes[name]:
            yield f"count:{name}={code}", (window == code).sum(axis=1, dtype=np.float32)
        since = np.argmax(window[:, ::-1] != 0, axis=1)
        since = np.where((window != 0).any(axis=1), since, self.plan.length)
        hours = since * (self.plan.interval / 3.6e12)
        yield f"window_since:{name}", hours.astype(np.float32)
        if name == _XID:
            yield f"severity:{name}", severity(window).max(axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "plan": self.plan.to_dict(),
            "categories": {name: list(texts) for name, texts in self.categories.items()},
            "codes": {name: list(codes) for name, codes in self.codes.items()},
            "residuals": [fit.to_dict() for fit in self.residuals],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave."""
        return cls(
            plan=Plan.from_dict(saved["plan"]),
            categories={name: tuple(texts) for name, texts in saved["categories"].items()},
            codes={name: tuple(codes) for name, codes in saved["codes"].items()},
            residuals=tuple(ResidualFit.from_dict(fit) for fit in saved["residuals"]),
        )


def _frequent_texts(timeline: Timeline, name: str, instances: Instances) -> tuple[str, ...]:
    texts = timeline.records.texts[name].texts
    codes = timeline.records.codes(name, instances.row)
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    most = np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]
    return tuple(texts[i] for i in most if counts[i])


def _frequent_codes(timeline: Timeline, name: str) -> tuple[int, ...]:
    """Return the codes that most GPUs have shown: one chatty GPU must not choose them."""
    grid = timeline.grid
    codes = grid.columns_as_read(name)
    rows = np.flatnonzero((codes != 0) & (grid.cell_as_read >= 0))
    gpu = grid.cell_as_read[rows] % grid.shape[0]
    # Each pair of code and GPU as one number: sorting those is far faster than sorting pairs.
    pairs = np.unique(codes[rows].astype(np.int64) * grid.shape[0] + gpu)
    found, counts = np.unique(pairs // grid.shape[0], return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_MOST_CODES]
    return tuple(int(code) for code in np.sort(found[most]))


def _earlier_failures(
    timeline: Timeline, instances: Instances, reach: int
) -> Iterator[tuple[str, FloatArray]]:
    """Count the failures known before the end of each instance, of its serial and of its slot."""
    serial, failed = (one.gpu.astype(np.int64) for one in (instances, timeline.failures))
    always = np.full(len(failed), NEVER)
    yield "failures:serial", _count_known(timeline, instances, serial, failed, always)
    count = np.full(len(instances), np.nan, dtype=np.float32)
    # Records without slots are missing something, but measured alike: a model may meet both.
    if {MACHINE, SLOT} <= set(timeline.records.texts):
        slot = _place(timeline, instances.row)
        failed_slot, seen = _places_of_failures(timeline)
        # Where a GPU sat is known from records only. Every timeline goes back by `reach`, some go
        # farther: what only those show must not count, or a list would differ from a backtest.
        count = _count_known(timeline, instances, slot, failed_slot, seen + reach)
    yield "failures:slot", count


def _place(timeline: Timeline, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a number for the (machine, slot) of each row, -1 where either is unknown."""
    machine, slot = (timeline.records.codes(name, rows) for name in (MACHINE, SLOT))
    n_slots = len(timeline.records.texts[SLOT].texts)
    place = machine.astype(np.int64) * n_slots + slot
    return np.where((machine < 0) | (slot < 0), -1, place)


def _places_of_failures(
    timeline: Timeline,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each failed GPU sat at its last record before the failure, and when that was.

    The place is -1 where there is no such record.
    """
    failures, bounds = timeline.failures, timeline.bounds
    rows = np.full(len(failures), -1, dtype=np.int64)
    for i, (gpu, failed) in enumerate(
        zip(failures.gpu.tolist(), failures.failed_at.tolist(), strict=True)
    ):
        low, high = bounds[gpu], bounds[gpu + 1]
        before = int(np.searchsorted(timeline.records.time[low:high], failed))
        rows[i] = low + before - 1 if before else -1
    known = rows >= 0
    places, seen = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    places[known] = _place(timeline, rows[known])
    seen[known] = timeline.records.time[rows[known]]
    return places, seen


def _count_known(
    timeline: Timeline,
    instances: Instances,
    key: npt.NDArray[np.int64],
    failure_key: npt.NDArray[np.int64],
    until: npt.NDArray[np.int64],
) -> FloatArray:
    """Count, per instance, the failures of its key that were known before its end.

    A failure counts for instances that end at its `until` at the latest.
    """
    count = np.zeros(len(instances), dtype=np.float32)
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    known = timeline.failures.known_at
    for name, moment, latest in zip(
        failure_key.tolist(), known.tolist(), until.tolist(), strict=True
    ):
        if name >= 0:
            low, high = np.searchsorted(sorted_key, [name, name + 1])
            mine = order[low:high]
            count[mine] += (instances.end[mine] > moment) & (instances.end[mine] <= latest)
    return count
