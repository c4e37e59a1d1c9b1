"""Rank that wrote a flight recorder dump: as the dump says, or as its groups and its name agree."""

from __future__ import annotations

from functools import reduce

from forewarn.features.diagnosis.flight_recorder_dump import FlightRecorderDump

__all__ = ["dump_rank"]


def dump_rank(dump: FlightRecorderDump, by_name: int | None) -> tuple[int | None, str]:
    """Return the rank that wrote a dump, or None, and how it is known or why it is not.

    A rank is a member of each group that it has entries of. The dump describes the groups that the
    rank belongs to, and often a single rank belongs to all of them.

    Parameters
    ----------
    dump : FlightRecorderDump
    by_name : int or None
        Rank in the name of the file.
    """
    if dump.rank is not None:
        return dump.rank, "as the dump says"
    entered = [dump.members[group] for group in dump.groups if group in dump.members]
    if by_name is not None and all(by_name in members for members in entered):
        return by_name, "as its name says"
    sets = [frozenset(members) for members in dump.members.values()]
    common = reduce(frozenset.intersection, sets) if sets else frozenset()
    if len(common) == 1:
        return min(common), "as its groups say"
    if by_name is None:
        return None, "neither its name nor its groups tell the rank"
    return None, f"its name says rank {by_name}, which does not belong to its groups"
