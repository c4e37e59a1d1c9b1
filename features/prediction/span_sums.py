"""Sums of channels over the spans of instances, kept for reuse."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from forewarn.features.array_types import Float64Array, Int64Array

__all__ = ["GatheredSums", "SpanSums"]


@dataclass(frozen=True, slots=True)
class SpanSums:
    """Sums of a channel over k spans of n instances, each of shape (k, n).

    `squares` is empty for a counting channel.
    """

    total: Float64Array
    count: Float64Array
    squares: Float64Array = field(default_factory=lambda: np.zeros((0, 0)))


class GatheredSums:
    """Sums of instances, gathered slice by slice."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Int64Array, SpanSums]]] = {}

    def put(self, channel: str, rows: Int64Array, sums: SpanSums) -> None:
        """Add the sums of a channel from one slice.

        Parameters
        ----------
        channel : str
        rows : ndarray, int64
            Numbers of the slice's instances among all instances.
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
