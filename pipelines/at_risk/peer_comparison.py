"""Reference groups of a day: GPUs of the same machine, and the fleet of the same type."""

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

_MIN_GROUP_SIZE = 20  # smaller groups are compared with the whole fleet
_MAX_DEVIATION = 1e3


@dataclass(frozen=True)
class Grouping:
    """GPUs grouped by a text column.

    Attributes
    ----------
    column : str
        Empty for the whole fleet.
    code : ndarray of shape (n,)
        Number of each GPU's text, -1 if missing.
    texts : tuple of str
    """

    column: str
    code: Int64Array
    texts: Sequence[str]

    @cached_property
    def members(self) -> Mapping[int, Int64Array]:
        """GPUs by text number."""
        order = np.argsort(self.code, kind="stable")
        codes, starts = np.unique(self.code[order], return_index=True)
        return dict(zip(codes.tolist(), np.split(order, starts[1:]), strict=True))

    def others(self, row: int) -> Int64Array:
        """Return the other GPUs with the same text; empty if the GPU has none."""
        code = int(self.code[row])
        members: Int64Array = self.members[code] if code >= 0 else np.zeros(0, dtype=np.int64)
        return np.asarray(members[members != row])

    def name(self, row: int) -> str:
        """Return the text of a GPU."""
        return visible(self.texts[int(self.code[row])], limit=60)


def _grouping(timeline: Timeline, instances: Instances, column: str) -> Grouping:
    codes = timeline.records.codes(column, instances.row).astype(np.int64)
    return Grouping(column, codes, timeline.records.texts[column].texts)


@dataclass(frozen=True)
class PeerComparison:
    """Reference groups for comparing a GPU.

    Attributes
    ----------
    near : Grouping
        Peers named in reasons: same machine, else the widest peer group, else all.
    wide : Grouping
        Group whose spread defines what is usual.
    """

    near: Grouping
    wide: Grouping

    @classmethod
    def from_timeline(
        cls, timeline: Timeline, instances: Instances, plan: FeaturePlan
    ) -> PeerComparison:
        """Choose the groups that the records support."""
        everybody = Grouping("", np.zeros(len(instances), dtype=np.int64), ("the fleet",))
        wide = _grouping(timeline, instances, plan.peers[-1]) if plan.peers else everybody
        machines = MACHINE in timeline.records.texts
        near = _grouping(timeline, instances, MACHINE) if machines else wide
        return cls(near, wide)

    @cached_property
    def references(self) -> tuple[tuple[Int64Array, Int64Array], ...]:
        """Pairs of GPUs and the reference group that contains them."""
        large = {
            c: gpus
            for c, gpus in self.wide.members.items()
            if c >= 0 and len(gpus) >= _MIN_GROUP_SIZE
        }
        left = np.flatnonzero(~np.isin(self.wide.code, list(large)))
        by_themselves = tuple((members, members) for members in large.values())
        if not len(left):
            return by_themselves
        return (*by_themselves, (left, np.arange(len(self.wide.code))))

    def against(
        self, work: Callable[[Float64Array, Float64Array], Float64Array], values: Float64Array
    ) -> Float64Array:
        """Apply `work` to the values of each set of GPUs and those of its reference group."""
        made = np.empty(len(values))
        for rows, members in self.references:
            made[rows] = work(values[rows], values[members])
        return made

    def is_group_maximum(self, values: Float64Array) -> BoolArray:
        """Return which values are the highest of their machine."""
        if self.near.column != MACHINE:
            return np.ones(len(values), dtype=bool)
        highest = np.full(int(self.near.code.max(initial=0)) + 2, -np.inf)
        known = np.nan_to_num(values, nan=-np.inf)
        np.maximum.at(highest, self.near.code, known)  # index -1 (no machine) is the last element
        return np.asarray((values >= highest[self.near.code]) | (self.near.code < 0))

    def minus_group_median(self, values: Float64Array) -> Float64Array:
        """Return each value minus the median of its near group; NaN in groups of one or two."""
        return values - group_medians(values, self.near.code, fewest=3)


def group_medians(values: Float64Array, code: Int64Array, *, fewest: int = 1) -> Float64Array:
    """Return the median of the known values of each GPU's group, shape (n,)."""
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
    """Return the median of the known values, NaN if there are none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def deviation(values: Float64Array, among: Float64Array) -> Float64Array:
    """Return the distance of each value from the median of a group, in robust standard deviations.

    If most group values are equal, any other value has a very large deviation. Missing values give
    0.

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
    """Return the share of the other group members with at least each value.

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
