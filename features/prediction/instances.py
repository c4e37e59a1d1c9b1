"""Instances and their labels, stored as row numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Fleet, FleetSlice, Timeline
from forewarn.features.records.out_of_service import in_spans
from forewarn.features.threads import map_threads
from forewarn.features.time_units import HOUR, Nanoseconds, RecordCount

__all__ = [
    "UNKNOWN",
    "Instances",
    "end_of_failure_unknown",
    "find_instances",
    "horizon_observed",
    "hours_to_failure",
    "label_instances",
    "latest_instances",
    "slice_instances",
    "window_without_failures",
]

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Instances:
    """Instances as row numbers of a timeline's records.

    Attributes
    ----------
    row : ndarray of shape (n,), int64
        Last record of each; the window is the rows (row - length, row].
    gpu : ndarray of shape (n,), int32
    end : ndarray of shape (n,), int64
        Time of the last record.
    label : ndarray of shape (n,), int8
        1: the GPU fails in (end, end + horizon]; 0: it does not; -1: unknown.
    """

    row: npt.NDArray[np.int64]
    gpu: npt.NDArray[np.int32]
    end: npt.NDArray[np.int64]
    label: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Row, GPU, end and label."""
        return self.row, self.gpu, self.end, self.label

    def select(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Instances:
        """Return the instances in `rows`."""
        # Boolean indexing would evaluate the mask again for each column.
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        columns: list[Any] = [column.take(rows) for column in self.columns]
        return Instances(*columns)

    @classmethod
    def joined(cls, slices: Sequence[Instances]) -> Instances:
        """Return the instances of all slices of a fleet by GPU and time."""
        if len(slices) == 1:
            return slices[0]
        n_gpus = max((int(part.gpu.max(initial=-1)) + 1 for part in slices), default=0)
        n_rows = np.zeros(n_gpus + 1, dtype=np.int64)
        for part in slices:  # each GPU is in exactly one slice
            n_rows[1:] += np.bincount(part.gpu, minlength=n_gpus)
        n, free = int(n_rows.sum()), np.cumsum(n_rows)
        kinds = np.int64, np.int32, np.int64, np.int8
        columns: list[Any] = [np.empty(n, dtype=kind) for kind in kinds]
        whole = cls(*columns)
        map_threads(lambda part: _put_by_gpu(part.columns, free, whole.columns), slices)
        return whole

    @classmethod
    def concatenated(cls, several: Sequence[Instances]) -> Instances:
        """Concatenate several sets of instances."""
        each = zip(*(part.columns for part in several), strict=True)
        columns: list[Any] = [np.concatenate(parts) for parts in each]
        return cls(*columns)

    @classmethod
    def union(cls, several: Sequence[Instances]) -> tuple[Instances, list[npt.NDArray[np.int64]]]:
        """Return the union by GPU and time, and the positions of each set in it.

        Examples
        --------
        >>> row, label = np.zeros(2, np.int64), np.zeros(2, np.int8)
        >>> gpu = np.zeros(2, np.int32)
        >>> parts = [Instances(row, gpu, np.array(ends), label) for ends in ([10, 30], [20, 30])]
        >>> whole, rows = Instances.union(parts)
        >>> whole.end.tolist(), [each.tolist() for each in rows]
        ([10, 20, 30], [[0, 2], [1, 2]])
        """
        every = cls.concatenated(several)
        order = np.lexsort((every.end, every.gpu))
        changes = (np.diff(every.gpu[order]) != 0) | (np.diff(every.end[order]) != 0)
        first = np.append(True, changes)[: len(order)]
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.cumsum(first) - 1
        ends = np.cumsum([len(part) for part in several])
        return every.select(order[first]), np.split(number, ends[:-1])

    def renumbered(self, gpu: npt.NDArray[np.int64]) -> Instances:
        """Return the instances of a slice with the GPU numbers of the fleet."""
        return replace(self, gpu=gpu.astype(np.int32)[self.gpu])

    def at_rows(self, row: npt.NDArray[np.int64]) -> Instances:
        """Return the same instances with the row numbers of another timeline."""
        return Instances(row, self.gpu, self.end, self.label)

    def between(self, start: int, end: int) -> Instances:
        """Return the instances that end in [start, end)."""
        return self.select((self.end >= start) & (self.end < end))


@compiled
def _put_by_gpu(
    part: tuple[npt.NDArray[Any], ...],
    free: npt.NDArray[np.int64],
    whole: tuple[npt.NDArray[Any], ...],
) -> None:
    """Copy the contiguous instances of each GPU to its place in the whole."""
    row, gpu, end, label = part
    first = 0
    while first < len(gpu):
        last = first + 1
        while last < len(gpu) and gpu[last] == gpu[first]:
            last += 1
        room = slice(free[gpu[first]], free[gpu[first]] + last - first)
        free[gpu[first]] = room.stop
        whole[0][room], whole[1][room] = row[first:last], gpu[first:last]
        whole[2][room], whole[3][room] = end[first:last], label[first:last]
        first = last


def label_instances(
    timeline: Timeline,
    gpu: npt.NDArray[np.int32],
    end: npt.NDArray[np.int64],
    horizon: Nanoseconds,
) -> npt.NDArray[np.int8]:
    """Label instances with the knowledge of the timeline (docs/formats.md, section 1).

    Parameters
    ----------
    timeline : Timeline
    gpu, end : ndarray of shape (n,)
        By GPU and time.
    horizon : Nanoseconds

    Returns
    -------
    ndarray of shape (n,), int8
        1 if the GPU fails in (end, end + horizon]. 0 if it does not, has a record at or after the
        end of that interval, and was in service throughout. Otherwise -1. Also -1 after a failure
        with a presumed end, until that end counts (`Failures.unknown_until`).
    """
    bounds = timeline.bounds
    last = np.full(len(bounds) - 1, np.iinfo(np.int64).min + horizon)
    seen = np.flatnonzero(np.diff(bounds))
    last[seen] = timeline.records.time[bounds[seen + 1] - 1]
    labels = np.full(len(end), UNKNOWN, dtype=np.int8)
    labels[end <= (last - horizon)[gpu]] = 0
    labels[timeline.records.out_of_service.within(gpu, end, horizon)] = UNKNOWN
    labels[np.isfinite(hours_to_failure(timeline, gpu, end, horizon))] = 1
    labels[end_of_failure_unknown(timeline.failures, gpu, end)] = UNKNOWN
    return labels


def end_of_failure_unknown(
    failures: Failures, gpu: npt.NDArray[np.int32], end: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which instances end after a failure whose presumed end does not count yet.

    Parameters
    ----------
    failures : Failures
    gpu, end : ndarray of shape (n,)
        By GPU and time.
    """
    presumed = failures.select(failures.presumed)
    return in_spans(gpu, end, presumed.gpu, presumed.failed_at, presumed.unknown_until)


def horizon_observed(
    timeline: Timeline, end: npt.NDArray[np.int64], horizon: Nanoseconds
) -> npt.NDArray[np.bool_]:
    """Return which horizons end before the records do.

    The other instances can only be known to fail. Their known labels would all be 1.

    Parameters
    ----------
    timeline : Timeline
    end : ndarray of shape (n,)
    horizon : Nanoseconds
    """
    if not len(timeline.records):
        return np.zeros(len(end), dtype=bool)
    whole: npt.NDArray[np.bool_] = end + horizon <= timeline.records.last
    return whole


def hours_to_failure(
    fleet: Fleet,
    gpu: npt.NDArray[np.int32],
    end: npt.NDArray[np.int64],
    horizon: Nanoseconds,
) -> npt.NDArray[np.float64]:
    """Return the hours until the next failure of the GPU; inf if not within the horizon.

    Parameters
    ----------
    fleet : Fleet
    gpu, end, horizon
        See `label_instances`.
    """
    hours = np.full(len(end), np.inf)
    first = np.searchsorted(gpu, np.arange(len(fleet.serials) + 1, dtype=gpu.dtype))
    failures = fleet.failures
    # Latest failure first: earlier ones overwrite it.
    for number, failed in zip(
        failures.gpu[::-1].tolist(), failures.failed_at[::-1].tolist(), strict=True
    ):
        low, high = first[number], first[number + 1]
        span = low + np.searchsorted(end[low:high], [failed - horizon, failed])
        before = slice(span[0], span[1])
        hours[before] = (failed - end[before]) / HOUR
    return hours


def window_without_failures(
    failures: Failures, gpu: npt.NDArray[np.int32], end: npt.NDArray[np.int64], window: Nanoseconds
) -> npt.NDArray[np.bool_]:
    """Return which instances have no failure and no repair in their window.

    Parameters
    ----------
    failures : Failures
    gpu, end : ndarray of shape (n,)
        By GPU and time.
    window : Nanoseconds
        From the first record of a window to its last.
    """
    clean = np.ones(len(end), dtype=bool)
    for number, failed, repaired in zip(
        failures.gpu.tolist(),
        failures.failed_at.tolist(),
        failures.repaired_at.tolist(),
        strict=True,
    ):
        low, high = np.searchsorted(gpu, np.array([number, number + 1], dtype=gpu.dtype))
        ends = end[low:high]
        clean[low:high] &= (ends < failed) | (ends - window >= repaired)
    return clean


def find_instances(
    fleet: Fleet,
    *,
    window_records: RecordCount,
    step_records: RecordCount,
    horizon: Nanoseconds,
    since: int | None = None,
) -> Instances:
    """Find and label all instances of a fleet (arXiv 2201.11853, data preparation).

    Parameters
    ----------
    fleet : Fleet
        A timeline or slices of one. Only the key columns of slices are read.
    window_records : RecordCount
        Records in an instance.
    step_records : RecordCount
        Records between the ends of two instances of a GPU.
    horizon : Nanoseconds
        Time after the last record in which a failure makes the label 1.
    since : int, optional
        Return only instances that end at or after it. The steps do not depend on it.

    Returns
    -------
    Instances
        By GPU and time. An instance never ends at a filled record: only the next record shows that
        a record was missing. Row numbers are those of the slice.
    """
    parts = []
    for timeline, numbers in fleet.slices():
        row, gpu, end = timeline.ends(window_records, step_records, since)
        labels = label_instances(timeline, gpu, end, horizon)
        parts.append(Instances(row, numbers[gpu].astype(np.int32), end, labels))
    return Instances.joined(parts)


def slice_instances(
    part: FleetSlice, n_gpus: int, instances: Instances
) -> tuple[npt.NDArray[np.int64], Instances]:
    """Return the numbers of a slice's instances, and the instances with its GPU numbers."""
    if len(part.gpu) == n_gpus:
        return np.arange(len(instances)), instances
    number = np.full(n_gpus, -1, dtype=np.int32)
    number[part.gpu] = np.arange(len(part.gpu))
    rows = np.flatnonzero(number[instances.gpu] >= 0)
    return rows, replace(instances.select(rows), gpu=number[instances.gpu[rows]])


def latest_instances(timeline: Timeline, *, window_records: RecordCount, since: int) -> Instances:
    """Return the newest instance of each GPU that ends at or after `since`.

    Labels are unknown: these are the instances of a daily list.
    """
    ends = timeline.ends(window_records, 1, since)
    newest = np.append(np.diff(ends.gpu) != 0, True)[: len(ends.gpu)]
    unknown = np.full(np.count_nonzero(newest), UNKNOWN, dtype=np.int8)
    return Instances(ends.row[newest], ends.gpu[newest], ends.time[newest], unknown)
