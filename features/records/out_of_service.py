"""Spans in which GPUs were out of service: that one did not fail then says nothing of its health."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.time_units import Nanoseconds

__all__ = ["OutOfService"]


@dataclass(frozen=True, slots=True)
class OutOfService:
    """Spans [start, end) in which GPUs were out of service, in any order; they may overlap.

    Attributes
    ----------
    gpu : ndarray of shape (n,), int32
        Positions in the serials of the records.
    start, end : ndarray of shape (n,), int64
        Nanoseconds since 1970 UTC.
    """

    gpu: npt.NDArray[np.int32]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.gpu)

    @classmethod
    def none(cls) -> OutOfService:
        """Return no span at all."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty.astype(np.int32), empty, empty)

    def within(
        self, gpu: npt.NDArray[np.int32], end: npt.NDArray[np.int64], horizon: Nanoseconds
    ) -> npt.NDArray[np.bool_]:
        """Tell whose GPU was out of service at some time in (end, end + horizon].

        Parameters
        ----------
        gpu, end : ndarray of shape (m,)
            Of instances, by GPU and time.
        horizon : Nanoseconds

        Examples
        --------
        >>> spans = OutOfService(np.array([0]), np.array([30]), np.array([50]))
        >>> spans.within(np.zeros(5, np.int32), np.array([10, 20, 40, 50, 60]), Nanoseconds(10))
        array([False,  True,  True, False, False])
        """
        out = np.zeros(len(end), dtype=bool)
        for number, start, back in zip(
            self.gpu.tolist(), self.start.tolist(), self.end.tolist(), strict=True
        ):
            low, high = np.searchsorted(gpu, np.array([number, number + 1], dtype=gpu.dtype))
            first, last = np.searchsorted(end[low:high], [start - horizon, back])
            out[low + first : low + last] = True
        return out
