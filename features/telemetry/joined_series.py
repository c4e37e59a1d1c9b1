"""One GPU whose values come in several series: joined by interval, each series by its weight."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass, field, replace

from forewarn.features.telemetry.parsers.dcgm_metrics import METRICS, Metric
from forewarn.features.telemetry.parsers.prometheus_answers import GpuLabels

__all__ = ["GpuSeries", "LabelGroup", "Row"]

Row = MutableSequence[float]  # a value for each interval, NaN where there is none


@dataclass(slots=True, eq=False)
class LabelGroup:
    """Series that have the labels of GPU and machine in common.

    Attributes
    ----------
    counts : array of float
        Samples in each interval.
    """

    counts: array[float]

    def weight(self, index: int) -> float:
        """Return how much a mean of this group counts in an interval."""
        count = self.counts[index]
        return count if count > 0 else 1.0

    def span(self) -> tuple[int, int]:
        """Return the last and the first interval with samples, (-1, -1) without any."""
        seen = [i for i, count in enumerate(self.counts) if count > 0]
        return (seen[-1], seen[0]) if seen else (-1, -1)


@dataclass(slots=True)
class GpuSeries:
    """A GPU on one machine.

    Attributes
    ----------
    labels : GpuLabels
    machine : str or None
    identity : tuple of (str, str)
        Label and value by which its series can be asked for.
    values : dict
        By column and part of it, rows with the groups that they are of.
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
        """Take the labels of a series in an interval; those of the whole GPU count."""
        known = self.described.get(index)
        if known is None or (known.part is not None and labels.part is None):
            self.described[index] = labels

    def labels_at(self, index: int) -> GpuLabels:
        """Return the labels in an interval, or those that it had at last."""
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
        """Return the value of a part of a column in an interval over all groups."""
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
        """Return the largest value of a column in each interval, NaN where there is none."""
        rows = [row for _, row in self.values.get((column, 0), ())]
        return [
            max((row[i] for row in rows if not math.isnan(row[i])), default=math.nan)
            for i in range(n)
        ]
