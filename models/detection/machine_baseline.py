"""Machine baselines: block medians of earlier windows, and the windows scored so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int64Array

__all__ = ["N_BASELINE_BLOCKS", "BaselineParams", "MachineBaseline", "ScoredWindows"]


N_BASELINE_BLOCKS = 30  # newest blocks whose median is the baseline


@dataclass(frozen=True, slots=True)
class BaselineParams:
    """How windows are grouped into a baseline.

    Attributes
    ----------
    block : int
        Windows per block; the baseline stores one median per block.
    lag : int
        Blocks between a judged window and the newest block it is compared with: one continuity
        plus a guard gap, so that a fault does not enter its own baseline while it is being
        detected.
    """

    block: int
    lag: int


@dataclass(frozen=True, slots=True)
class ScoredWindows:
    """Windows that were scored, and their scores.

    Attributes
    ----------
    window : ndarray of shape (n_windows,), int
        Window numbers, the same in every call; ascending.
    scores : ndarray of shape (n_machines, n_windows), float32
    present : ndarray of shape (n_windows, n_machines), bool
        Which machines had every sample of the window.
    length : int
        Samples per window.
    """

    window: Int64Array
    scores: Float32Array
    present: BoolArray
    length: int

    def count_reusable(
        self, window: Int64Array, present: BoolArray, length: int, block: int
    ) -> int:
        """Return how many of the first windows of a call need no new scores.

        A window is scored again if other machines are present now, because samples came late or
        a sensor is frozen. The newest blocks are scored again too: only a complete block has a
        median.

        Parameters
        ----------
        window : ndarray of shape (n,), int
            Numbers of the windows of the call; ascending.
        present : ndarray of shape (n, n_machines), bool
        length : int
            Samples per window.
        block : int
            Windows per block.
        """
        if not len(window) or not len(self.window) or length != self.length:
            return 0
        again = (self.window[-1] // block - 1) * block
        column = np.minimum(np.searchsorted(self.window, window), len(self.window) - 1)
        known = (self.window[column] == window) & (self.present[column] == present).all(axis=1)
        new = np.flatnonzero(~known | (window >= again))
        if not len(new):
            return len(window)
        return int(np.searchsorted(window, window[new[0]] // block * block))


@dataclass(frozen=True, slots=True)
class MachineBaseline:
    """Block medians of each machine; NaN where a block has too few samples.

    Attributes
    ----------
    machines : tuple of str
    blocks : ndarray of shape (n_blocks,), int
        Block numbers, the same in every call.
    offset, spread, level : ndarrays of shape (n_machines, n_blocks), float32
        Signed difference from the peers, size of the difference beyond the tolerated part, and
        the machine's own value. NaN in `offset` and `spread` where the machine deviated.
    measured : ndarray of the same shape
        Signed difference from the peers in all blocks.
    scored : ScoredWindows or None
        Scores of the newest call, window by window.
    """

    machines: tuple[str, ...]
    blocks: Int64Array
    offset: Float32Array
    spread: Float32Array
    level: Float32Array
    measured: Float32Array
    scored: ScoredWindows | None = None

    @property
    def known(self) -> BoolArray:
        """Tell which machines have a baseline."""
        return np.asarray(np.isfinite(self.offset).any(axis=1), dtype=bool)

    def level_changes(self, machines: Iterable[int]) -> Float64Array:
        """Return how far newest levels are from the first ones; NaN where none is known."""
        changes = np.full(len(self.machines), np.nan)
        for machine in machines:
            present = self.level[machine, ~np.isnan(self.level[machine])]
            n = max(len(present) // 4, 1)
            if len(present):
                changes[machine] = np.median(present[-n:]) - np.median(present[:n])
        return changes

    @staticmethod
    def empty(machines: Sequence[str] = ()) -> MachineBaseline:
        """Return a baseline without any block."""
        empty = np.empty((len(machines), 0), dtype=np.float32)
        return MachineBaseline(
            tuple(machines), np.empty(0, dtype=np.int64), empty, empty, empty, empty
        )

    def for_machines(self, machines: Sequence[str]) -> MachineBaseline:
        """Return the baselines of these machines in this order; a new machine has none."""
        if tuple(machines) == self.machines:
            return self
        row = {name: i for i, name in enumerate(self.machines)}
        rows = np.array([row.get(name, len(self.machines)) for name in machines], dtype=np.int64)
        parts = []
        for values in (self.offset, self.spread, self.level, self.measured):
            nothing = np.full((1, values.shape[1]), np.nan, dtype=np.float32)
            parts.append(np.concatenate([values, nothing])[rows])
        offset, spread, level, measured = parts
        return MachineBaseline(tuple(machines), self.blocks, offset, spread, level, measured)

    def with_scored(self, scored: ScoredWindows) -> MachineBaseline:
        """Return a copy with the scores of the newest call."""
        return replace(self, scored=scored)

    def newest(self, n: int = 2 * N_BASELINE_BLOCKS) -> MachineBaseline:
        """Return the newest blocks, as many as later calls need."""
        return self._at(np.arange(len(self.blocks))[-n:])

    def before(self, block: int) -> MachineBaseline:
        """Return the blocks before a block number."""
        return self._at(np.flatnonzero(self.blocks < block))

    def _at(self, columns: Int64Array) -> MachineBaseline:
        values = (self.offset, self.spread, self.level, self.measured)
        offset, spread, level, measured = (each[:, columns] for each in values)
        blocks = self.blocks[columns]
        return MachineBaseline(self.machines, blocks, offset, spread, level, measured)
