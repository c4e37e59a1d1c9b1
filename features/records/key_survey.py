"""A survey of serials and times of records: cadence, gaps, doubles, clocks, moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.records.ordering import stable_order

__all__ = ["KeySurvey", "survey_keys"]

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]

_FINE = 0.01  # share of the cadence to which the phase of a clock is told
_OFF = 0.1  # share of the cadence by which a clock is off
_COMMON = 0.5  # share of the records that must agree on a phase before others are off


@dataclass(frozen=True, slots=True)
class KeySurvey:
    """Counts and spacings of the keys of all records.

    Attributes
    ----------
    records, doubled : int
        Rows with another serial or time; rows that repeat both.
    cadence : int
        Median nanoseconds from one record of a GPU to its next; 0 if there is no second one.
    gaps, missing : int
        Places where records are missing, and how many are.
    two_machines : tuple of int
        GPUs that were on two machines at one time.
    moved : int
        GPUs that were on more than one machine, one after another.
    clocks : dict of int to int
        Machines whose records come at another phase of the cadence than most, and by how many
        nanoseconds.
    """

    records: int
    doubled: int
    cadence: int
    gaps: int
    missing: int
    two_machines: tuple[int, ...]
    moved: int
    clocks: dict[int, int]

    @property
    def coverage(self) -> float:
        """Share of the expected records that is there."""
        return self.records / (self.records + self.missing) if self.records else 0.0


def survey_keys(gpu: CodeArray, time: IntArray, machine: CodeArray) -> KeySurvey:
    """Look at the keys of all records.

    Parameters
    ----------
    gpu, time, machine : ndarrays of shape (n,)
        In any order; time in nanoseconds; -1 is an unknown machine.
    """
    order = stable_order(gpu, time)
    gpu, time, machine = gpu[order], time[order], machine[order]
    same = gpu[1:] == gpu[:-1]
    spacing = np.diff(time)
    doubled = same & (spacing == 0)
    steps = spacing[same & (spacing > 0)]
    cadence = int(np.median(steps)) if len(steps) else 0
    lost = np.floor(steps / cadence + 0.5).astype(np.int64) - 1 if cadence else steps
    known = (machine[1:] >= 0) & (machine[:-1] >= 0)
    elsewhere = same & known & (machine[1:] != machine[:-1])
    both = np.unique(gpu[1:][doubled & elsewhere])
    moved = np.setdiff1d(gpu[1:][elsewhere], both)
    return KeySurvey(
        records=len(gpu) - int(doubled.sum()),
        doubled=int(doubled.sum()),
        cadence=cadence,
        gaps=int((lost > 0).sum()),
        missing=int(lost[lost > 0].sum()),
        two_machines=tuple(both.tolist()),
        moved=len(moved),
        clocks=_clocks(time, machine, cadence),
    )


def _clocks(time: IntArray, machine: CodeArray, cadence: int) -> dict[int, int]:
    """Return the machines that are off the phase that most records share."""
    if not cadence or not len(time):
        return {}
    fine = max(1, round(cadence * _FINE))
    bins = np.bincount(time % cadence // fine)
    common = int(np.argmax(bins)) * fine + fine // 2
    # From -cadence / 2 to cadence / 2, so that a little before the full hour is a little.
    off = (time - common + cadence // 2) % cadence - cadence // 2
    if (np.abs(off) <= _OFF * cadence).mean() < _COMMON:
        return {}
    offsets = {}
    for number in np.unique(machine[(np.abs(off) > _OFF * cadence) & (machine >= 0)]).tolist():
        middle = int(np.median(off[machine == number]))
        if abs(middle) > _OFF * cadence:
            offsets[number] = middle
    return offsets
