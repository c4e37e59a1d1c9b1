"""Series of one GPU, joined by interval and weighted by their number of samples."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass, field, replace

from forewarn.features.telemetry.parsers.dcgm_metrics import METRICS, Metric
from forewarn.features.telemetry.parsers.prometheus_answers import GpuLabels

__all__ = ["GpuSeries", "LabelGroup", "Row"]

Row = MutableSequence[float]  # a value per interval, NaN if missing


@dataclass(slots=True, eq=False)
class LabelGroup:
    """Series that share the labels of GPU and machine.

    Attributes
    ----------
    counts : array of float
        Number of samples in each interval.
    """

    counts: array[float]

    def weight(self, index: int) -> float:
        """Return the weight of this group's mean in an interval."""
        count = self.counts[index]
        return count if count > 0 else 1.0

    def span(self) -> tuple[int, int]:
        """Return the last and the first interval with samples, (-1, -1) if there are none."""
        seen = [i for i, count in enumerate(self.counts) if count > 0]
        return (seen[-1], seen[0]) if seen else (-1, -1)


@dataclass(slots=True)
class GpuSeries:
    """The series of a GPU on one machine.

    Attributes
    ----------
    labels : GpuLabels
    machine : str or None
    identity : tuple of (str, str)
        Label and value that select its series.
    values : dict
        By column and part: rows with their groups.
    described : dict of int to GpuLabels
        By interval.
    """

    labels: GpuLabels
    machine: str | None
    identity: tuple[str, str]
    values: dict[tuple[str, int], list[tuple[LabelGroup, Row]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    described: dict[int, GpuLabels] = field(default_factory=dict)

    def describe(self, labels: GpuLabels, index: int) -> None:
        """Record the labels of a series in an interval; labels of the whole GPU win."""
        known = self.described.get(index)
        if known is None or (known.part is not None and labels.part is None):
            self.described[index] = labels

    def labels_at(self, index: int) -> GpuLabels:
        """Return the labels in an interval, else the latest ones."""
        labels = self.described.get(index, self.labels)
        return labels if labels.serial else replace(labels, serial=self.labels.serial)

    def numbers(self, index: int) -> Iterator[tuple[str, float]]:
        """Yield the columns of an interval."""
        for metric in METRICS:
            if metric.over == "change":
                continue
            parts = [self.joined(metric, part, index) for part in range(len(metric.names))]
            known = [value for value in parts if value is not None]
            if known and (len(known) == len(parts) or not metric.needs_all):
                yield metric.column, math.fsum(known) * metric.scale

    def joined(self, metric: Metric, part: int, index: int) -> float | None:
        """Return the value of a part of a column in an interval, joined over all groups."""
        rows = self.values.get((metric.column, part), ())
        known = [(group, row[index]) for group, row in rows if not math.isnan(row[index])]
        if len(known) < 2:
            return known[0][1] if known else None
        if metric.over in ("mean", "share"):
            weights = [group.weight(index) for group, _ in known]
            pairs = zip(weights, (value for _, value in known), strict=True)
            return math.fsum(weight * value for weight, value in pairs) / math.fsum(weights)
        if metric.over == "last":
            return max(known, key=lambda item: (item[0].span(), item[1]))[1]
        return max(value for _, value in known)

    def row(self, column: str, n: int) -> list[float]:
        """Return the largest value of a column in each interval, NaN if missing."""
        rows = [row for _, row in self.values.get((column, 0), ())]
        return [
            max((row[i] for row in rows if not math.isnan(row[i])), default=math.nan)
            for i in range(n)
        ]
