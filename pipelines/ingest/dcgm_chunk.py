"""Readings and events of all GPUs of a Prometheus server for some intervals."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.telemetry.exporter_events import XID_WINDOW, exporter_events
from forewarn.features.telemetry.gauge_events import Sample
from forewarn.features.telemetry.joined_series import GpuSeries, LabelGroup, Row
from forewarn.features.telemetry.parsers.dcgm_metrics import (
    FAULT_CODE,
    FAULT_CODE_METRICS,
    HARDWARE_THROTTLE,
    METRICS,
    XID_COUNT_METRIC,
    throttled_by_hardware,
)
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.machine_label import (
    MACHINE_LABELS,
    LabelObservation,
    MachineLabels,
)
from forewarn.features.telemetry.parsers.prometheus_answers import (
    GPU_LABELS,
    Series,
    exporter_name,
    parse_gpu_labels,
    parse_matrix,
)
from forewarn.features.telemetry.telemetry_rows import HostState, reading_row
from forewarn.features.time_units import HOUR, SECOND
from forewarn.pipelines.ingest.dcgm_queries import (
    label_observations_query,
    metric_query,
    minimum_query,
    samples_query,
    xid_count_query,
)
from forewarn.pipelines.ingest.prometheus_client import PrometheusClient

__all__ = ["DcgmChunk", "observe_labels"]

_GROUP = (*GPU_LABELS, *MACHINE_LABELS)
_GPUS_PER_QUERY = 100  # limit of GPUs in one query of samples
# How long before the first sample of a GPU an earlier value of its Xid gauge may lie.
_MAX_LOOKBACK = 6 * HOUR
_STATES = ("xid", "recovery_action", "row_remap_failure", FAULT_CODE)
_MIN_XID = "least xid"
_METRIC = {metric.column: metric for metric in METRICS}
GpuKey = tuple[str, str | None]
_Membership = tuple[GpuKey, LabelGroup]


def observe_labels(
    server: PrometheusClient, first: int, last: int, step: int, interval: int
) -> list[LabelObservation]:
    """Return the labels of each GPU in some intervals.

    Parameters
    ----------
    server : PrometheusClient
    first, last, step : int
        Ends of the intervals, nanoseconds.
    interval : int
        Nanoseconds.
    """
    matrix, _ = parse_matrix(
        server.query_range(label_observations_query(interval // SECOND), first, last, step)
    )
    seen = [(parse_gpu_labels(series.labels), series) for series in matrix]
    return [
        LabelObservation(labels.gpu, labels.slot, series.labels, series.times)
        for labels, series in seen
        if labels.gpu is not None
    ]


@dataclass(slots=True)
class DcgmChunk:
    """Some intervals of all GPUs of a server.

    Attributes
    ----------
    server : PrometheusClient
    machines : MachineLabels
    first, last : int
        Ends of the first and the last interval, nanoseconds since 1970 UTC.
    interval : int
        Nanoseconds.
    unread : Unread
    parts : set of (str, str)
        GPUs that have only series of MIG instances, with these instances.
    nameless : set of str
        GPUs without a label that names the machine.
    """

    server: PrometheusClient
    machines: MachineLabels
    first: int
    last: int
    interval: int
    unread: Unread = field(default_factory=Unread)
    parts: set[tuple[str, str]] = field(default_factory=set)
    nameless: set[str] = field(default_factory=set)
    _gpus: dict[GpuKey, GpuSeries] = field(default_factory=dict)
    _memberships: dict[tuple[str | None, ...], _Membership | None] = field(default_factory=dict)
    _counted: dict[GpuKey, set[int]] = field(default_factory=lambda: defaultdict(set))

    @property
    def _start(self) -> int:
        """The end of the interval before the first, with which changes are compared."""
        return self.first - self.interval

    @property
    def _n(self) -> int:
        return (self.last - self._start) // self.interval + 1

    @property
    def _indexes(self) -> range:
        return range(1, self._n)

    def query(self) -> None:
        """Query the values of all metrics and join the series of each GPU.

        Raises
        ------
        PrometheusError
            If the server cannot be queried.
        QueryTooLargeError
            If there are too many intervals.
        """
        seconds = self.interval // SECOND
        self._observe(label_observations_query(seconds))
        for metric in METRICS:
            for part in range(len(metric.names)):
                self._add_values((metric.column, part), metric_query(metric, part, seconds))
        self._add_values((_MIN_XID, 0), minimum_query(_METRIC["xid"], seconds))
        for series in self._matrix(xid_count_query(seconds), self.first):
            membership = self._membership(series.labels)
            if membership is not None:
                self._counted[membership[0]].update(map(self._index, series.times))
        self._compute_throttle_share()

    def readings(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of READINGS."""
        for key, gpu in self._gpus.items():
            xids = gpu.row("xid", self._n)
            for index in self._indexes:
                numbers = dict(gpu.numbers(index))
                if numbers:
                    logged = not math.isnan(xids[index]) or index in self._counted.get(key, ())
                    state = HostState(gpu.machine, self._time(index), log_read=logged)
                    yield reading_row(gpu.labels_at(index).reading(numbers), state)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of EVENTS, at the times of their first samples.

        Raises
        ------
        PrometheusError
            If the server cannot be queried.
        QueryTooLargeError
            If there are too many samples.
        """
        states: dict[GpuKey, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        for column in _STATES:
            names = (FAULT_CODE_METRICS,) if column == FAULT_CODE else _METRIC[column].names[0]
            for reach, gpus in self._changed(column).items():
                for key, _, sample in self._samples(names, gpus, reach):
                    states[key][column].append(sample)
        counted: dict[GpuKey, dict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        for key, labels, sample in self._samples((XID_COUNT_METRIC,), self._counted, XID_WINDOW):
            code = labels.get("xid", "")
            if code.isascii() and code.isdigit() and len(code) < 6 and int(code):
                counted[key][int(code)].append(sample)
        for key in {**states, **counted}:
            gpu = self._gpus[key]
            rows = exporter_events(gpu.labels, gpu.machine, states[key], counted[key])
            yield from (row for row in rows if self._start < row["timestamp"] <= self.last)

    def _changed(self, column: str) -> dict[int, list[GpuKey]]:
        """Return GPUs with a possible change of a column, by the needed lookback."""
        changed: dict[int, list[GpuKey]] = defaultdict(list)
        for key, gpu in self._gpus.items():
            least = gpu.row(_MIN_XID, self._n) if column == "xid" else None
            largest = gpu.row(column, self._n)
            reach = _lookback(least or largest, largest, self.interval)
            if reach is not None:
                changed[reach].append(key)
        return changed

    def _observe(self, query: str) -> None:
        """Collect the GPUs and the number of samples of each group of series."""
        whole = set()
        for series in self._matrix(query, self._start):
            membership = self._membership(series.labels)
            if membership is None:
                continue
            key, group = membership
            labels, gpu = parse_gpu_labels(series.labels), self._gpus[key]
            for time, count in zip(series.times, series.values, strict=True):
                index = self._index(time)
                before = group.counts[index]
                # Instances are scraped together, other series one after another.
                group.counts[index] = before + count if labels.part is None else max(before, count)
                gpu.describe(labels, index)
            if labels.part is None:
                whole.add(key[0])
            else:
                self.parts.add((key[0], labels.part))
        self.parts = {part for part in self.parts if part[0] not in whole}

    def _add_values(self, column: tuple[str, int], query: str) -> None:
        watched = column[0] in (*_STATES, _MIN_XID)
        for series in self._matrix(query, self._start if watched else self.first):
            membership = self._membership(series.labels)
            if membership is not None:
                key, group = membership
                self._gpus[key].values[column].append((group, self._row(series)))

    def _compute_throttle_share(self) -> None:
        """Replace throttle reasons by the share of samples that hardware throttled.

        PromQL has no bit operations, so samples are read where a bit may be set.
        """
        column = ("throttle_hardware", 0)
        suspects = []
        for key, gpu in self._gpus.items():
            reasons = gpu.row(column[0], self._n)
            if any(reason >= HARDWARE_THROTTLE for reason in reasons[1:]):
                suspects.append(key)
            if column in gpu.values:
                shares = [reason if math.isnan(reason) else 0.0 for reason in reasons]
                gpu.values[column] = [(LabelGroup(array("d")), shares)]
        throttled: dict[tuple[GpuKey, int], list[bool]] = defaultdict(list)
        for key, _, sample in self._samples(_METRIC[column[0]].names[0], suspects, 0):
            index = self._index(sample[0] / SECOND)
            if 0 < index < self._n:
                throttled[key, index].append(throttled_by_hardware(sample[2]))
        for (key, index), samples in throttled.items():
            ((_, row),) = self._gpus[key].values[column]
            row[index] = sum(samples) / len(samples)

    def _samples(
        self, names: Sequence[str], gpus: Collection[GpuKey], reach: int
    ) -> Iterator[tuple[GpuKey, Mapping[str, str], Sample]]:
        """Yield the raw samples of some GPUs, from `reach` before the intervals on."""
        ids: dict[str, set[str]] = defaultdict(set)
        for key in gpus:
            label, text = self._gpus[key].identity
            ids[label].add(text)
        for label, texts in sorted(ids.items()):
            ordered = sorted(texts)
            for start in range(0, len(ordered), _GPUS_PER_QUERY):
                query = samples_query(names, label, ordered[start : start + _GPUS_PER_QUERY])
                answer = self.server.samples(query, self.last, self.last - self._start + reach)
                yield from self._samples_of(answer, gpus)

    def _samples_of(
        self, answer: Any, gpus: Collection[GpuKey]
    ) -> Iterator[tuple[GpuKey, Mapping[str, str], Sample]]:
        gpu_keys = set(gpus)
        matrix, unread = parse_matrix(answer)
        self.unread.join(unread)
        for series in matrix:
            membership, exporter = self._membership(series.labels), exporter_name(series.labels)
            if membership is not None and membership[0] in gpu_keys:
                for time, value in zip(series.times, series.values, strict=True):
                    yield membership[0], series.labels, (_nanoseconds(time), exporter, value)

    def _matrix(self, query: str, first: int) -> Iterable[Series]:
        series, unread = parse_matrix(
            self.server.query_range(query, first, self.last, self.interval)
        )
        self.unread.join(unread)
        return series

    def _membership(self, labels: Mapping[str, str]) -> _Membership | None:
        """Return the GPU and the group of a series; None if it names no GPU."""
        names = tuple(labels.get(name) or None for name in _GROUP)
        if names not in self._memberships:
            self._memberships[names] = self._new_membership(labels)
        return self._memberships[names]

    def _new_membership(self, labels: Mapping[str, str]) -> _Membership | None:
        gpu = parse_gpu_labels(labels)
        if gpu.gpu is None:
            self.unread.add("a series that names no GPU", str(dict(labels)))
            return None
        machine = self.machines.machine(labels, gpu.gpu)
        if machine is None:
            self.nameless.add(gpu.gpu)
        key = gpu.gpu, machine
        if key not in self._gpus:
            identity = next((name, labels[name]) for name in GPU_LABELS if labels.get(name))
            self._gpus[key] = GpuSeries(gpu, machine, identity)
        return key, LabelGroup(array("d", [0.0]) * self._n)

    def _row(self, series: Series) -> Row:
        row = array("d", [math.nan]) * self._n
        for time, value in zip(series.times, series.values, strict=True):
            row[self._index(time)] = value
        return row

    def _index(self, time: float) -> int:
        """Return the number of the interval of a time; 0 is the one before the first."""
        return -((self._start - _nanoseconds(time)) // self.interval)

    def _time(self, index: int) -> int:
        return self._start + index * self.interval


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1000) * 1_000_000


def _lookback(least: Row, largest: Row, interval: int) -> int | None:
    """Return the lookback before the intervals that samples need; None without a change."""
    reach, before = None, math.nan
    for index, (low, high) in enumerate(zip(least, largest, strict=True)):
        if math.isnan(high):
            continue
        if index and high > 0 and not low == high == before:
            if math.isnan(before):  # an earlier sample may have had the same value
                return _MAX_LOOKBACK
            reach = interval
        before = high if low == high else -1.0
    return reach
