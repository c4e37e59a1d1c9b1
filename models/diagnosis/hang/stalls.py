"""Stalls of a job: the oldest unfinished operation of each rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.features.diagnosis.flight_recorder_dump import COMPLETED
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.hang.stalled_operations import Stall, collective_stalls, group_text

__all__ = ["find_stalls"]

_P2P_NAME = re.compile(r"(?:.*:)?(send|recv) (\d+)(?:->|<-)(\d+)")


def find_stalls(operations: CollectiveOperations, ranks: Ranks) -> list[Stall]:
    """Return the oldest unfinished operation of each rank, with ranks of the same one combined.

    Parameters
    ----------
    operations : CollectiveOperations
        As of the verdict.
    ranks : Ranks
        All ranks of the job.
    """
    unfinished = operations.unfinished()
    _, first = np.unique(unfinished["rank"], return_index=True)
    oldest = unfinished[first]
    collective = oldest[~oldest["is_p2p"]]
    pairs = [
        _pair_stall(operations, row, match)
        for row in oldest[oldest["is_p2p"]]
        if (match := _P2P_NAME.fullmatch(operations.names[row["name"]]))
        and int(match[3]) < len(operations.members[int(row["group"])])
    ]
    left = (stall.left_behind for stall in pairs if stall.left_behind is not None)
    stopped = frozenset(collective["rank"].tolist()).union(left)
    is_finished = operations.entries["state"] == COMPLETED
    with_history = frozenset(np.unique(operations.entries["rank"][is_finished]).tolist())
    return [
        *collective_stalls(operations, collective, ranks, stopped),
        *_without_guesses(pairs, stopped, with_history),
    ]


def _without_guesses(
    pairs: Sequence[Stall], stopped: frozenset[int], with_history: frozenset[int]
) -> Iterator[Stall]:
    """Yield sends and receives with only what the peer's dump proves.

    A recorder may drop finished operations. The peer has then either not come to this one, or left
    it. A peer that is in another send or receive may be in both at the same time. If a rank and its
    peer are both in the one between them, either of them may be stuck.
    """
    waits = {(rank, peer) for stall in pairs for rank in stall.waiting for peer in stall.behind}
    for stall in pairs:
        both = {(peer, rank) for rank in stall.waiting for peer in stall.behind}
        if stall.absent and not with_history.issuperset(stall.absent):
            yield replace(stall, absent=(), behind=stall.absent)
        elif both & waits:
            yield replace(
                stall, behind=(), variants={stall.operation: (*stall.waiting, *stall.behind)}
            )
        else:
            yield replace(stall, behind=tuple(stopped.intersection(stall.behind)))


def _pair_stall(operations: CollectiveOperations, row: np.void, match: re.Match[str]) -> Stall:
    """Return a send or receive, and whether its peer has come to it or left it."""
    rank, peer = int(row["rank"]), operations.members[int(row["group"])][int(match[3])]
    own = _numbers(operations, rank, int(row["group"]), match.groups())
    mirrored = {"send": "recv", "recv": "send"}[match[1]], match[3], match[2]
    others = _numbers(operations, peer, int(row["group"]), mirrored)
    known = peer in operations.ranks
    is_numbered_alike = max(own.finished, default=None) in others.finished
    has_left = int(row["seq"]) in others.finished and (is_numbered_alike or not own.finished)
    has_come = bool(others.unfinished) and not has_left
    is_left_behind = has_left and is_numbered_alike
    return Stall(
        group=group_text(operations, int(row["group"])),
        seq=int(row["seq"]),
        operation=match[0],
        since=int(row["created"]),
        last=int(row["created"]),
        waiting=() if is_left_behind else (rank,),
        absent=(peer,) if known and not has_come and not has_left else (),
        halted=(),
        silent=() if known else (peer,),
        variants={match[0]: (rank,)} if has_left and not is_left_behind else {},
        behind=(peer,) if has_come else (),
        left_behind=rank if is_left_behind else None,
    )


class _Numbers(NamedTuple):
    """Sequence numbers of a rank's sends to, or receives from, one peer."""

    finished: frozenset[int]
    unfinished: frozenset[int]


def _numbers(
    operations: CollectiveOperations, rank: int, group: int, parts: tuple[str | None, ...]
) -> _Numbers:
    rows = operations.of_rank(rank)
    rows = rows[rows["is_p2p"] & (rows["group"] == group)]
    names = [
        index
        for index in np.unique(rows["name"]).tolist()
        if (match := _P2P_NAME.fullmatch(operations.names[index])) and match.groups() == parts
    ]
    rows = rows[np.isin(rows["name"], names)]
    is_finished = rows["state"] == COMPLETED
    return _Numbers(
        frozenset(rows["seq"][is_finished].tolist()), frozenset(rows["seq"][~is_finished].tolist())
    )
