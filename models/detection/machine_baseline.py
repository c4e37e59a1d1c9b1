"""Holds what machines showed before: medians of blocks, and the windows that were judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Int64Array

__all__ = ["N_BASELINE_BLOCKS", "BaselineParams", "MachineBaseline", "ScoredWindows"]


N_BASELINE_BLOCKS = 30  # newest blocks whose median is what is usual


@dataclass(frozen=True, slots=True)
class BaselineParams:
    """How the past is cut.

    Attributes
    ----------
    block : int
        Windows whose median is kept as one.
    lag : int
        Blocks between what is judged and the newest one that it is compared with: a continuity and
        a guard gap, so that a fault does not become its own past while it is being found.
    """

    block: int
    lag: int


@dataclass(frozen=True, slots=True)
class ScoredWindows:
    """Windows that were judged, and how.

    Attributes
    ----------
    window : ndarray of shape (n_windows,), int
        Their numbers, the same in every call; ascending.
    scores : ndarray of shape (n_machines, n_windows), float32
    present : ndarray of shape (n_windows, n_machines), bool
        Which machines had a whole window.
    """

    window: Int64Array
    scores: Float32Array
    present: BoolArray

    def still_good(self, window: Int64Array, present: BoolArray, block: int) -> int:
        """Return how many of the first windows of a call were judged before, for good.

        Windows in which another machine is present now are judged again, since its samples came
        late or its sensor hangs; so are the newest blocks, since only a whole one has a median.

        Parameters
        ----------
        window : ndarray of shape (n,), int
            Numbers of the windows of the call; ascending.
        present : ndarray of shape (n, n_machines), bool
        block : int
            Windows.
        """
        if not len(window) or not len(self.window):
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
    """Medians of blocks of windows, by machine; NaN where a block tells nothing.

    Attributes
    ----------
    machines : tuple of str
    blocks : ndarray of shape (n_blocks,), int
        Numbers of the blocks, the same in every call.
    offset, spread, level : ndarrays of shape (n_machines, n_blocks), float32
        Signed difference from the others, its size where what is usual is taken off, and the
        machine's own value.
    judged : Judged or None
        What the newest call came to, window by window.
    """

    machines: tuple[str, ...]
    blocks: Int64Array
    offset: Float32Array
    spread: Float32Array
    level: Float32Array
    judged: ScoredWindows | None = None

    @property
    def known(self) -> BoolArray:
        """Tell of which machines it knows anything."""
        return np.asarray(np.isfinite(self.offset).any(axis=1), dtype=bool)

    @staticmethod
    def empty(machines: Sequence[str] = ()) -> MachineBaseline:
        """Return a past of no block."""
        empty = np.empty((len(machines), 0), dtype=np.float32)
        return MachineBaseline(tuple(machines), np.empty(0, dtype=np.int64), empty, empty, empty)

    def of(self, machines: Sequence[str]) -> MachineBaseline:
        """Return the past of these machines in their order; a new one has none."""
        if tuple(machines) == self.machines:
            return self
        row = {name: i for i, name in enumerate(self.machines)}
        rows = np.array([row.get(name, len(self.machines)) for name in machines], dtype=np.int64)
        parts = []
        for values in (self.offset, self.spread, self.level):
            nothing = np.full((1, values.shape[1]), np.nan, dtype=np.float32)
            parts.append(np.concatenate([values, nothing])[rows])
        offset, spread, level = parts
        return MachineBaseline(tuple(machines), self.blocks, offset, spread, level)

    def with_judged(self, judged: ScoredWindows) -> MachineBaseline:
        """Return it with what the newest call came to."""
        return replace(self, judged=judged)

    def newest(self, n: int = 2 * N_BASELINE_BLOCKS) -> MachineBaseline:
        """Return its last blocks, and so much as a later call needs."""
        return self._at(np.arange(len(self.blocks))[-n:])

    def before(self, block: int) -> MachineBaseline:
        """Return what was known before a block."""
        return self._at(np.flatnonzero(self.blocks < block))

    def _at(self, columns: Int64Array) -> MachineBaseline:
        offset, spread, level = (
            values[:, columns] for values in (self.offset, self.spread, self.level)
        )
        return MachineBaseline(self.machines, self.blocks[columns], offset, spread, level)
