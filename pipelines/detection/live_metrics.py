"""Reads the metrics of running tasks from Prometheus, incrementally."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int64Array
from forewarn.features.detection.sample_grid import TaskGrid
from forewarn.features.detection.sampling import Sampling
from forewarn.features.telemetry.parsers.dcgm_metrics import BLANK_THRESHOLD
from forewarn.features.telemetry.parsers.prometheus_answers import Series, parse_matrix
from forewarn.features.time_units import SECOND
from forewarn.pipelines.config.settings import WatchTable
from forewarn.pipelines.detection.exporter_files import ExporterFiles
from forewarn.pipelines.detection.exporter_samples import BLANK_COUNTER, ExporterSamples
from forewarn.pipelines.detection.task_members import Membership
from forewarn.pipelines.detection.task_metrics import Pull
from forewarn.pipelines.ingest.prometheus_client import (
    PrometheusClient,
    PrometheusError,
    QueryTooLargeError,
)
from forewarn.pipelines.runtime.progress import note

__all__ = ["LiveMetrics"]

Key = tuple[str, str]


@dataclass(slots=True)
class _Buffer:
    """The samples of one metric that were fetched so far, by (task, machine)."""

    asked_until: int = 0
    times: dict[Key, Int64Array] = field(default_factory=dict)
    values: dict[Key, Float64Array] = field(default_factory=dict)
    computed: set[Key] = field(default_factory=set)  # from exporters, rather than by its name

    def add(self, key: Key, times: Sequence[float], values: Sequence[float]) -> None:
        """Append new samples; a sample that a server returns twice counts once."""
        nanoseconds = np.round(np.asarray(times) * SECOND).astype(np.int64)
        known = self.times.get(key, np.empty(0, dtype=np.int64))
        new = nanoseconds > (known[-1] if len(known) else -1)
        self.times[key] = np.concatenate([known, nanoseconds[new]])
        before = self.values.get(key, np.empty(0))
        self.values[key] = np.concatenate([before, np.asarray(values, dtype=np.float64)[new]])

    def forget(self, before: int) -> None:
        """Drop samples up to a time, and series without samples."""
        for key in list(self.times):
            keep = self.times[key] > before
            if keep.any():
                self.times[key], self.values[key] = self.times[key][keep], self.values[key][keep]
            else:
                del self.times[key], self.values[key]


def _merge_series(parts: Sequence[Series]) -> tuple[Sequence[float], Sequence[float]]:
    """Merge several series into one; samples with the same time are averaged.

    A machine has several series if a label changes, such as the pod, or one per GPU.
    """
    if len(parts) == 1:
        return parts[0].times, parts[0].values
    times = np.concatenate([np.asarray(part.times) for part in parts])
    values = np.concatenate([np.asarray(part.values) for part in parts])
    distinct, position = np.unique(times, return_inverse=True)
    means = np.bincount(position, weights=values) / np.bincount(position)
    return distinct.tolist(), means.tolist()


@dataclass(slots=True)
class LiveMetrics:
    """The latest samples of all tasks; each call fetches only new samples.

    Attributes
    ----------
    server : PrometheusClient or ExporterFiles
    settings : WatchTable
    interval : int
        Nanoseconds between two samples of a machine.
    tasks : Path or None
        Table that assigns machines to tasks (`Membership`); without it, labels do.
    sampling : Sampling
    """

    server: PrometheusClient | ExporterFiles
    settings: WatchTable
    interval: int
    tasks: Path | None = None
    sampling: Sampling = field(default_factory=Sampling)
    _buffers: dict[str, _Buffer] = field(default_factory=dict, init=False, repr=False)
    _groups: dict[Key, str] = field(default_factory=dict, init=False, repr=False)
    _members: Membership | None = field(default=None, init=False, repr=False)
    _since: dict[Key, int] = field(default_factory=dict, init=False, repr=False)
    _exporters: ExporterSamples = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = self.settings
        self._exporters = ExporterSamples(self._answer, table.selector, table.machine_label)

    def pulls(self, first: str, end: int, span: int) -> Iterator[LivePull]:
        """Yield every task that has samples of a metric in (end - span, end].

        Parameters
        ----------
        first : str
            The metric examined first; the others are fetched when they are needed.
        end, span : int
            Nanoseconds.

        Raises
        ------
        PrometheusError
            If the query fails. Samples fetched earlier are kept.
        """
        self.read_tasks(end)
        buffer = self.fetch(first, end, span)
        self._groups = {key: group for key, group in self._groups.items() if key in buffer.times}
        for name, machines in sorted(self._at_work(buffer).items()):
            n_ticks = span // self.interval
            begin = end // self.interval - n_ticks + 1
            grid = TaskGrid(machines, begin, self.interval, n_ticks, np.empty(0, np.int64), ())
            labels = [self._group(name, machine) for machine in machines]
            groups = np.unique(labels, return_inverse=True)[1].astype(np.int64)
            yield LivePull(name, grid, groups, tuple(labels), self.sampling, self, end, span)

    def read_tasks(self, end: int) -> None:
        """Read the table of tasks, if there is one.

        Record since when each machine works on its task; earlier samples do not belong to it.
        """
        if self.tasks is None:
            return
        members = Membership.open(self.tasks)
        # The start time of the assignments in the first table is unknown.
        new = 0 if self._members is None else end
        keys = [(task, machine) for machine, task in members.task.items()]
        self._since = {key: self._since.get(key, new) for key in keys}
        self._members = members

    def _at_work(self, buffer: _Buffer) -> dict[str, tuple[str, ...]]:
        """Return the machines of every task that has any."""
        keys = buffer.times if self._members is None else self._since
        by_task: dict[str, list[str]] = {}
        for task, machine in sorted(keys):
            if len(self._samples(buffer, task, machine)[0]):
                by_task.setdefault(task, []).append(machine)
        return {task: tuple(machines) for task, machines in by_task.items()}

    def _group(self, task: str, machine: str) -> str:
        if self._members is not None:
            return self._members.group[machine]
        return self._groups.get((task, machine), "")

    def _samples(self, buffer: _Buffer, task: str, machine: str) -> tuple[Int64Array, Float64Array]:
        """Return times and values of a machine since it was assigned to its task."""
        key = (task if self._members is None else "", machine)
        times = buffer.times.get(key, np.empty(0, dtype=np.int64))
        first = np.searchsorted(times, self._since.get((task, machine), 0), side="right")
        return times[first:], buffer.values.get(key, np.empty(0))[first:]

    def fetch(self, metric: str, end: int, span: int) -> _Buffer:
        """Fetch the samples of a metric that are missing so far."""
        buffer = self._buffers.setdefault(metric, _Buffer())
        begin = max(end - span, buffer.asked_until)
        if begin < end:
            has_task = "" if self._members is not None else f'{self.settings.task_label}!=""'
            inside = ",".join(matcher for matcher in (has_task, self.settings.selector) if matcher)
            answer = self._answer(f"{metric}{{{inside}}}", end, end - begin)
            counts = metric in self.sampling.counters
            matrix, unread = parse_matrix(answer, BLANK_COUNTER if counts else BLANK_THRESHOLD)
            for why, count in unread.counts.items():
                note(f"{metric}: {why} ({count} times), such as {unread.examples[why]!r}")
            for key, of_machine in self._by_machine(matrix).items():
                buffer.add(key, *_merge_series(of_machine))
                newest = max(of_machine, key=lambda series: series.times[-1:])
                self._groups[key] = newest.labels.get(self.settings.group_label, "")
            if not (counts or matrix or buffer.times.keys() - buffer.computed):
                self._compute(metric, buffer, end, end - begin)
            buffer.asked_until = end
        buffer.forget(end - span)
        return buffer

    def _compute(self, metric: str, buffer: _Buffer, end: int, span: int) -> None:
        """Add samples of a metric that exporters have under names of their own."""
        without_task = 0
        for labels, machine, times, values in self._exporters.samples(metric, end, span):
            task = labels.get(self.settings.task_label, "")
            if self._members is not None:
                task = ""
            elif not task:
                without_task += 1
                continue
            buffer.computed.add((task, machine))
            buffer.add((task, machine), times.tolist(), values.tolist())
            self._groups[task, machine] = labels.get(self.settings.group_label, "")
        if without_task:
            note(
                f"{metric}: the series of {without_task} machines have no label "
                f"`{self.settings.task_label}`. Name a table task,machine in `[watch] tasks`, or "
                "another label in `task_label`"
            )

    def _answer(self, selector: str, end: int, span: int) -> Any:
        try:
            return self.server.samples(selector, end, span)
        except QueryTooLargeError:
            raise PrometheusError(
                f"{self.server.url}: the answer to {selector} is too large."
            ) from None

    def _by_machine(self, matrix: Sequence[Series]) -> dict[Key, list[Series]]:
        """Return the series of each task and machine, ignoring other labels."""
        by_machine: dict[Key, list[Series]] = {}
        for series in matrix:
            task = series.labels.get(self.settings.task_label, "")
            machine = series.labels.get(self.settings.machine_label, "")
            if machine and (task or self._members is not None):
                key = (task if self._members is None else "", machine)
                by_machine.setdefault(key, []).append(series)
        return by_machine

    def series(
        self, metric: str, task: str, grid: TaskGrid, end: int, span: int
    ) -> Float32Array | None:
        """Return a metric of a task on its grid; None if no machine sends it."""
        samples = self._on_grid(metric, task, grid, end, span)
        if samples is None:
            return None
        laid, times, values = samples
        slowest = self.sampling.max_sample_ticks
        if metric in self.sampling.counters:
            return laid.increases_on_ticks(values, times, slowest)
        return laid.on_ticks(values.astype(np.float32), slowest)

    def as_sent(
        self, metric: str, task: str, grid: TaskGrid, end: int, span: int
    ) -> Float64Array | None:
        """Return a metric as sent, without filled gaps; None if no machine sends it."""
        samples = self._on_grid(metric, task, grid, end, span)
        return None if samples is None else samples[0].as_sent(samples[2])

    def _on_grid(
        self, metric: str, task: str, grid: TaskGrid, end: int, span: int
    ) -> tuple[TaskGrid, Int64Array, Float64Array] | None:
        """Return a grid for the samples of a metric, their times and values."""
        buffer = self.fetch(metric, end, span)
        parts = [self._samples(buffer, task, machine) for machine in grid.machines]
        lengths = [len(times) for times, _ in parts]
        if not any(lengths):
            return None
        machine = np.repeat(np.arange(len(parts)), lengths)
        times, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        return grid.with_samples(machine, times), times, values


@dataclass(frozen=True, slots=True)
class LivePull(Pull):
    """A task in Prometheus; a metric is fetched when the detector needs it."""

    source: LiveMetrics
    end: int
    span: int

    def series(self, name: str) -> Float32Array | None:
        """Return a metric (`Pull.series`)."""
        return self.source.series(name, self.name, self.grid, self.end, self.span)

    def as_sent(self, name: str) -> Float64Array | None:
        """Return a metric as sent, at full precision, shape (n_machines, n_ticks)."""
        return self.source.as_sent(name, self.name, self.grid, self.end, self.span)
