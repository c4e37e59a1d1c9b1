"""Missing-dump dependencies: ranks without a dump that may explain the lateness of others.

Without recorded end times, an operation is taken to end when its last known member enters it. If a
member left no dump, the time that others waited for it counts as their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.hang.stalled_operations import members_without_dump

__all__ = ["missing_dump_dependencies"]


def missing_dump_dependencies(
    operations: CollectiveOperations, ranks: Ranks
) -> Mapping[int, frozenset[int]]:
    """Return, by rank, the ranks without a dump that it may have waited for but not all its peers.

    These share a group with the rank, or are other stages of its pipeline if no send or receive is
    recorded. A rank that all peers wait for makes none of them later than the others.

    Parameters
    ----------
    operations : CollectiveOperations
        Operations without end times.
    ranks : Ranks
    """
    missing = ranks.table.keys() - operations.ranks
    if not missing:
        return {}
    unseen: dict[int, set[int]] = {}
    peers = cache(lambda rank: frozenset(ranks.peers(rank)))
    for group, members in operations.members.items():
        silent = missing.intersection((*members_without_dump(operations, group, ranks), *members))
        everybody = silent | set(members)
        for rank in members if silent else ():
            if rank in ranks.table and not everybody >= peers(rank):
                unseen.setdefault(rank, set()).update(silent)
    if not operations.entries["is_p2p"].any():
        for stage in missing:
            for rank in ranks.stages(stage):
                unseen.setdefault(rank, set()).add(stage)
    return {rank: frozenset(others - {rank}) for rank, others in unseen.items()}
