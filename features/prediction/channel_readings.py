"""What instances need of the columns of numbers: each column is read once, and let go of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.history import Channel, InstanceHistory, SpanSums
from forewarn.features.prediction.hourly_residuals import HourlyResiduals
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.plan import Plan
from forewarn.features.records.table import Stretch
from forewarn.features.records.timeline import Timeline
from forewarn.features.threads import in_threads

__all__ = ["ChannelReadings"]

FloatArray = npt.NDArray[np.float32]
Hourly = npt.NDArray[np.float64]
_MOST_CODES = 8


@dataclass(frozen=True, slots=True)
class ChannelReadings:
    """The windows of n instances, and what their history and their peers say of each channel.

    Attributes
    ----------
    names : tuple of str
        The channels of the windows.
    sequence : ndarray of shape (n, length, n_channels), float32
        Channel after channel in memory: what follows takes them one by one.
    columns : list of (str, ndarray of shape (n,))
        Of the history of each channel.
    means : dict of ndarray of shape (n_gpus, n_hours)
        Hourly means of the columns that residuals are made of.
    codes : dict of tuple of int
        The codes that most GPUs have shown, where they were asked for.
    history : InstanceHistory or None
        None where the plan asks for no past.
    """

    names: tuple[str, ...]
    sequence: FloatArray
    columns: list[tuple[str, FloatArray]]
    means: dict[str, Hourly]
    codes: dict[str, tuple[int, ...]]
    history: InstanceHistory | None

    @classmethod
    def of(
        cls,
        plan: Plan,
        timeline: Timeline,
        instances: Instances,
        *,
        with_codes: bool = False,
        span_sums: dict[str, SpanSums] | None = None,
    ) -> ChannelReadings:
        """Read every column of numbers once.

        Parameters
        ----------
        plan : Plan
        timeline : Timeline
        instances : Instances
        with_codes : bool
            Look for the most frequent codes of the timeline, too.
        span_sums : dict of SpanSums, optional
            Filled in by channel.
        """
        reader = _Reader(plan, timeline, instances, span_sums)
        reader.with_codes = plan.kinds.code if with_codes else ()
        columns = timeline.records.columns
        in_threads(reader.read, range(len(reader.names)), columns.at_once)
        history = reader.history
        channels = () if history is None else history.channels()
        return cls(
            reader.names,
            np.moveaxis(reader.windows, 0, -1),
            [column for channel in channels for column in reader.columns[channel.name]],
            reader.means,
            {name: reader.codes[name] for name in plan.kinds.code if with_codes},
            history,
        )

    def residual_columns(self, residuals: HourlyResiduals) -> Iterator[tuple[str, FloatArray]]:
        """Yield the columns of what sensors do not explain of each other."""
        if self.history is None:
            return
        for number, pair in enumerate(residuals.pairs):
            hourly = residuals.of_hours(self.history.grid, number, self.means)
            yield from self.history.of_residual(pair, hourly)


class _Reader:
    """Reads columns, and puts what they gave where it belongs."""

    with_codes: Sequence[str] = ()

    def __init__(
        self,
        plan: Plan,
        timeline: Timeline,
        instances: Instances,
        span_sums: dict[str, SpanSums] | None,
    ) -> None:
        kinds = plan.kinds
        self.names = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code)
        self.history: InstanceHistory | None = None
        if plan.history or plan.peers or plan.residuals:
            self.history = InstanceHistory.of(plan, timeline, instances, span_sums)
        self.columns: dict[str, list[tuple[str, FloatArray]]] = {}
        self.means: dict[str, Hourly] = {}
        self.codes: dict[str, tuple[int, ...]] = {}
        self._timeline, self._with_means = timeline, {n for pair in plan.residuals for n in pair}
        self._rows = instances.row[:, None] + np.arange(1 - plan.window_records, 1)
        self._as_read = timeline.records.order[self._rows]
        self.windows = np.empty((len(self.names), *self._rows.shape), dtype=np.float32)

    @cached_property
    def _extent(self) -> tuple[int, int]:
        """The stretch of rows as read that windows and hours lie in."""
        low, high = 0, 0
        if self._as_read.size:
            low, high = int(self._as_read.min()), int(self._as_read.max()) + 1
        if self.history is not None or self.with_codes:
            grid = self._timeline.grid
            if grid.low < grid.high:
                low = min(low, grid.low) if high else grid.low
                high = max(high, grid.high)
        return low, high

    def read(self, number: int) -> None:
        """Read one column, and take from it whatever anything needs of it."""
        name, records = self.names[number], self._timeline.records
        stretch = records.stretch(name, *self._extent)
        self.windows[number] = records.taken(name, stretch, self._rows, self._as_read)
        if self.history is not None:
            for channel in self.history.channels():
                if channel.column == name:
                    self._read_channel(self.history, channel, stretch)
        if name in self.with_codes:
            self.codes[name] = _frequent_codes(self._timeline, self._in_hours(stretch))

    def _read_channel(self, history: InstanceHistory, channel: Channel, stretch: Stretch) -> None:
        sums = history.grid.added(self._in_hours(stretch), channel.work)
        self.columns[channel.name] = history.of_channel(channel, sums)
        if channel.name in self._with_means:
            self.means[channel.name] = sums.mean()

    def _in_hours(self, stretch: Stretch) -> FloatArray:
        """Return what of a stretch the hourly grid is about."""
        grid = self._timeline.grid
        return stretch.values[grid.low - stretch.low : grid.high - stretch.low]


def _frequent_codes(timeline: Timeline, codes: FloatArray) -> tuple[int, ...]:
    """Return the codes that most GPUs have shown: one chatty GPU must not choose them."""
    grid = timeline.grid
    rows = np.flatnonzero((codes != 0) & (grid.cell_as_read >= 0))
    gpu = grid.cell_as_read[rows] % grid.shape[0]
    # Each pair of code and GPU as one number: sorting those is far faster than sorting pairs.
    pairs = np.unique(codes[rows].astype(np.int64) * grid.shape[0] + gpu)
    frequent, counts = np.unique(pairs // grid.shape[0], return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_MOST_CODES]
    return tuple(int(code) for code in np.sort(frequent[most]))
