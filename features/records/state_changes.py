"""Failure states of past rows, reduced to the rows at which a GPU changes state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import compress
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import BoolArray, Int32Array, Int64Array, UInt8Array
from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Keys, States
from forewarn.features.records.text_columns import map_texts

__all__ = ["PastStates", "StateChangeScan"]

_UNSEEN = 2  # neither failed nor healthy
_NO_STATES = States(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.bool_))


class PastStates(NamedTuple):
    """Past states of the GPUs that were failed in any past row.

    Attributes
    ----------
    serials : tuple of str
    states : States
        GPUs are numbered by their position in `serials`.
    """

    serials: tuple[str, ...]
    states: States

    @classmethod
    def from_all_rows(cls, files: Iterable[Keys]) -> PastStates:
        """Return all rows of GPUs that were ever failed; rows may come in any order."""
        older = list(files)
        ever: set[str] = set().union(*(keys.failed_serials() for keys in older))
        serials = tuple(sorted(ever))
        position = {serial: gpu for gpu, serial in enumerate(serials)}
        number = cache(lambda texts: map_texts(texts, position))  # most files share their texts
        states = [keys.states_of(number(keys.serial.texts)) for keys in older]
        return cls(serials, States.joined([_NO_STATES, *states]))

    def for_gpus(self, serials: Sequence[str]) -> States | None:
        """Return the states of the given GPUs, numbered by position; None if there are none."""
        position = {serial: gpu for gpu, serial in enumerate(serials)}
        number = map_texts(self.serials, position)[self.states.gpu]
        rows = number >= 0
        if not rows.any():
            return None
        return States(number[rows], self.states.time[rows], self.states.failed[rows])


class StateChangeScan:
    """A scan for state changes in files whose rows are sorted by time, file after file.

    Rows between two changes neither start nor end a failure and are dropped, so that a year of them
    takes no memory.
    """

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._time = np.zeros(0, dtype=np.int64)
        self._state = np.zeros(0, dtype=np.uint8)
        self._parts = [_NO_STATES]

    def add(self, keys: Keys) -> bool:
        """Add the rows of one file; return False if rows of a GPU are not sorted by time."""
        texts, n_known = keys.serial.texts, len(self._number)
        unknown = [text for text in texts if text not in self._number]
        self._number.update(zip(unknown, range(n_known, n_known + len(unknown)), strict=True))
        number = np.array([*map(self._number.__getitem__, texts), -1], dtype=np.int32)
        more = len(self._number) - n_known
        self._time = np.append(self._time, np.full(more, np.iinfo(np.int64).min))
        self._state = np.append(self._state, np.full(more, _UNSEEN, dtype=np.uint8))
        codes, gpus = keys.serial.codes, np.empty(len(keys.time), dtype=np.int32)
        rows = np.empty(len(keys.time), dtype=np.int64)
        n = _note_changes(
            (codes, number, keys.keep), keys.time, keys.failed, self._time, self._state, rows, gpus
        )
        if n < 0:
            return False
        rows = rows[:n]
        self._parts.append(States(gpus[:n].copy(), keys.time[rows], keys.failed[rows]))
        return True

    def past(self) -> PastStates:
        """Return the state changes of all GPUs that were failed in any row."""
        changes = States.joined(self._parts)
        ever = np.zeros(len(self._state), dtype=bool)
        ever[changes.gpu[changes.failed]] = True
        rows, number = ever[changes.gpu], np.cumsum(ever, dtype=np.int32) - 1
        states = States(number[changes.gpu[rows]], changes.time[rows], changes.failed[rows])
        return PastStates(tuple(compress(self._number, ever)), states)


@compiled
def _note_changes(
    serial: tuple[Int32Array, Int32Array, BoolArray],
    time: Int64Array,
    failed: BoolArray,
    last_time: Int64Array,
    last_state: UInt8Array,
    rows: Int64Array,
    gpus: Int32Array,
) -> int:
    """Collect the rows at which a GPU changes state; return -1 if rows are not sorted by time."""
    codes, number, keep = serial
    n = 0
    for row in range(len(time)):
        gpu = number[codes[row]]
        if gpu < 0 or not keep[row]:
            continue
        if time[row] <= last_time[gpu]:
            return -1
        if last_state[gpu] != failed[row]:
            rows[n], gpus[n] = row, gpu
            n += 1
        last_time[gpu], last_state[gpu] = time[row], failed[row]
    return n
