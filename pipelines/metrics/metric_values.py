"""Values of declared metrics, and their text for a scrape or a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from forewarn.pipelines.metrics.metric import Metric

__all__ = ["Distribution", "MetricValues"]

LabelValues = tuple[str, ...]
AnyLabels = TypeVar("AnyLabels", bound=tuple[str, ...])
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


@dataclass(frozen=True, slots=True)
class Distribution:
    """Value of a histogram.

    Attributes
    ----------
    counts : tuple of int
        Observations up to each bound, then all of them.
    total : float
        Sum of the observations.
    """

    counts: tuple[int, ...]
    total: float = 0.0


class MetricValues(Collector):
    """Values of one source, for several threads at once.

    A counter has a sample of 0 for each known combination of labels from the start: `increase` does
    not see the first increment of a series that begins above 0.

    Parameters
    ----------
    metrics : sequence of Metric
        Others cannot be set.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[LabelValues, float]] = {}
        self._functions: dict[str, Callable[[], float]] = {}
        self._distributions: dict[str, dict[LabelValues, Distribution]] = {}
        self._metrics = {metric.name: metric for metric in metrics}
        for metric in metrics:
            known = metric.known_labels() if metric.kind == "counter" else ()
            self._values[metric.name] = dict.fromkeys(known, 0.0)
            if metric.kind == "histogram":
                nothing = Distribution((0,) * (len(metric.bounds) + 1))
                zeros = dict.fromkeys(metric.known_labels(), nothing)
                self._distributions[metric.name] = zeros

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a value; the labels are in the order of the declaration."""
        with self._lock:
            self._values[metric.name][self._checked(metric, labels)] = float(value)

    def add(self, metric: Metric, amount: float = 1.0, *labels: str) -> None:
        """Increase a value."""
        with self._lock:
            values = self._values[metric.name]
            values[labels] = values.get(self._checked(metric, labels), 0.0) + amount

    def replace(self, metric: Metric, values: Mapping[AnyLabels, float]) -> None:
        """Set all series of a metric at once; others end. Zeros of counters stay."""
        new: dict[LabelValues, float] = {
            self._checked(metric, labels): float(value) for labels, value in values.items()
        }
        zeros = metric.known_labels() if metric.kind == "counter" else ()
        with self._lock:
            self._values[metric.name] = {**dict.fromkeys(zeros, 0.0), **new}

    def replace_distributions(
        self, metric: Metric, distributions: Mapping[AnyLabels, Distribution]
    ) -> None:
        """Set all series of a histogram at once; others end."""
        new = {self._checked(metric, labels): value for labels, value in distributions.items()}
        with self._lock:
            self._distributions[metric.name] = dict(new)

    def watch(self, metric: Metric, value: Callable[[], float]) -> None:
        """Evaluate a gauge without labels at each scrape."""
        self._checked(metric, ())
        self._functions[metric.name] = value

    def clear(self, *metrics: Metric) -> None:
        """End all series of these metrics."""
        with self._lock:
            for metric in metrics:
                self._values[metric.name] = {}

    def collect(self) -> Iterator[Family]:
        """Yield each metric that has a value."""
        computed = {name: {(): float(value())} for name, value in self._functions.items()}
        with self._lock:
            stored = self._values | computed
            copies = {name: dict(values) for name, values in stored.items() if values}
            distributions = {
                name: dict(values) for name, values in self._distributions.items() if values
            }
        for name, values in copies.items():
            metric = self._metrics[name]
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, metric.help, labels=tuple(metric.labels), unit=metric.unit)
            for labels, value in sorted(values.items()):
                family.add_metric(labels, value)
            yield family
        for name, values_by_labels in distributions.items():
            yield _histogram_family(self._metrics[name], values_by_labels)

    def text(self) -> bytes:
        """Return all values in the text format of Prometheus."""
        return generate_latest(self)

    def negotiated(self, accept: str) -> tuple[bytes, str]:
        """Return the text in the best format that a scraper accepts, and its content type.

        Parameters
        ----------
        accept : str
            The header `Accept` of the request.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type

    def _checked(self, metric: Metric, labels: LabelValues) -> LabelValues:
        if len(labels) != len(metric.labels):
            expected = ", ".join(metric.labels) or "no label"
            raise ValueError(f"{metric.name} has the labels {labels}, expected {expected}")
        return labels


def _histogram_family(
    metric: Metric, distributions: Mapping[LabelValues, Distribution]
) -> HistogramMetricFamily:
    names = tuple(metric.labels)
    family = HistogramMetricFamily(metric.name, metric.help, labels=names, unit=metric.unit)
    bounds = [*(repr(float(bound)) for bound in metric.bounds), "+Inf"]
    for labels, value in sorted(distributions.items()):
        family.add_metric(labels, list(zip(bounds, value.counts, strict=True)), value.total)
    return family
