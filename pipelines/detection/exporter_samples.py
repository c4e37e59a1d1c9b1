"""Samples of machine metrics from series of node_exporter and dcgm-exporter in Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forewarn.features.array_types import Float64Array
from forewarn.features.detection.exporter_series import (
    METRIC_SERIES,
    ExporterSeries,
    combine_samples,
    counter_rates,
)
from forewarn.features.telemetry.parsers.dcgm_metrics import BLANK_THRESHOLD
from forewarn.features.telemetry.parsers.prometheus_answers import Series, parse_matrix
from forewarn.pipelines.ingest.target_names import TargetNames
from forewarn.pipelines.runtime.progress import note

__all__ = ["BLANK_COUNTER", "ExporterSamples"]

BLANK_COUNTER = 2.0**62  # a DCGM exporter reports 2^63 - 16 for missing values
_SeriesKey = frozenset[tuple[str, str]]
Query = Callable[[str, int, int], Any]


@dataclass(slots=True)
class ExporterSamples:
    """Finds the series of a metric, and remembers the last sample of each counter.

    Attributes
    ----------
    query : callable
        Returns the samples of a selector in a span before a time (nanoseconds).
    matchers : str
        Label matchers of the site.
    machine_label : str
        Label that names the machine, where a series has it.
    """

    query: Query
    matchers: str
    machine_label: str
    _sources: dict[str, list[ExporterSeries]] = field(default_factory=dict)
    _last: dict[_SeriesKey, tuple[float, float]] = field(default_factory=dict)
    _names: TargetNames = field(init=False)

    def __post_init__(self) -> None:
        self._names = TargetNames(self.query, matchers=self.matchers)

    def samples(
        self, metric: str, end: int, span: int
    ) -> Iterator[tuple[Mapping[str, str], str, Float64Array, Float64Array]]:
        """Yield labels, machine, times (s) and values of each machine in (end - span, end]."""
        answered, machines, names = [], set[str](), set[str]()
        for source in self._sources.get(metric) or METRIC_SERIES.get(metric, ()):
            answer = self.query(source.selector(self.matchers), end, span)
            matrix, _ = parse_matrix(answer, BLANK_COUNTER if source.counter else BLANK_THRESHOLD)
            by_machine = self._by_machine([s for s in matrix if s.times], end)
            if by_machine:
                answered.append(source)
            for machine, series in by_machine.items():
                if machine not in machines:
                    names |= {part.labels.get("__name__", "") for part in series}
                    parts = [(part.times, self._values(source, part)) for part in series]
                    yield series[0].labels, machine, *combine_samples(source, parts)
            machines |= by_machine.keys()
        if answered and metric not in self._sources:
            listed = ", ".join(sorted(names))
            note(f"{metric}: computed from {listed} of {len(machines)} machines")
            self._sources[metric] = answered

    def _values(self, source: ExporterSeries, series: Series) -> Float64Array:
        """Return values; of a counter the increase per second, also since the last call."""
        times, values = np.asarray(series.times), np.asarray(series.values)
        if not source.counter:
            return values
        key = frozenset(series.labels.items())
        before = self._last.get(key)
        self._last[key] = (series.times[-1], series.values[-1])
        if before is None:
            return counter_rates(times, values)
        return counter_rates(np.append(before[0], times), np.append(before[1], values))[1:]

    def _by_machine(self, matrix: Sequence[Series], end: int) -> dict[str, list[Series]]:
        by_machine: dict[str, list[Series]] = {}
        for series in matrix:
            machine = self._machine(series.labels, end)
            if machine is not None:
                by_machine.setdefault(machine, []).append(series)
        return by_machine

    def _machine(self, labels: Mapping[str, str], end: int) -> str | None:
        """Return the machine of a series; `instance` has the port of its exporter."""
        if self.machine_label != "instance" and labels.get(self.machine_label):
            return labels[self.machine_label]
        return self._names.machine(labels, end)
