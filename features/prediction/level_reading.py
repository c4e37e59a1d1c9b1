"""A channel that has a level: whatever is made of its hours, some after the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import vectorised
from forewarn.features.prediction.history import ChannelHistory, InstanceHistory, LevelHours
from forewarn.features.records.few_hours import FewHours
from forewarn.features.records.hourly_sums import HourBlock, HourlyGrid
from forewarn.features.records.span_run import SpanRun

__all__ = ["HourlyMeans", "LevelReading"]

Hourly = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int32]
MeanArray = npt.NDArray[np.float32]


class LevelReading:
    """Takes the hours of a level, some after the others.

    Parameters
    ----------
    history : InstanceHistory
    name : str
        Of the channel.
    count : ndarray of shape (n_gpus, n_hours), optional
        Readings of a channel that is not read row by row; nothing is lost there.
    """

    def __init__(
        self, history: InstanceHistory, name: str, count: npt.NDArray[np.int32] | None = None
    ) -> None:
        self.history, self.name, self.count = history, name, count
        self._run = SpanRun(history.spans)
        self._moved = np.zeros((len(history.moved), history.grid.shape[1]))
        self._lost: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]] = []

    def take(self, block: HourBlock) -> None:
        """Take the next hours."""
        self._run.take(block.first, block.total, block.squares)
        self._moved[:, block.hours] = block.total[self.history.moved]
        self._lost.append((block.lost, block.n_lost))

    def part(self) -> ChannelHistory:
        """Return what all hours say of the channel."""
        history = self.history
        if self.count is not None:
            n_read = history.spans.halves(self.count)
            hours = LevelHours(self._moved, self.count[history.moved], None)
            part = history.of_level(self.name, self._run.halves(), n_read, hours)
            return history.with_recent(self.name, part)
        missing = FewHours.of_cells(history.grid.shape[1], self._lost)
        count = history.grid.row_count[history.moved]
        count -= missing.of_gpus(history.moved.tolist())
        hours = LevelHours(self._moved, count, missing)
        return history.of_level(self.name, self._run.halves(), history.n_read(missing), hours)


class HourlyMeans:
    """The hourly means of a channel of a slice; NaN where nothing was read.

    Parameters
    ----------
    grid : HourlyGrid
    values : ndarray of shape (n_gpus, n_hours), float32
        Filled in.
    """

    def __init__(self, grid: HourlyGrid, values: MeanArray) -> None:
        self._n_rows, self.values = grid.row_count, values
        values.fill(np.nan)

    def take(self, block: HourBlock) -> None:
        """Take the next hours."""
        _divide(block.total, self._n_rows[:, block.hours], self.values[:, block.hours])
        n_hours = self.values.shape[1]
        gpu, hour = np.divmod(block.lost, n_hours)
        n_read = self._n_rows[gpu, hour] - block.n_lost
        with np.errstate(invalid="ignore", divide="ignore"):
            self.values[gpu, hour] = block.total[gpu, hour - block.first] / n_read


@vectorised
def _divide(total: Hourly, count: CountArray, means: MeanArray) -> None:
    for gpu in range(len(total)):
        for hour in range(total.shape[1]):
            means[gpu, hour] = total[gpu, hour] / count[gpu, hour]
