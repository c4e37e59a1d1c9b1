"""What is usual on a day: the other GPUs of the same machine, and the fleet of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.records.record_table import MACHINE
from forewarn.pipelines.rendering.templates import visible

__all__ = [
    "Grouping",
    "PeerComparison",
    "deviation",
    "group_medians",
    "known_median",
    "tail_share",
]

_MIN_GROUP_SIZE = 20  # a smaller group says nothing about what is usual: then the whole fleet does
_MAX_DEVIATION = 1e3


@dataclass(frozen=True)
class Grouping:
    """GPUs by a text that they share.

    Attributes
    ----------
    column : str
        Empty for the whole fleet.
    code : ndarray of shape (n,)
        Number of the text of each GPU, -1 where it has none.
    texts : tuple of str
    """

    column: str
    code: Int64Array
    texts: Sequence[str]

    @cached_property
    def members(self) -> Mapping[int, Int64Array]:
        """The GPUs of each text."""
        order = np.argsort(self.code, kind="stable")
        codes, starts = np.unique(self.code[order], return_index=True)
        return dict(zip(codes.tolist(), np.split(order, starts[1:]), strict=True))

    def others(self, row: int) -> Int64Array:
        """Return the other GPUs of the text of one; none where it has no text."""
        code = int(self.code[row])
        members: Int64Array = self.members[code] if code >= 0 else np.zeros(0, dtype=np.int64)
        return np.asarray(members[members != row])

    def name(self, row: int) -> str:
        """Return the text of one GPU."""
        return visible(self.texts[int(self.code[row])], limit=60)


def _grouping(timeline: Timeline, instances: Instances, column: str) -> Grouping:
    codes = timeline.records.codes(column, instances.row).astype(np.int64)
    return Grouping(column, codes, timeline.records.texts[column].texts)


@dataclass(frozen=True)
class PeerComparison:
    """The groups that a GPU is compared with.

    Attributes
    ----------
    near : Grouping
        Those named beside it: of its machine, else of its widest group of peers, else all.
    wide : Grouping
        Those whose spread says what is usual.
    """

    near: Grouping
    wide: Grouping

    @classmethod
    def from_timeline(
        cls, timeline: Timeline, instances: Instances, plan: FeaturePlan
    ) -> PeerComparison:
        """Choose the groups by what the records have."""
        everybody = Grouping("", np.zeros(len(instances), dtype=np.int64), ("the fleet",))
        wide = _grouping(timeline, instances, plan.peers[-1]) if plan.peers else everybody
        machines = MACHINE in timeline.records.texts
        near = _grouping(timeline, instances, MACHINE) if machines else wide
        return cls(near, wide)

    @cached_property
    def references(self) -> tuple[tuple[Int64Array, Int64Array], ...]:
        """GPUs, and those whose spread says what is usual for them, themselves among these."""
        large = {
            c: of for c, of in self.wide.members.items() if c >= 0 and len(of) >= _MIN_GROUP_SIZE
        }
        left = np.flatnonzero(~np.isin(self.wide.code, list(large)))
        by_themselves = tuple((members, members) for members in large.values())
        if not len(left):
            return by_themselves
        return (*by_themselves, (left, np.arange(len(self.wide.code))))

    def against(
        self, work: Callable[[Float64Array, Float64Array], Float64Array], values: Float64Array
    ) -> Float64Array:
        """Return what `work` makes of the values of some GPUs and of those of their reference."""
        made = np.empty(len(values))
        for rows, members in self.references:
            made[rows] = work(values[rows], values[members])
        return made

    def leads(self, values: Float64Array) -> BoolArray:
        """Tell which values no other GPU of the same machine surpasses."""
        if self.near.column != MACHINE:
            return np.ones(len(values), dtype=bool)
        highest = np.full(int(self.near.code.max(initial=0)) + 2, -np.inf)
        known = np.nan_to_num(values, nan=-np.inf)
        np.maximum.at(highest, self.near.code, known)  # -1, no machine, is the last
        return np.asarray((values >= highest[self.near.code]) | (self.near.code < 0))

    def minus_group_median(self, values: Float64Array) -> Float64Array:
        """Return each value minus the median of its near group; NaN with fewer than three."""
        return values - group_medians(values, self.near.code, fewest=3)


def group_medians(values: Float64Array, code: Int64Array, *, fewest: int = 1) -> Float64Array:
    """Return the median of the known values of each one's group, shape (n,)."""
    medians = np.full(len(values), np.nan)
    known = np.flatnonzero(np.isfinite(values) & (code >= 0))
    order = known[np.lexsort((values[known], code[known]))]
    if not len(order):
        return medians
    starts = np.flatnonzero(np.append(True, np.diff(code[order]) != 0))
    codes, counts = code[order[starts]], np.diff(np.append(starts, len(order)))
    sorted_values = values[order]
    low, high = starts + (counts - 1) // 2, starts + counts // 2
    middle = np.where(counts >= fewest, (sorted_values[low] + sorted_values[high]) / 2, np.nan)
    position = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
    same = codes[position] == code
    medians[same] = middle[position[same]]
    return medians


def known_median(values: Float64Array) -> float:
    """Return the median of the known values, NaN if there is none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def deviation(values: Float64Array, among: Float64Array) -> Float64Array:
    """Return how many robust standard deviations each value lies from the median of others.

    Where most of those are equal, anything else lies very far off; missing is 0.

    Examples
    --------
    >>> values = np.array([16.0, 16.0, 16.0, 8.0])
    >>> deviation(values, values).tolist()
    [0.0, 0.0, 0.0, -1000.0]
    """
    usual = known_median(among)
    off, scale = values - usual, 1.4826 * known_median(np.abs(among - usual))
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(np.abs(off) <= 1e-9 * (1.0 + np.abs(values)), 0.0, off / scale)
    return np.asarray(np.clip(np.nan_to_num(far, nan=0.0), -_MAX_DEVIATION, _MAX_DEVIATION))


def tail_share(values: Float64Array, among: Float64Array) -> Float64Array:
    """Return the share of others that have as much as each value, which is one of them itself.

    Missing values count as lower than all others.

    Examples
    --------
    >>> values = np.array([0.0, 0.0, 7.0, 2.0])
    >>> tail_share(values, values).tolist()
    [0.75, 0.75, 0.0, 0.25]
    """
    ordered = np.sort(np.nan_to_num(among, nan=-np.inf))
    lower = np.searchsorted(ordered, np.nan_to_num(values, nan=-np.inf), side="left")
    return np.asarray((len(among) - lower - 1) / max(len(among), 1))
