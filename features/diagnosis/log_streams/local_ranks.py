"""Ranks from local ranks: the first rank of a machine, where the text states it."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.features.diagnosis.host_names import host_key
from forewarn.features.diagnosis.log_streams.file_numbers import (
    launcher_folder,
    machine_of_path,
)
from forewarn.features.diagnosis.log_streams.heard_sources import (
    HeardSource,
)
from forewarn.features.diagnosis.log_streams.job_ranks import JobRanks
from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["first_rank", "give_locals", "launcher_of", "local_of"]


def give_locals(heard: Sequence[HeardSource], job: JobRanks, ranks: Ranks) -> None:
    """Add the first rank of a machine to local ranks, where the text states it."""
    groups: dict[tuple[object, ...], list[HeardSource]] = {}
    for item in heard:
        groups.setdefault(launcher_of(item), []).append(item)
    trees = [items for items in groups.values() if any(local_of(i) is not None for i in items)]
    for items in trees:
        offset, stated = first_rank(items, job), _first_ranks(items, job)
        for item in items:
            local = local_of(item)
            if local is None or job.rank(item) is not None:
                continue
            if offset is not None:
                job.give(item, local + offset)
            elif (machine := _machine(item, ranks)) and ranks.rank_at(machine, local) is not None:
                job.give(item, ranks.rank_at(machine, local))
            elif len(trees) == 1 and not stated and _fits(items, job.world):
                job.give(item, local)
            else:
                job.ignore(item, "local ranks: the first rank of the machine is not stated")


def launcher_of(item: HeardSource) -> tuple[object, ...]:
    """Return what the workers of one launcher have in common."""
    if item.number.kind == "local":
        return ("tree", launcher_folder(item.source.name))
    return (item.source.name, *item.source.label.launcher)


def local_of(item: HeardSource) -> int | None:
    """Return the rank on its machine that a prefix or torchrun's tree says, or None."""
    if item.source.label.local is not None:
        return item.source.label.local
    return item.number.value if item.number.kind == "local" else None


def _machine(item: HeardSource, ranks: Ranks) -> str | None:
    hosts = {row.machine for row in ranks.table.values() if row.machine is not None}
    keys = {host_key(host) for host in hosts | set(item.heard.hosts)}
    return item.source.label.host or machine_of_path(item.source.name, keys)


def first_rank(items: Sequence[HeardSource], job: JobRanks) -> int | None:
    """Return the first rank of a machine, or None if it is not stated or contradicts itself."""
    offsets = _first_ranks(items, job)
    return offsets.pop() if len(offsets) == 1 and min(offsets) >= 0 else None


def _first_ranks(items: Sequence[HeardSource], job: JobRanks) -> set[int]:
    """Return all first ranks that the text of a launcher's workers states."""
    offsets = {offset for item in items for offset in item.heard.offsets}
    for item in items:
        rank, local = job.rank(item), local_of(item)
        if rank is not None and local is not None:
            offsets.add(rank - local)
    return offsets


def _fits(items: Sequence[HeardSource], world: int | None) -> bool:
    locals_ = {local for item in items if (local := local_of(item)) is not None}
    return world is None or world == len(locals_)
