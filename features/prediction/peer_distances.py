"""How far instances lie from their peers, added up slice by slice of the fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.history import ChannelHistory, InstanceHistory, mean_of
from forewarn.features.records.few_hours import HourlyTally
from forewarn.features.records.hourly_sums import HourBlock, HourlyCounts
from forewarn.features.records.spans import Spans
from forewarn.features.records.spillable_array import ArrayAllocator, SpillableArray

__all__ = ["PeerDistances"]

FloatArray = npt.NDArray[np.float32]
Hourly = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Sums:
    """Of one channel: what the readings of n instances add up to, and those of the groups.

    Attributes
    ----------
    own : ndarray of shape (2, k, n)
        Totals and counts of each span.
    total : dict of SpillableArray of shape (n_groups, n_hours)
        Of a level; nothing of what counts.
    counted : dict of HourlyTally
        Of what counts.
    count : dict of SpillableArray of shape (n_groups, n_hours)
        Readings of a channel that is not read row by row; nothing of the others.
    missing : dict of HourlyTally
        Rows without a reading of the others.
    moved : list of (str, int, int, float, float)
        Column, span and instance whose own part of a group is not all that is its own.
    """

    own: Hourly
    total: dict[str, SpillableArray] = field(default_factory=dict)
    counted: dict[str, HourlyTally] = field(default_factory=dict)
    count: dict[str, SpillableArray] = field(default_factory=dict)
    missing: dict[str, HourlyTally] = field(default_factory=dict)
    moved: list[tuple[str, int, int, float, float]] = field(default_factory=list)

    def spill(self) -> None:
        """Have the sums of groups leave memory, if they can, until those of another slice come."""
        for sums in (self.total, self.count, self.counted, self.missing):
            for held in sums.values():
                held.spill()


class PeerDistances:
    """The distance of n instances from the others of their groups, channel by channel.

    The sums of a group are whole when those of all slices are added: until then they are kept.

    Parameters
    ----------
    n : int
        Number of instances.
    zeros : callable
        Makes an array for the sums of groups (`Fleet.allocator`).
    """

    def __init__(self, n: int, zeros: ArrayAllocator) -> None:
        self._n, self._zeros = n, zeros
        self._names: tuple[str, ...] = ()
        self._of_channel: dict[str, _Sums] = {}
        self._group: dict[str, Rows] = {}
        self._rows: dict[str, SpillableArray] = {}
        self._rows_of_spans: dict[str, Hourly] = {}
        self._edges = np.zeros((3, 0, n), dtype=np.int64)
        self._known = np.zeros((0, n), dtype=np.bool_)

    def enter(self, rows: Rows, history: InstanceHistory) -> None:
        """Take up a slice: which instances are its own, and how its groups are made up.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Which of all instances those of the history are.
        history : InstanceHistory
        """
        if not self._names:
            self._names = history.names
            self._edges = np.zeros((3, len(self._names), self._n), dtype=np.int64)
            self._known = np.zeros((len(self._names), self._n), dtype=np.bool_)
        self._edges[:, :, rows], self._known[:, rows] = history.spans.edges, history.spans.known
        for column, (groups, group) in history.groups.items():
            shape = groups.number, history.grid.shape[1]
            self._group.setdefault(column, np.full(self._n, -1, dtype=np.int64))[rows] = group
            if column not in self._rows:
                self._rows[column] = self._zeros(shape, np.int32)
            groups.add(history.grid.row_count, self._rows[column].values)
            self._rows[column].spill()

    def add(self, name: str, rows: Rows, history: InstanceHistory, part: ChannelHistory) -> None:
        """Add what a slice that was entered says of a channel; its levels hour by hour before."""
        if not history.groups:
            return
        channel = self._sums_of(name)
        channel.own[0][:, rows] = part.span_sums.total
        channel.own[1][:, rows] = part.span_sums.count
        for column, (groups, _) in history.groups.items():
            shape = self._rows[column].values.shape
            if isinstance(part.hours, HourlyCounts):
                few = groups.of_few(part.hours.total)
                channel.counted.setdefault(column, HourlyTally(shape, self._zeros)).add(*few)
            else:  # of no hour at all, where no row counts
                self._room(channel.total, column, np.float64)
            if part.hours.missing is not None:
                few = groups.of_few(part.hours.missing)
                channel.missing.setdefault(column, HourlyTally(shape, self._zeros)).add(*few)
            for k, i, total, count in history.inside(column, part.hours):
                channel.moved.append((column, k, int(rows[i]), total, count))
        channel.spill()

    def add_hours(self, name: str, history: InstanceHistory, block: HourBlock) -> None:
        """Add some hours of a level of a slice that was entered."""
        if not history.groups:
            return
        channel = self._sums_of(name)
        for column, (groups, _) in history.groups.items():
            total = self._room(channel.total, column, np.float64)
            groups.add(block.total, total, block.hours)

    def add_counts(self, name: str, history: InstanceHistory, count: CountArray) -> None:
        """Add the readings of a channel that is not read row by row, shape (n_gpus, n_hours)."""
        channel = self._sums_of(name)
        for column, (groups, _) in history.groups.items():
            groups.add(count, self._room(channel.count, column, np.int32))

    def _room(self, sums: dict[str, SpillableArray], column: str, kind: type) -> npt.NDArray[Any]:
        """Return where the groups of a column add up."""
        if column not in sums:
            sums[column] = self._zeros(self._rows[column].values.shape, kind)
        return sums[column].values

    def _sums_of(self, name: str) -> _Sums:
        if name not in self._of_channel:
            self._of_channel[name] = _Sums(np.empty((2, len(self._names), self._n)))
        return self._of_channel[name]

    def columns(self, name: str) -> list[tuple[str, FloatArray]]:
        """Return the columns of a channel, and let go of its sums: all slices were added."""
        columns: list[tuple[str, FloatArray]] = []
        if name not in self._of_channel:
            return columns
        channel = self._of_channel.pop(name)
        for column in (*channel.total, *channel.counted):
            group = self._group[column]
            distance = self._distance(channel, column)
            distance[:, group < 0] = np.nan
            label = f"peers:{column}:{name}"
            columns.append((f"{label}:{self._names[0]}", distance[0].astype(np.float32)))
            if len(self._names) > 1:
                known = np.where(self._known[-1], distance[-1], np.nan)
                columns.append((f"{label}:{self._names[-1]}", known.astype(np.float32)))
        channel.spill()
        return columns

    def _distance(self, channel: _Sums, column: str) -> Hourly:
        """Return the means of the spans less those of the others of the group, shape (k, n)."""
        group = self._group[column]
        spans = Spans(group, np.argsort(group, kind="stable"), self._edges, self._known)
        if column in channel.counted:
            total = spans.sums(channel.counted[column].hours())
        else:
            total = spans.sums(channel.total[column].values)
        if column in channel.count:
            count = spans.sums(channel.count[column].values)
        else:
            count = self._n_rows(column, spans) - spans.sums(channel.missing[column].hours())
        own = channel.own.copy()
        for moved, k, i, *sums in channel.moved:
            if moved == column:
                own[:, k, i] = sums
        others = total - own[0], count - own[1]
        return np.asarray(mean_of(*channel.own) - mean_of(*others))

    def _n_rows(self, column: str, spans: Spans) -> Hourly:
        """Return the rows of each group in each span, the same for all channels."""
        if column not in self._rows_of_spans:
            self._rows_of_spans[column] = spans.sums(self._rows[column].values)
        return self._rows_of_spans[column]
