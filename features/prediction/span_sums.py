"""What channels add up to in the spans of instances, for whoever looks at the same spans again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from forewarn.features.array_types import Float64Array, Int64Array

__all__ = ["GatheredSums", "SpanSums"]


@dataclass(frozen=True, slots=True)
class SpanSums:
    """What a channel adds up to in k spans of n instances, each of shape (k, n).

    `squares` is empty for a channel that counts.
    """

    total: Float64Array
    count: Float64Array
    squares: Float64Array = field(default_factory=lambda: np.zeros((0, 0)))


class GatheredSums:
    """The sums of instances, gathered slice by slice of a fleet."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Int64Array, SpanSums]]] = {}

    def put(self, channel: str, rows: Int64Array, sums: SpanSums) -> None:
        """Take what a slice says of a channel.

        Parameters
        ----------
        channel : str
        rows : ndarray, int64
            Which of all instances those of the slice are.
        sums : SpanSums
        """
        self._parts.setdefault(channel, []).append((rows, sums))

    def sums(self, n: int) -> dict[str, SpanSums]:
        """Return the sums of all n instances by channel."""
        return {channel: _joined(parts, n) for channel, parts in self._parts.items()}


def _joined(parts: list[tuple[Int64Array, SpanSums]], n: int) -> SpanSums:
    """Return the sums of all n instances."""

    def column(name: str) -> Float64Array:
        values = np.empty((len(getattr(parts[0][1], name)), n))
        for rows, sums in parts if len(values) else ():
            values[:, rows] = getattr(sums, name)
        return values

    return SpanSums(column("total"), column("count"), column("squares"))
