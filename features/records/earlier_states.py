"""What older rows say of failures: of each GPU, only the rows at which its state changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Keys, States, numbers_of
from forewarn.features.records.table import BoolArray, CodeArray, IntArray

__all__ = ["EarlierStates", "all_states"]

_UNSEEN = 2  # neither failed nor not


class EarlierStates:
    """The changes of state of some GPUs, from files whose rows come by time, file after file.

    Rows between two changes begin and end no failure: a year of them takes no memory.

    Parameters
    ----------
    serials : sequence of str
        GPUs that matter.
    """

    def __init__(self, serials: Sequence[str]) -> None:
        position = {serial: gpu for gpu, serial in enumerate(serials)}
        self._number = cache(lambda texts: numbers_of(texts, position))
        self._time = np.full(len(serials), np.iinfo(np.int64).min)
        self._state = np.full(len(serials), _UNSEEN, dtype=np.uint8)
        none = States(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.bool_))
        self._parts = [none]

    def add(self, keys: Keys) -> bool:
        """Take the rows of one file; tell whether they come by time, after those before them."""
        number = self._number(keys.serial.texts)
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

    def states(self) -> States | None:
        """Return the changes of the GPUs that were failed in any row; None if there is none."""
        changes = States.joined(self._parts)
        ever = np.zeros(len(self._state), dtype=bool)
        ever[changes.gpu[changes.failed]] = True
        if not ever.any():
            return None
        rows = ever[changes.gpu]
        return States(changes.gpu[rows], changes.time[rows], changes.failed[rows])


def all_states(serials: Sequence[str], older: Iterable[Keys]) -> States | None:
    """Return all rows of the GPUs that were failed in any of them, in whatever order they come."""
    files = list(older)
    ever: set[str] = set().union(*(keys.failed_serials() for keys in files))
    position = {serial: gpu for gpu, serial in enumerate(serials) if serial in ever}
    number = cache(lambda texts: numbers_of(texts, position))  # most files have the same texts
    states = [keys.rows_of(number(keys.serial.texts)) for keys in files]
    return States.joined(states) if position else None


@compiled
def _note_changes(
    serial: tuple[CodeArray, CodeArray, BoolArray],
    time: IntArray,
    failed: BoolArray,
    last_time: IntArray,
    last_state: npt.NDArray[np.uint8],
    rows: IntArray,
    gpus: CodeArray,
) -> int:
    """Note the rows at which the state of a GPU changes; -1 if one comes too late."""
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
