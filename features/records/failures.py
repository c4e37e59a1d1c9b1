"""Failures: when a GPU was failed, until when, and since when anybody knew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.records.file_check import States
from forewarn.features.records.table import Records

__all__ = ["NEVER", "Failures"]

NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of all sources, each with the span [failed_at, repaired_at) it lasted.

    Attributes
    ----------
    gpu : ndarray of shape (n,), int32
        Positions in the serials of the records.
    failed_at, repaired_at, known_at : ndarray of shape (n,), int64
        Nanoseconds since 1970 UTC; `repaired_at` is `NEVER` while it is not repaired.
    """

    gpu: npt.NDArray[np.int32]
    failed_at: npt.NDArray[np.int64]
    repaired_at: npt.NDArray[np.int64]
    known_at: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.gpu)

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Failures:
        """Return the failures of `rows`."""
        return Failures(
            self.gpu[rows], self.failed_at[rows], self.repaired_at[rows], self.known_at[rows]
        )

    def known_before(self, moment: int) -> Failures:
        """Return what existed for anybody at `moment`: a later repair has not happened yet."""
        known = self.take(self.known_at < moment)
        repaired = np.where(known.repaired_at < moment, known.repaired_at, NEVER)
        return Failures(known.gpu, known.failed_at, repaired, known.known_at)

    def as_seen(self) -> Failures:
        """Return the failures as they looked to somebody who watched: none before it was known.

        For measuring instances of a span within which failures became known: a GPU that had
        failed without anybody knowing was a peer like the others.
        """
        return Failures(
            self.gpu,
            np.maximum(self.failed_at, self.known_at),
            np.maximum(self.repaired_at, self.known_at),
            self.known_at,
        )

    def joined(self, other: Failures) -> Failures:
        """Return the failures of both sources."""
        return Failures(
            np.concatenate([self.gpu, other.gpu]),
            np.concatenate([self.failed_at, other.failed_at]),
            np.concatenate([self.repaired_at, other.repaired_at]),
            np.concatenate([self.known_at, other.known_at]),
        )

    def episodes(self) -> Failures:
        """Return the failures by GPU and time, those that overlap made one.

        Two sources rarely agree on the minute: a ticket and the records of one failure are one
        failure, which lasts from the first of them to the last and was known with the first.
        """
        order = np.lexsort((self.failed_at, self.gpu))
        rows = self.take(order)
        episodes: list[list[int]] = []
        for gpu, failed, repaired, known in zip(
            rows.gpu.tolist(),
            rows.failed_at.tolist(),
            rows.repaired_at.tolist(),
            rows.known_at.tolist(),
            strict=True,
        ):
            if episodes and episodes[-1][0] == gpu and failed <= episodes[-1][2]:
                episodes[-1][2] = max(episodes[-1][2], repaired)
                episodes[-1][3] = min(episodes[-1][3], known)
            else:
                episodes.append([gpu, failed, repaired, known])
        table = np.array(episodes, dtype=np.int64).reshape(-1, 4)
        return Failures(table[:, 0].astype(np.int32), table[:, 1], table[:, 2], table[:, 3])

    @classmethod
    def of_records(cls, records: Records, older: States | None = None) -> Failures:
        """Return the failures that the records show (`of_rows`).

        Parameters
        ----------
        records : Records
        older : States, optional
            Of all rows before them, at least those of GPUs that were failed: a failure at the
            edge of a span would lose its beginning.
        """
        states = States.of_line(records.line)
        return cls.of_rows(*(states if older is None else States.joined([older, states])))

    @classmethod
    def of_rows(
        cls,
        gpu: npt.NDArray[np.int32],
        time: npt.NDArray[np.int64],
        failed: npt.NDArray[np.bool_],
    ) -> Failures:
        """Return the failures from the first failed record to the next good one.

        Parameters
        ----------
        gpu, time, failed : ndarray of shape (n,)
            In any order; of two rows of one GPU and time the later one counts.
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
        return cls(gpu[starts], time[starts], repaired, time[starts])

    @classmethod
    def none(cls) -> Failures:
        """Return no failure at all."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty.astype(np.int32), empty, empty, empty)
