"""Metrics of running tasks in a Prometheus server, asked for sample by sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from forewarn.features.task_grid import TaskGrid
from forewarn.features.telemetry.prometheus import Series, parse_matrix
from forewarn.pipelines.membership import Membership
from forewarn.pipelines.prometheus import Server
from forewarn.pipelines.pulls import Pull
from forewarn.pipelines.settings import WatchTable
from forewarn.pipelines.stages import note

__all__ = ["LiveMetrics"]

Floats = npt.NDArray[np.float32]
Key = tuple[str, str]

_SECOND = 1_000_000_000


@dataclass(slots=True)
class _Buffer:
    """The samples of one metric that were asked for so far, by (task, machine)."""

    asked_until: int = 0
    times: dict[Key, npt.NDArray[np.int64]] = field(default_factory=dict)
    values: dict[Key, npt.NDArray[np.float64]] = field(default_factory=dict)

    def add(self, key: Key, times: Sequence[float], values: Sequence[float]) -> None:
        """Append what is new: samples that a server answers twice count once."""
        mine = np.round(np.asarray(times) * 1e9).astype(np.int64)
        known = self.times.get(key, np.empty(0, dtype=np.int64))
        new = mine > (known[-1] if len(known) else -1)
        self.times[key] = np.concatenate([known, mine[new]])
        before = self.values.get(key, np.empty(0))
        self.values[key] = np.concatenate([before, np.asarray(values, dtype=np.float64)[new]])

    def forget(self, before: int) -> None:
        """Drop samples up to a moment, and series that have none left."""
        for key in list(self.times):
            keep = self.times[key] > before
            if keep.any():
                self.times[key], self.values[key] = self.times[key][keep], self.values[key][keep]
            else:
                del self.times[key], self.values[key]


@dataclass(slots=True)
class LiveMetrics:
    """The last samples of all tasks: each call asks for what is new since the one before.

    Attributes
    ----------
    server : Server
    settings : WatchTable
    interval : int
        Nanoseconds between two samples of a machine.
    tasks : Path or None
        Table that says who works on what (`Membership`); without it labels do.
    """

    server: Server
    settings: WatchTable
    interval: int
    tasks: Path | None = None
    _buffers: dict[str, _Buffer] = field(default_factory=dict, init=False, repr=False)
    _groups: dict[Key, str] = field(default_factory=dict, init=False, repr=False)
    _members: Membership | None = field(default=None, init=False, repr=False)

    def pulls(self, first: str, end: int, span: int) -> Iterator[LivePull]:
        """Return every task that has samples of a metric in (end - span, end].

        Parameters
        ----------
        first : str
            The metric that is looked at first; the others are asked for when they are needed.
        end, span : int
            Nanoseconds.

        Raises
        ------
        PrometheusError
            If the server cannot be asked. What was asked for before is kept.
        """
        if self.tasks is not None:
            self._members = Membership.open(self.tasks)
        buffer = self.fetch(first, end, span)
        names = sorted({task for task, _ in buffer.times})
        for name in names:
            machines = tuple(sorted(machine for task, machine in buffer.times if task == name))
            n_ticks = span // self.interval
            begin = end // self.interval - n_ticks + 1
            grid = TaskGrid(machines, begin, self.interval, n_ticks, np.empty(0, np.int64), ())
            labels = [self._groups.get((name, machine), "") for machine in machines]
            groups = np.unique(labels, return_inverse=True)[1].astype(np.int64)
            yield LivePull(name, grid, groups, self, end, span)

    def fetch(self, metric: str, end: int, span: int) -> _Buffer:
        """Ask for the samples of a metric that are not there yet."""
        buffer = self._buffers.setdefault(metric, _Buffer())
        begin = max(end - span, buffer.asked_until)
        if begin < end:
            said = "" if self._members is not None else f'{self.settings.task_label}!=""'
            inside = ",".join(one for one in (said, self.settings.selector) if one)
            answer = self.server.samples(f"{metric}{{{inside}}}", end, end - begin)
            found, unread = parse_matrix(answer)
            for why, count in unread.counts.items():
                note(f"{metric}: {why} ({count} times), such as {unread.examples[why]!r}")
            for series in found:
                key, group = self._place(series)
                if all(key):
                    buffer.add(key, series.times, series.values)
                    self._groups[key] = group
            buffer.asked_until = end
        buffer.forget(end - span)
        return buffer

    def _place(self, series: Series) -> tuple[Key, str]:
        """Return task and machine of a series, and the group; empty where nobody says it."""
        labels, names = series.labels, self.settings
        machine = labels.get(names.machine_label, "")
        if self._members is not None:
            return (self._members.task.get(machine, ""), machine), self._members.group.get(
                machine, ""
            )
        return (labels.get(names.task_label, ""), machine), labels.get(names.group_label, "")

    def series(self, metric: str, task: str, grid: TaskGrid, end: int, span: int) -> Floats | None:
        """Return a metric of a task on its grid; None if nobody sends it."""
        buffer = self.fetch(metric, end, span)
        keys = [(task, machine) for machine in grid.machines]
        known = [number for number, key in enumerate(keys) if key in buffer.times]
        if not known:
            return None
        times = [buffer.times[keys[number]] for number in known]
        machine = np.repeat(np.array(known, dtype=np.int64), [len(one) for one in times])
        values = np.concatenate([buffer.values[keys[number]] for number in known])
        laid = grid.with_samples(machine, np.concatenate(times))
        return laid.place(values.astype(np.float32))


@dataclass(frozen=True, slots=True)
class LivePull(Pull):
    """A task as Prometheus has it; a metric is asked for when the detector wants it."""

    source: LiveMetrics
    end: int
    span: int

    def series(self, name: str) -> Floats | None:
        """Return a metric (`Pull.series`)."""
        return self.source.series(name, self.name, self.grid, self.end, self.span)
