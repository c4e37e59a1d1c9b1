"""Spans out of service, in which the absence of a failure does not show health."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.time_units import Nanoseconds

__all__ = ["OutOfService", "OutOfServiceSpan", "in_spans", "merge_spans"]


class OutOfServiceSpan(NamedTuple):
    """A span [start, end) in which a machine or one GPU was out of service.

    Attributes
    ----------
    machine : str
    gpu_serial : str or None
        None for all GPUs of the machine.
    start, end : int
        Nanoseconds since 1970 UTC; `end` is `NEVER` while the span lasts.
    """

    machine: str
    gpu_serial: str | None
    start: Nanoseconds
    end: Nanoseconds


def merge_spans(absences: Iterable[OutOfServiceSpan]) -> list[OutOfServiceSpan]:
    """Merge spans that overlap or touch; sort by machine, GPU and time.

    Examples
    --------
    >>> span = OutOfServiceSpan
    >>> spans = [span("m", None, 5, 9), span("m", None, 1, 5), span("m", "A", 1, 2)]
    >>> [(s.gpu_serial, s.start, s.end) for s in merge_spans(spans)]
    [(None, 1, 9), ('A', 1, 2)]
    """
    joined: list[OutOfServiceSpan] = []
    for absence in sorted(absences, key=lambda a: (a.machine, a.gpu_serial or "", a.start)):
        last = joined[-1] if joined else None
        if last is None or last[:2] != absence[:2] or absence.start > last.end:
            joined.append(absence)
        else:
            joined[-1] = last._replace(end=max(last.end, absence.end))
    return joined


@dataclass(frozen=True, slots=True)
class OutOfService:
    """Spans [start, end) in which GPUs were out of service; unordered, may overlap.

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
    def empty(cls) -> OutOfService:
        """Return an empty set of spans."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty.astype(np.int32), empty, empty)

    def within(
        self, gpu: npt.NDArray[np.int32], end: npt.NDArray[np.int64], horizon: Nanoseconds
    ) -> npt.NDArray[np.bool_]:
        """Tell whether each GPU was out of service at any time in (end, end + horizon].

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
        return in_spans(gpu, end, self.gpu, self.start - horizon, self.end)


def in_spans(
    gpu: npt.NDArray[np.int32],
    time: npt.NDArray[np.int64],
    span_gpu: npt.NDArray[np.int32],
    start: npt.NDArray[np.int64],
    stop: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Tell whether each moment lies in a span [start, stop) of its GPU.

    Parameters
    ----------
    gpu, time : ndarray of shape (m,)
        By GPU and time.
    span_gpu, start, stop : ndarray of shape (n,)
        In any order; spans may overlap.
    """
    inside = np.zeros(len(time), dtype=bool)
    for number, first, last in zip(span_gpu.tolist(), start.tolist(), stop.tolist(), strict=True):
        low, high = np.searchsorted(gpu, np.array([number, number + 1], dtype=gpu.dtype))
        begin, end = np.searchsorted(time[low:high], [first, last])
        inside[low + begin : low + end] = True
    return inside
