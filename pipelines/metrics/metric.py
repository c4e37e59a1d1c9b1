"""A declared metric: name, type, meaning and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final, Literal

__all__ = ["BASE_UNITS", "Metric", "counter", "gauge", "histogram"]

BASE_UNITS: Final = ("seconds", "ratio")
"""Units of values; they are the last part of a name, as OpenMetrics has it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that forewarn exposes.

    Attributes
    ----------
    name : str
        Without the suffix `_total` of a counter's samples.
    kind : str
        `counter`, `gauge` or `histogram`.
    help : str
        One sentence.
    labels : mapping of str to tuple of str
        Values of each label; empty if the values are those of a site, such as its pools.
    bounds : tuple of float
        Upper bounds of the buckets of a histogram, without infinity.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """Unit of the value; empty for a plain number.

        Examples
        --------
        >>> gauge("forewarn_list_time_seconds", "Time of the list.").unit
        'seconds'
        """
        last = self.name.rsplit("_", 1)[-1]
        return last if last in BASE_UNITS else ""

    @property
    def sample(self) -> str:
        """Name of the samples, as queries write it; a histogram's have further suffixes."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def known_labels(self) -> Iterator[tuple[str, ...]]:
        """Yield each combination of label values that is known without a site."""
        yield from product(*self.labels.values())


def counter(name: str, text: str, **labels: tuple[str, ...]) -> Metric:
    """Declare a counter."""
    return Metric(name, "counter", text, labels)


def gauge(name: str, text: str, **labels: tuple[str, ...]) -> Metric:
    """Declare a gauge."""
    return Metric(name, "gauge", text, labels)


def histogram(name: str, text: str, bounds: tuple[float, ...], **labels: tuple[str, ...]) -> Metric:
    """Declare a histogram."""
    return Metric(name, "histogram", text, labels, bounds)
