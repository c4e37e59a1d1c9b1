"""Ranks of a job: what the text says first, then numbers of launchers, then names of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from forewarn.features.diagnosis.log_streams.file_numbers import (
    is_kernel_log,
)
from forewarn.features.diagnosis.log_streams.heard_sources import (
    HeardSource,
    has_label,
    is_one_rank,
)
from forewarn.features.diagnosis.log_streams.job_ranks import JobRanks
from forewarn.features.diagnosis.log_streams.local_ranks import give_locals
from forewarn.features.diagnosis.log_streams.numbered_ranks import give_names, give_tasks
from forewarn.features.diagnosis.ranks import Ranks, format_ranks

__all__ = ["learn_ranks"]


def learn_ranks(heard: Sequence[HeardSource], ranks: Ranks) -> JobRanks:
    """Determine the ranks of all sources of a job."""
    heard = [item for item in heard if not is_kernel_log(item.source.name)]
    job = JobRanks(_world(heard, ranks))
    shared = _shared_in_ray(heard)
    for item in heard:
        if item.source.label.pid is not None and shared:
            job.ignore(item, f"{format_ranks(shared)} of several process groups of Ray's actors")
        else:
            job.give(item, item.source.label.rank)
    heard = [item for item in heard if item.source.label.pid is None or not shared]
    _give_spoken(heard, job)
    give_locals(heard, job, ranks)
    give_tasks(heard, job)
    give_names(heard, job, ranks)
    return job


def _shared_in_ray(heard: Sequence[HeardSource]) -> list[int]:
    """Return ranks that two actors have: models of one job each count their actors from 0."""
    actors: dict[int, set[tuple[str | None, str | None]]] = {}
    for item in heard:
        label = item.source.label
        if label.pid is not None and label.rank is not None:
            actors.setdefault(label.rank, set()).add((label.pid, label.address))
    return sorted(rank for rank, owners in actors.items() if len(owners) > 1)


def _world(heard: Sequence[HeardSource], ranks: Ranks) -> int | None:
    """Return the size of the job: of the table, as stated, or of the largest communicator."""
    if ranks.listed and ranks.table:
        return max(ranks.table) + 1
    stated = Counter[int]()
    sizes = set[int]()
    for item in heard:
        stated.update(item.heard.worlds)
        sizes.update(size for _, size in item.heard.communicators)
    labels = [item.source.label.rank for item in heard if item.source.label.rank is not None]
    least = max(labels, default=-1) + 1
    sizes.update(stated)
    world = max(sizes, default=0)
    return world if world >= max(least, 1) else None


def _give_spoken(heard: Sequence[HeardSource], job: JobRanks) -> None:
    """Use ranks within lines, where a source speaks for one rank only."""
    middle = {number for item in heard for number in item.heard.middle}
    are_ranks = bool(middle) and (
        max(middle) < job.world if job.world is not None else middle == set(range(len(middle)))
    )
    labelled = Counter(item.source.name for item in heard)
    for item in heard:
        spoken = set(item.heard.ranks)
        spoken |= {rank for rank, size in item.heard.communicators if size == job.world}
        spoken |= set(item.heard.middle) if are_ranks else set()
        if item.heard.middle and not are_ranks:
            shown = ", ".join(f"[rank{number}]" for number in sorted(item.heard.middle)[:4])
            job.ignore(item, f"{shown} within lines: these numbers are not ranks of the job")
        is_rest = labelled[item.source.name] > 1 and not has_label(item.source)
        if len(spoken) == 1 and not is_rest and is_one_rank(item):
            job.give(item, next(iter(spoken)))
        elif len(spoken) > 1:
            job.ignore(item, f"lines of {len(spoken)} ranks without a prefix that divides them")
