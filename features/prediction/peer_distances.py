"""Differences between instances and their peers, summed slice by slice."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int32Array, Int64Array
from forewarn.features.prediction.instance_history import (
    ChannelHistory,
    InstanceHistory,
    mean_or_nan,
)
from forewarn.features.records.lookback_windows import LookbackWindows

__all__ = ["PeerDistances"]


@dataclass(slots=True)
class _Sums:
    """Sums of one channel over n instances and over their groups.

    Attributes
    ----------
    own : ndarray of shape (2, k, n)
        Totals and counts of each span.
    total : dict of ndarray of shape (n_groups, n_hours)
        Totals by peer column.
    missing : dict of ndarray of shape (n_groups, n_hours)
        Number of rows without a reading; absent if every row has one.
    moved : list of (str, int, int, float, float)
        Column, span and instance whose contribution to the group differs from its own sums.
    """

    own: Float64Array
    total: dict[str, Float64Array] = field(default_factory=dict)
    missing: dict[str, Int32Array] = field(default_factory=dict)
    moved: list[tuple[str, int, int, float, float]] = field(default_factory=list)


class PeerDistances:
    """Difference of n instances from the other members of their groups, by channel.

    The sums of a group are complete only after all slices were added.

    Parameters
    ----------
    n : int
        Number of instances.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._names: tuple[str, ...] = ()
        self._of_channel: dict[str, _Sums] = {}
        self._group: dict[str, Int64Array] = {}
        self._rows: dict[str, Int32Array] = {}
        self._rows_of_spans: dict[str, Float64Array] = {}
        self._edges = np.zeros((3, 0, n), dtype=np.int64)
        self._known = np.zeros((0, n), dtype=np.bool_)

    def add_slice(self, rows: Int64Array, history: InstanceHistory) -> None:
        """Add a slice: its instances and its groups.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Numbers of the history's instances among all instances.
        history : InstanceHistory
        """
        if not self._names:
            self._names = history.names
            self._edges = np.zeros((3, len(self._names), self._n), dtype=np.int64)
            self._known = np.zeros((len(self._names), self._n), dtype=np.bool_)
        self._edges[:, :, rows], self._known[:, rows] = history.spans.edges, history.spans.known
        for column, (groups, group) in history.groups.items():
            self._group.setdefault(column, np.full(self._n, -1, dtype=np.int64))[rows] = group
            if column not in self._rows:
                shape = groups.number, history.grid.shape[1]
                self._rows[column] = np.zeros(shape, dtype=np.int32)
            groups.add(history.grid.row_count, self._rows[column])

    def add(
        self, name: str, rows: Int64Array, history: InstanceHistory, part: ChannelHistory
    ) -> None:
        """Add the sums of a channel of an entered slice."""
        if not history.groups:
            return
        if name not in self._of_channel:
            self._of_channel[name] = _Sums(np.empty((2, len(self._names), self._n)))
        channel, hours = self._of_channel[name], part.hours
        channel.own[0][:, rows] = part.span_sums.total
        channel.own[1][:, rows] = part.span_sums.count
        every = hours.count is history.grid.row_count
        missing = None if every else history.grid.row_count - hours.count
        for column, (groups, _) in history.groups.items():
            shape = self._rows[column].shape
            if column not in channel.total:
                channel.total[column] = np.zeros(shape)
            groups.add(hours.total, channel.total[column])
            if missing is not None:
                if column not in channel.missing:
                    channel.missing[column] = np.zeros(shape, dtype=np.int32)
                groups.add(missing, channel.missing[column])
            for k, i, total, count in history.moved_gpu_parts(column, hours):
                channel.moved.append((column, k, int(rows[i]), total, count))

    def columns(self, name: str) -> list[tuple[str, Float32Array]]:
        """Return the columns of a channel and free its sums; all slices must have been added."""
        columns: list[tuple[str, Float32Array]] = []
        if name not in self._of_channel:
            return columns
        channel = self._of_channel.pop(name)
        for column in channel.total:
            distance = self._distance(channel, column)
            distance[:, self._group[column] < 0] = np.nan
            label = f"peers:{column}:{name}"
            columns.append((f"{label}:{self._names[0]}", distance[0].astype(np.float32)))
            if len(self._names) > 1:
                known = np.where(self._known[-1], distance[-1], np.nan)
                columns.append((f"{label}:{self._names[-1]}", known.astype(np.float32)))
        return columns

    def _distance(self, channel: _Sums, column: str) -> Float64Array:
        """Return the means of the spans minus those of the other group members, shape (k, n)."""
        group = self._group[column]
        spans = LookbackWindows(group, np.argsort(group, kind="stable"), self._edges, self._known)
        total, count = spans.sums(channel.total[column]), self._n_rows(column, spans)
        if column in channel.missing:
            count = count - spans.sums(channel.missing[column])
        own = channel.own.copy()
        for moved, k, i, *sums in channel.moved:
            if moved == column:
                own[:, k, i] = sums
        others = total - own[0], count - own[1]
        return np.asarray(mean_or_nan(*channel.own) - mean_or_nan(*others))

    def _n_rows(self, column: str, spans: LookbackWindows) -> Float64Array:
        """Return the rows of each group in each span, the same for all channels."""
        if column not in self._rows_of_spans:
            self._rows_of_spans[column] = spans.sums(self._rows[column])
        return self._rows_of_spans[column]
