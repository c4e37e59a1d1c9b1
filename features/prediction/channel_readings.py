"""Readings of the numeric columns for instances; each column is read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array, Int64Array
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.frequent_codes import codes_by_gpu, most_frequent_codes
from forewarn.features.prediction.hourly_residuals import (
    HourlyResiduals,
    SliceMeans,
    hourly_means,
)
from forewarn.features.prediction.instance_history import Channel, ChannelHistory, InstanceHistory
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.peer_distances import PeerDistances
from forewarn.features.prediction.span_sums import GatheredSums
from forewarn.features.records.fleet_timeline import FleetSlice
from forewarn.features.records.hourly_sums import HourlySums
from forewarn.features.threads import map_threads

__all__ = ["ChannelReadings", "FleetChannelReader", "SliceChannelReader"]


@dataclass(frozen=True, slots=True)
class ChannelReadings:
    """Windows, histories and peer groups of n instances, channel by channel.

    Attributes
    ----------
    names : tuple of str
        Channels of the windows.
    sequence : ndarray of shape (n, length, n_channels), float32
        Channel-major in memory, because later steps process one channel at a time.
    columns : list of (str, ndarray of shape (n,))
        History columns of each channel.
    means : list of SliceMeans
        Hourly means of the columns used in residuals, slice by slice.
    codes : dict of tuple of int
        The most frequent codes, if requested.
    peers : PeerDistances
        Sums over all slices.
    """

    names: tuple[str, ...]
    sequence: Float32Array
    columns: list[tuple[str, Float32Array]]
    means: list[SliceMeans]
    codes: dict[str, tuple[int, ...]]
    peers: PeerDistances

    def residual_columns(self, residuals: HourlyResiduals) -> Iterator[tuple[str, Float32Array]]:
        """Yield the history and peer columns of the residuals."""
        gathered, peers = _GatheredColumns(len(self.sequence)), self.peers

        def pair_columns(number: int) -> list[tuple[str, Float32Array]]:
            name = "|".join(residuals.pairs[number])
            for part in self.means:
                history = part.history
                hours = HourlySums.from_means(
                    residuals.hourly_residuals(history.grid, number, part.means)
                )
                channel = history.residual_history(name, hours)
                gathered.put(name, part.rows, channel)
                peers.add(name, part.rows, history, channel)
            return [*gathered.pop(name), *peers.columns(name)]

        for columns in map_threads(pair_columns, range(len(residuals.pairs))):
            yield from columns


class _GatheredColumns:
    """Columns of channels, filled in slice by slice."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._by_channel: dict[str, dict[str, Float32Array]] = {}

    def put(self, channel: str, rows: Int64Array, part: ChannelHistory) -> None:
        """Fill in the columns of some instances."""
        columns = self._by_channel.setdefault(channel, {})
        for name, values in part.columns:
            if name not in columns:
                columns[name] = np.empty(self._n, dtype=np.float32)
            columns[name][rows] = values

    def pop(self, channel: str) -> list[tuple[str, Float32Array]]:
        """Return the columns of a channel."""
        return list(self._by_channel.pop(channel, {}).items())


class FleetChannelReader:
    """Reads every numeric column of a fleet, slice by slice (`ChannelReadings`).

    Parameters
    ----------
    plan : FeaturePlan
    n : int
        Number of instances.
    with_codes : bool
        Also find the most frequent codes.
    span_sums : GatheredSums, optional
        Filled in for later use of the same spans. The sums need as much memory as three windows of
        each instance.
    """

    def __init__(
        self,
        plan: FeaturePlan,
        n: int,
        *,
        with_codes: bool = False,
        span_sums: GatheredSums | None = None,
    ) -> None:
        kinds = plan.kinds
        self.plan, self.n, self.span_sums = plan, n, span_sums
        self.names = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code)
        self.with_codes = kinds.code if with_codes else ()
        self.windows = np.empty((len(self.names), n, plan.window_records), dtype=np.float32)
        self.gathered, self.peers = _GatheredColumns(n), PeerDistances(n)
        self.columns: dict[str, list[tuple[str, Float32Array]]] = {}
        self.codes: dict[str, list[Int64Array]] = {n: [] for n in self.with_codes}
        self._means: list[SliceMeans] = []
        self._channels: list[Channel] = []

    def prepare_slice(
        self, part: FleetSlice, instances: Instances, rows: Int64Array
    ) -> SliceChannelReader:
        """Prepare a slice before its columns are read.

        Parameters
        ----------
        part : FleetSlice
        instances : Instances
            Instances of its timeline.
        rows : ndarray, int64
            Their numbers among all instances.
        """
        return SliceChannelReader(self, part, instances, rows)

    def read(self, reader: SliceChannelReader, *, last: bool) -> None:
        """Read the columns of a prepared slice. Call it for one slice after another.

        Parameters
        ----------
        reader : SliceChannelReader
        last : bool
            No slice follows: also compute what needs all slices.
        """
        kinds, history, reader.last = self.plan.kinds, reader.history, last
        if history is not None:
            self._channels = history.channels()
            self.peers.add_slice(reader.rows, history)
        # Code columns are processed more than once. They take longest and start first.
        numbers = sorted(range(len(self.names)), key=lambda n: self.names[n] not in kinds.code)
        map_threads(reader.read, numbers, reader.at_once)
        if history is not None and self.plan.residuals:
            means = SliceMeans(reader.rows, reader.gpu, history.without_rows(), reader.means)
            self._means.append(means)

    def readings(self) -> ChannelReadings:
        """Return the readings after the last slice."""
        columns = [column for c in self._channels for column in self.columns.get(c.name, [])]
        codes = {name: most_frequent_codes(shown) for name, shown in self.codes.items()}
        sequence = np.moveaxis(self.windows, 0, -1)
        return ChannelReadings(self.names, sequence, columns, self._means, codes, self.peers)


class SliceChannelReader:
    """Reads the columns of one slice and stores the results in the fleet's arrays.

    Parameters
    ----------
    fleet, part, instances, rows
        See `FleetChannelReader.prepare_slice`.
    """

    def __init__(
        self, fleet: FleetChannelReader, part: FleetSlice, instances: Instances, rows: Int64Array
    ) -> None:
        plan, timeline = fleet.plan, part.timeline
        self._fleet, self._timeline, self.rows, self.gpu = fleet, timeline, rows, part.gpu
        self.last = False
        self.history: InstanceHistory | None = None
        if plan.history or plan.peers or plan.residuals:
            self.history = InstanceHistory.from_timeline(plan, timeline, instances)
        self.means: dict[str, Float32Array] = {}
        self._with_means = {name for pair in plan.residuals for name in pair}
        self._windows = instances.row[:, None] + np.arange(1 - plan.window_records, 1)

    @property
    def at_once(self) -> int:
        """Number of columns that may be read in parallel."""
        return self._timeline.records.columns.at_once

    def read(self, number: int) -> None:
        """Read one column and compute everything that depends on it."""
        fleet, name = self._fleet, self._fleet.names[number]
        values = self._timeline.records.values(name)
        fleet.windows[number, self.rows] = values[self._windows]
        if self.history is not None:
            for channel in (c for c in self.history.channels() if c.column == name):
                self._read_channel(self.history, channel, values)
        if name in fleet.with_codes:
            fleet.codes[name].append(codes_by_gpu(self._timeline.grid, values))

    def _read_channel(
        self, history: InstanceHistory, channel: Channel, values: Float32Array
    ) -> None:
        """Sum a channel by hour and compute everything that depends on the sums."""
        fleet, name = self._fleet, channel.name
        hours = history.grid.sums(values, channel.work)
        if name in self._with_means:
            self.means[name] = hourly_means(hours)
        part = history.channel_history(channel, hours)
        fleet.gathered.put(name, self.rows, part)
        fleet.peers.add(name, self.rows, history, part)
        if fleet.span_sums is not None:
            fleet.span_sums.put(name, self.rows, part.span_sums)
        if self.last:
            fleet.columns[name] = [*fleet.gathered.pop(name), *fleet.peers.columns(name)]
