"""Machines that a large job should avoid, as an option of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from forewarn.features.hostlist import compress

__all__ = ["AvoidList", "avoid_list"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True, slots=True)
class AvoidList:
    """Machines to avoid.

    Attributes
    ----------
    machines : tuple of str
        Highest risk first.
    beyond : int
        Number of machines at risk beyond the limit.
    unusable : tuple of str
        Names that are no valid host names; a shell could read them as options.
    """

    machines: tuple[str, ...]
    beyond: int = 0
    unusable: tuple[str, ...] = ()

    @property
    def hostlist(self) -> str:
        """The machines as one host list; empty without machines."""
        return compress(self.machines)

    @property
    def option(self) -> str:
        """Option of `sbatch`, `salloc` and `srun`; empty without machines."""
        return f"--exclude={self.hostlist}" if self.machines else ""


def avoid_list(ranked: Iterable[str], *, most: int | None = None) -> AvoidList:
    """Return the machines to avoid.

    Parameters
    ----------
    ranked : iterable of str
        The machine of each GPU at risk, highest risk first; a machine may occur several times.
    most : int or None
        Largest number of machines; None: all.

    Examples
    --------
    >>> avoid_list(["node-07", "node-01", "node-07", "node-02"], most=2).option
    '--exclude=node-[01,07]'
    """
    names = dict.fromkeys(ranked)
    usable = [name for name in names if _NAME.fullmatch(name)]
    chosen = usable if most is None else usable[:most]
    unusable = tuple(name for name in names if not _NAME.fullmatch(name))
    return AvoidList(tuple(chosen), len(usable) - len(chosen), unusable)
