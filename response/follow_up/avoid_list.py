"""The machines that a large job had better not get, in the form that Slurm takes."""

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
        The most at risk first.
    beyond : int
        Machines at risk that are not among these, because there would be too many.
    unusable : tuple of str
        Names that no machine of a scheduler can have; they could be read as an option.
    """

    machines: tuple[str, ...]
    beyond: int = 0
    unusable: tuple[str, ...] = ()

    @property
    def hostlist(self) -> str:
        """The machines as one host list; empty where there are none."""
        return compress(self.machines)

    @property
    def option(self) -> str:
        """What `sbatch`, `salloc` and `srun` take; empty where there is no machine."""
        return f"--exclude={self.hostlist}" if self.machines else ""


def avoid_list(ranked: Iterable[str], *, most: int | None = None) -> AvoidList:
    """Return the machines to avoid.

    Parameters
    ----------
    ranked : iterable of str
        The machine of each GPU at risk, the GPU most at risk first; a machine may come again.
    most : int or None
        How many machines at most; None: all.

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
