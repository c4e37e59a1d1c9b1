"""What channels add up to in the spans of instances, for whoever looks at the same spans again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.few_hours import FewHours

__all__ = ["GatheredSums", "SpanSums"]

Hourly = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SpanSums:
    """What a channel adds up to in k spans of n instances, each of shape (k, n).

    `squares` is empty for a channel that counts. Of such a one the hourly sums are few, and can be
    kept: what is counted in each hour, and how many of its rows have no reading.
    """

    total: Hourly
    count: Hourly
    squares: Hourly = field(default_factory=lambda: np.zeros((0, 0)))
    hours: tuple[FewHours, FewHours] | None = None


class _Part(NamedTuple):
    """The sums of a slice: of which instances, of which GPUs of the fleet, and what they are."""

    rows: Rows
    gpu: Rows
    sums: SpanSums


class GatheredSums:
    """The sums of instances, gathered slice by slice of a fleet."""

    def __init__(self) -> None:
        self._parts: dict[str, list[_Part]] = {}

    def put(self, channel: str, rows: Rows, gpu: Rows, sums: SpanSums) -> None:
        """Take what a slice says of a channel.

        Parameters
        ----------
        channel : str
        rows : ndarray, int64
            Which of all instances those of the slice are.
        gpu : ndarray, int64
            Numbers of its GPUs in the fleet.
        sums : SpanSums
        """
        self._parts.setdefault(channel, []).append(_Part(rows, gpu, sums))

    def sums(self, n: int) -> dict[str, SpanSums]:
        """Return the sums of all n instances by channel."""
        return {channel: _joined(parts, n) for channel, parts in self._parts.items()}


def _joined(parts: list[_Part], n: int) -> SpanSums:
    """Return the sums of all n instances."""

    def column(name: str) -> Hourly:
        values = np.empty((len(getattr(parts[0].sums, name)), n))
        for part in parts if len(values) else ():
            values[:, part.rows] = getattr(part.sums, name)
        return values

    hours = [(part.sums.hours, part.gpu) for part in parts if part.sums.hours is not None]
    whole = None
    if hours:
        counted, missing = (FewHours.joined([(few[i], gpu) for few, gpu in hours]) for i in (0, 1))
        whole = counted, missing
    return SpanSums(column("total"), column("count"), column("squares"), whole)
