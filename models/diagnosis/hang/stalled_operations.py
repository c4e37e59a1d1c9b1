"""Stalled collectives: the ranks that are in each, and the members that have not come to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.features.diagnosis.flight_recorder_dump import COMPLETED, STARTED
from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["Stall", "collective_stalls", "group_text", "members_without_dump"]

# Operations whose types and sizes are equal on all ranks; those of a gather are not.
_SAME_SIGNATURE_OPERATIONS = frozenset(
    {"all_reduce", "allreduce_coalesced", "broadcast", "reduce", "barrier"}
    | {"_all_gather_base", "_allgather_base", "_reduce_scatter_base"}
)

# Collectives that no rank leaves before all have entered; the root leaves a broadcast early.
_NEEDS_ALL = re.compile(
    r"(?:.*:)?(?:all_?reduce\w*|barrier|_?all_?gather\w*|_?reduce_?scatter\w*|all_?to_?all\w*)"
)


@dataclass(frozen=True, slots=True)
class Stall:
    """An operation that is the oldest unfinished one of some rank.

    Attributes
    ----------
    group : str
        Name and purpose of the process group.
    seq : int
        Sequence number of the operation in the group.
    operation : str
    since : int
        Time of the first entry, in nanoseconds since 1970 UTC.
    last : int
        Time of the last entry so far.
    waiting : tuple of int
        Ranks that are blocked until the operation ends.
    absent : tuple of int
        Members that have not entered it, or have not started it on the device where others have.
    halted : tuple of int
        Members of `absent` that have entered it but have not started it on the device.
    silent : tuple of int
        Ranks without a dump that are or may be members; empty if there are absent ranks.
    n_members : int
        Members with a dump.
    behind : tuple of int
        Members that have entered it but are still in an earlier operation.
    left_behind : int or None
        The only rank in it: all other members have left. The rank waits for none of them.
    variants : mapping of str to tuple of int
        Ranks by what they do under this sequence number; more than one variant is a mismatch.
    """

    group: str
    seq: int
    operation: str
    since: int
    last: int
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    halted: tuple[int, ...]
    silent: tuple[int, ...]
    variants: Mapping[str, tuple[int, ...]]
    n_members: int = 2
    behind: tuple[int, ...] = ()
    left_behind: int | None = None

    @property
    def blockers(self) -> tuple[int, ...]:
        """Ranks that the waiting ones wait for, by the strongest evidence there is."""
        return self.absent or self.behind or self.silent

    @property
    def is_mismatch(self) -> bool:
        """Whether ranks do different things under the same sequence number."""
        return len(self.variants) > 1

    def minority_ranks(self) -> tuple[int, ...]:
        """Return the ranks outside the majority; all ranks if there is a tie."""
        sizes = sorted((len(ranks) for ranks in self.variants.values()), reverse=True)
        is_tied = len(sizes) > 1 and sizes[0] == sizes[1]
        return tuple(
            rank
            for ranks in self.variants.values()
            if is_tied or len(ranks) < sizes[0]
            for rank in ranks
        )


def collective_stalls(
    operations: CollectiveOperations,
    oldest: npt.NDArray[np.void],
    ranks: Ranks,
    stopped: frozenset[int],
) -> Iterator[Stall]:
    """Yield the collectives that are the oldest unfinished operation of some rank.

    Parameters
    ----------
    operations : CollectiveOperations
        As of the verdict.
    oldest : ndarray of OPERATION
        The oldest unfinished operation of each rank, if it is a collective.
    ranks : Ranks
        All ranks of the job. Ranks without a dump may be members of groups that no dump lists, if
        their coordinates fit.
    stopped : frozenset of int
        Ranks that come to no later operation: those in a collective, and those left behind.
    """
    collective = operations.entries[~operations.entries["is_p2p"]]
    last = _last_entered(operations, collective)
    rows = collective[np.isin(_keys(collective), _keys(oldest))]
    rows = rows[np.argsort(_keys(rows), kind="stable")]
    starts = np.flatnonzero(np.diff(_keys(rows), prepend=-1))
    waiting_at: dict[int, list[int]] = {}
    for key, rank in zip(_keys(oldest).tolist(), oldest["rank"].tolist(), strict=True):
        waiting_at.setdefault(key, []).append(rank)
    for part in np.split(rows, starts[1:]) if len(rows) else []:
        waiting = waiting_at[int(_keys(part[:1])[0])]
        stall = _collective_stall(operations, part, waiting, last, ranks)
        is_timed = bool((part["state"] == STARTED).any())
        yield _with_progress(stall, frozenset() if is_timed else stopped)


def _keys(rows: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return one number per (group, sequence number)."""
    keys: npt.NDArray[np.int64] = rows["group"].astype(np.int64) << 40 | rows["seq"]
    return keys


def _last_entered(
    operations: CollectiveOperations, collective: npt.NDArray[np.void]
) -> dict[tuple[int, int], int]:
    """Return the last sequence number that each rank has entered, by (rank, group)."""
    keys = collective["rank"].astype(np.int64) << 32 | collective["group"]
    order = np.lexsort((collective["seq"], keys))
    ends = np.flatnonzero(np.diff(keys[order], append=-1))
    rows = collective[order][ends]
    pairs = zip(rows["rank"].tolist(), rows["group"].tolist(), strict=True)
    last = dict(zip(pairs, rows["seq"].tolist(), strict=True))
    return last | {key: max(seq, last.get(key, -1)) for key, seq in operations.enqueued.items()}


def _collective_stall(
    operations: CollectiveOperations,
    rows: npt.NDArray[np.void],
    waiting: list[int],
    last: Mapping[tuple[int, int], int],
    ranks: Ranks,
) -> Stall:
    """Combine what all members do under one sequence number."""
    group, seq = int(rows["group"][0]), int(rows["seq"][0])
    members, entered = operations.members[group], set(rows["rank"].tolist())
    begun = set(rows["rank"][rows["state"] >= STARTED].tolist())
    running = rows["rank"][rows["state"] == STARTED].tolist()
    halted = sorted(entered - begun) if running else []  # these block the ranks that have started
    late = [  # the ring buffer drops old entries; a rank with later ones has entered this one
        rank
        for rank in members
        if rank in operations.ranks and rank not in entered and last.get((rank, group), -1) < seq
    ]
    if running:
        waiting = [rank for rank in waiting if rank in begun]
    return Stall(
        group=group_text(operations, group),
        seq=seq,
        operation=operations.names[rows["name"][0]],
        since=int(rows["created"].min()),
        last=int(rows["created"].max()),
        waiting=tuple(waiting),
        absent=tuple(sorted([*late, *halted])),
        halted=tuple(halted),
        silent=() if late or halted else members_without_dump(operations, group, ranks),
        variants=_variants(operations, rows),
        n_members=len(operations.ranks.intersection(members)),
    )


def _with_progress(stall: Stall, stopped: frozenset[int]) -> Stall:
    """Add which members are in an earlier collective, or which one all others have left behind.

    Recorders that do not time the device leave all states at "scheduled". The order of the entries
    then shows which members have not come to this operation.
    """
    if stall.absent or stall.is_mismatch:
        return stall
    inside = {rank for entered in stall.variants.values() for rank in entered}
    if len(inside) < stall.n_members and _NEEDS_ALL.fullmatch(stall.operation):
        stall = replace(stall, silent=())  # some member has left, so that all had entered
    behind = inside.intersection(stopped).difference(stall.waiting)
    if behind:
        return replace(stall, behind=tuple(sorted(behind)))
    is_left = len(inside) == 1 and inside == set(stall.waiting) and not stall.silent
    if is_left and stall.n_members > 1:
        return replace(stall, waiting=(), left_behind=stall.waiting[0])
    return stall


def members_without_dump(
    operations: CollectiveOperations, group: int, ranks: Ranks
) -> tuple[int, ...]:
    """Return the ranks without a dump that are or may be members of a group.

    Parameters
    ----------
    operations : CollectiveOperations
    group : int
        Number of the group.
    ranks : Ranks
        All ranks of the job.
    """
    members, use = operations.members[group], operations.descriptions[group]
    if group in operations.described:
        return tuple(rank for rank in members if rank not in operations.ranks)
    others = sorted(ranks.table.keys() - operations.ranks)
    return tuple(rank for rank in others if ranks.may_join(rank, members, use))


def group_text(operations: CollectiveOperations, group: int) -> str:
    """Return the name and the purpose of a group."""
    name, use = operations.groups[group], operations.descriptions[group]
    return f"{name} ({use})" if use else name


def _variants(
    operations: CollectiveOperations, rows: npt.NDArray[np.void]
) -> dict[str, tuple[int, ...]]:
    """Return the ranks by what they do; sizes count only where they must be equal."""
    variants: dict[str, list[int]] = {}
    for row in rows[rows["state"] != COMPLETED]:
        name = operations.names[row["name"]]
        signature = operations.signatures[row["signature"]]
        text = (
            f"{name} {signature}" if name.rpartition(":")[2] in _SAME_SIGNATURE_OPERATIONS else name
        )
        variants.setdefault(text, []).append(int(row["rank"]))
    return {text: tuple(ranks) for text, ranks in variants.items()}
