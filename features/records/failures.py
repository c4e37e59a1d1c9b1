"""Failures of GPUs: start, end, and the times at which both became known."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.records.file_check import States
from forewarn.features.records.record_table import Records

__all__ = ["NEVER", "Failures"]

NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of all sources, each with its span [failed_at, repaired_at).

    Attributes
    ----------
    gpu : ndarray of shape (n,), int32
        Positions in the serials of the records.
    failed_at, repaired_at, known_at : ndarray of shape (n,), int64
        Nanoseconds since 1970 UTC; `repaired_at` is `NEVER` until a repair.
    end_known_at : ndarray of shape (n,), int64
        When the end became known; `NEVER` until a repair.
    unknown_until : ndarray of shape (n,), int64
        End of the span, from the failure on, in which the health of the GPU is unknown because its
        repair is only presumed. `failed_at` for all other failures.
    """

    gpu: npt.NDArray[np.int32]
    failed_at: npt.NDArray[np.int64]
    repaired_at: npt.NDArray[np.int64]
    known_at: npt.NDArray[np.int64]
    end_known_at: npt.NDArray[np.int64]
    unknown_until: npt.NDArray[np.int64]

    @classmethod
    def from_spans(
        cls,
        gpu: npt.NDArray[np.int32],
        failed_at: npt.NDArray[np.int64],
        repaired_at: npt.NDArray[np.int64],
        known_at: npt.NDArray[np.int64],
    ) -> Failures:
        """Return failures whose ends are certain and were known immediately."""
        return cls(gpu, failed_at, repaired_at, known_at, repaired_at, failed_at)

    def __len__(self) -> int:
        return len(self.gpu)

    def select(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Failures:
        """Return the failures of `rows`."""
        return Failures(*(column[rows] for column in self._columns))

    @property
    def presumed(self) -> npt.NDArray[np.bool_]:
        """Whether each repair is presumed: the GPU works, but no repair was reported."""
        return self.unknown_until > self.failed_at

    @property
    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def known_before(self, moment: int) -> Failures:
        """Return the failures known at `moment`; an end that became known later is dropped."""
        known = self.select(self.known_at < moment)
        ended = (known.repaired_at < moment) & (known.end_known_at < moment)
        return replace(
            known,
            repaired_at=np.where(ended, known.repaired_at, NEVER),
            end_known_at=np.where(ended, known.end_known_at, NEVER),
            unknown_until=np.where(ended, known.unknown_until, known.failed_at),
        )

    def as_observed(self) -> Failures:
        """Return the failures as observed at the time: each starts when it became known.

        Features use these spans when failures became known during the measured period. A GPU with
        an unknown failure was an ordinary peer, and a GPU whose repair was not yet known was no
        peer. Labels use the true failures.
        """
        failed = np.maximum(self.failed_at, self.known_at)
        repaired = np.maximum(np.maximum(self.repaired_at, self.end_known_at), self.known_at)
        return Failures.from_spans(self.gpu, failed, repaired, self.known_at)

    def joined(self, other: Failures) -> Failures:
        """Concatenate the failures of two sources."""
        pairs = zip(self._columns, other._columns, strict=True)
        return Failures(*(np.concatenate(pair) for pair in pairs))

    def episodes(self) -> Failures:
        """Merge overlapping failures of a GPU; sort by GPU and time.

        Two sources rarely agree on the minute: a ticket and the records of one failure describe one
        failure. It lasts from the earliest start to the latest end and is known from the earlier
        report.
        """
        order = np.lexsort((self.failed_at, self.gpu))
        columns = (column.tolist() for column in self.select(order)._columns)
        episodes: list[list[int]] = []
        for gpu, failed, repaired, known, end_known, unknown in zip(*columns, strict=True):
            if episodes and episodes[-1][0] == gpu and failed <= episodes[-1][2]:
                last = episodes[-1]
                latest = (max(last[2], repaired), min(last[3], known), max(last[4], end_known))
                episodes[-1] = [gpu, last[1], *latest, max(last[5], unknown)]
            else:
                episodes.append([gpu, failed, repaired, known, end_known, unknown])
        table = np.array(episodes, dtype=np.int64).reshape(-1, 6)
        return Failures(table[:, 0].astype(np.int32), *table.T[1:])

    def since(self) -> npt.NDArray[np.int64]:
        """Return the start of the outage that each failure belongs to, by GPU and time.

        A failure before the presumed end of its predecessor is confirmed cancels that end: the
        outage lasts since the predecessor, or since the first of several.
        """
        since = self.failed_at.copy()
        cancels = (np.diff(self.gpu) == 0) & self.presumed[:-1]
        cancels &= self.failed_at[1:] < self.unknown_until[:-1]
        for row in np.flatnonzero(cancels) + 1:
            since[row] = since[row - 1]
        return since

    @classmethod
    def from_records(cls, records: Records, older: States | None = None) -> Failures:
        """Return the failures that the records show (`from_rows`).

        Parameters
        ----------
        records : Records
        older : States, optional
            States of earlier rows, at least of GPUs that were failed. Without them a failure at the
            edge of the span would lose its start.
        """
        states = States.from_changes(records.gpu, records.time, records.failed)
        return cls.from_rows(*(states if older is None else States.joined([older, states])))

    @classmethod
    def from_rows(
        cls,
        gpu: npt.NDArray[np.int32],
        time: npt.NDArray[np.int64],
        failed: npt.NDArray[np.bool_],
    ) -> Failures:
        """Return the failures, from the first failed row to the next healthy row of a GPU.

        Parameters
        ----------
        gpu, time, failed : ndarray of shape (n,)
            In any order; of two rows of one GPU and time the later one wins.
        """
        order = np.lexsort((time, gpu))
        same = (np.diff(gpu[order]) == 0) & (np.diff(time[order]) == 0)
        order = order[np.append(~same, True)[: len(order)]]
        gpu, time, failed = gpu[order], time[order], failed[order]
        within = np.diff(gpu) == 0
        starts = np.flatnonzero(failed & np.insert(~(within & failed[:-1]), 0, True)[: len(gpu)])
        good = np.flatnonzero(np.insert(within & failed[:-1] & ~failed[1:], 0, False))
        following = np.append(good, len(gpu))[np.searchsorted(good, starts)]
        same_gpu = np.append(gpu, -1)[following] == gpu[starts]
        repaired = np.where(same_gpu, np.append(time, NEVER)[following], NEVER)
        return cls.from_spans(gpu[starts], time[starts], repaired, time[starts])

    @classmethod
    def empty(cls) -> Failures:
        """Return an empty set of failures."""
        empty = np.zeros(0, dtype=np.int64)
        return cls.from_spans(empty.astype(np.int32), empty, empty, empty)
