"""Which machine gets which rank after a job has lost some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

__all__ = ["RankAssignment", "assign", "check_sizes"]


@dataclass(frozen=True, slots=True)
class RankAssignment:
    """Machines of the next run of a job.

    Attributes
    ----------
    machines : tuple of str
        By node rank; empty if there are too few, so that the job has to wait.
    waiting : tuple of str
        Usable machines without a rank, which are the spares of the next assignment.
    """

    machines: tuple[str, ...]
    waiting: tuple[str, ...]


def check_sizes(nodes: int, unit: int, minimum: int) -> None:
    """Refuse sizes that no job can have.

    Parameters
    ----------
    nodes : int
        Wanted size.
    unit : int
        The size is a multiple of it.
    minimum : int
        Smallest size with which the job goes on.

    Raises
    ------
    ValueError
        If a size is not positive, the unit is above the minimum, the minimum above the wanted size,
        or that no multiple of the unit.
    """
    if unit < 1:
        raise ValueError(f"`unit` must be at least 1, got {unit}.")
    if unit > minimum:
        raise ValueError(f"`unit` must be at most `minimum` ({minimum}), got {unit}.")
    if minimum > nodes:
        raise ValueError(f"`minimum` must be at most `nodes` ({nodes}), got {minimum}.")
    if nodes % unit:
        raise ValueError(f"`nodes` must be a multiple of `unit` ({unit}), got {nodes}.")


def assign(
    ranks: Sequence[str],
    lost: Collection[str],
    spares: Sequence[str],
    unit: int,
    minimum: int,
    *,
    nodes: int | None = None,
) -> RankAssignment:
    """Return which machine gets which rank in the next run.

    Survivors keep their ranks. Spares take the ranks of lost machines. If they do not suffice, the
    job shrinks to a multiple of the unit, and survivors of the ranks that no longer exist take the
    vacant ones.

    Parameters
    ----------
    ranks : sequence of str
        Machine of each rank so far.
    lost : collection of str
        Machines that are not usable.
    spares : sequence of str
        The first is used first. Lost ones, and those that have a rank, are ignored.
    unit, minimum : int
    nodes : int, optional
        Wanted size, by default the number of ranks. A job that has shrunk grows to it again.

    Raises
    ------
    ValueError
        If a machine has two ranks, or the sizes are not valid (`check_sizes`).

    Examples
    --------
    Six machines in units of two, of which one is lost: four train, and one waits.

    >>> assign(["a", "b", "c", "d", "e", "f"], {"b"}, [], 2, 2)
    RankAssignment(machines=('a', 'e', 'c', 'd'), waiting=('f',))

    >>> assign(["a", "b"], {"b"}, ["s"], 1, 1)
    RankAssignment(machines=('a', 's'), waiting=())
    """
    if len(set(ranks)) < len(ranks):
        raise ValueError(f"`ranks` must name each machine once, got {list(ranks)}.")
    full_size = len(ranks) if nodes is None else nodes
    check_sizes(full_size, unit, minimum)
    by_rank = [None if machine in lost else machine for machine in ranks]
    unused = [s for s in dict.fromkeys(spares) if s not in lost and s not in ranks]
    usable = sum(machine is not None for machine in by_rank) + len(unused)
    size = min(full_size, usable) // unit * unit
    if size < minimum:
        survivors = (machine for machine in by_rank if machine is not None)
        return RankAssignment((), (*survivors, *unused))
    displaced = [machine for machine in by_rank[size:] if machine is not None]
    successors = [*unused, *displaced]
    machines = [
        successors.pop(0) if machine is None else machine
        for machine in (by_rank + [None] * size)[:size]
    ]
    return RankAssignment(tuple(machines), tuple(successors))
