"""How the ranks of a simulated job split the model: tensor, pipeline and data parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forewarn.features.array_types import BoolArray, Int64Array

__all__ = ["RankLayout", "draw_rank_layout"]

_PER_MACHINE = 8


@dataclass(frozen=True, slots=True)
class RankLayout:
    """Coordinates of ranks 0 to n - 1; tp varies fastest, pp slowest.

    Attributes
    ----------
    tp, pp, dp : int
        Their product is the number of ranks.
    per_machine : int
    """

    tp: int
    pp: int
    dp: int
    per_machine: int = _PER_MACHINE

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return self.tp * self.pp * self.dp

    def axis(self, name: str) -> Int64Array:
        """Return each rank's coordinate on an axis."""
        rank = np.arange(self.n_ranks)
        if name == "tp":
            return rank % self.tp
        return rank // self.tp % self.dp if name == "dp" else rank // (self.tp * self.dp)

    def groups(self, name: str) -> Int64Array:
        """Return the number of each rank's group on an axis; `world` has a single group."""
        return _groups(self, name)

    def members(self, name: str, group: int) -> list[int]:
        """Return the ranks of a group, in order."""
        return [int(rank) for rank in np.flatnonzero(self.groups(name) == group)]

    def machine(self, rank: int) -> str:
        """Return the machine of a rank."""
        return f"node-{rank // self.per_machine:04d}"

    def on_same_machine(self, rank: int) -> BoolArray:
        """Return which ranks run on the same machine as `rank`."""
        same: BoolArray = np.arange(self.n_ranks) // self.per_machine == rank // self.per_machine
        return same


@lru_cache(maxsize=64)  # called once per operation
def _groups(layout: RankLayout, name: str) -> Int64Array:
    tp, pp, dp = (layout.axis(axis) for axis in ("tp", "pp", "dp"))
    if name == "world":
        groups = np.zeros(layout.n_ranks, dtype=np.int64)
    elif name == "tp":
        groups = pp * layout.dp + dp
    else:
        groups = pp * layout.tp + tp if name == "dp" else dp * layout.tp + tp
    groups.setflags(write=False)
    return groups


def draw_rank_layout(n_ranks: int, rng: np.random.Generator) -> RankLayout:
    """Draw coordinates for a number of ranks, with at least two data-parallel replicas.

    Raises
    ------
    ValueError
        If the number is not a multiple of 4.
    """
    if n_ranks % 4 or n_ranks < 4:
        raise ValueError(f"`n_ranks` must be a multiple of 4, got {n_ranks}.")
    choices = [
        (tp, pp)
        for tp in (2, 4, 8)
        for pp in (1, 2, 4)
        if n_ranks % (tp * pp) == 0 and n_ranks // (tp * pp) >= 2
    ]
    if n_ranks <= 8:
        choices = [(2, 1)]
    tp, pp = choices[int(rng.integers(len(choices)))]
    per_machine = _PER_MACHINE if n_ranks > 2 * _PER_MACHINE else max(2, n_ranks // 4)
    return RankLayout(tp, pp, n_ranks // (tp * pp), per_machine)
