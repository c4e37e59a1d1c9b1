"""Ranks from numbers of tasks, pods and files, believed where the text agrees with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from forewarn.features.diagnosis.log_streams.file_numbers import (
    file_number,
)
from forewarn.features.diagnosis.log_streams.heard_sources import (
    HeardSource,
)
from forewarn.features.diagnosis.log_streams.job_ranks import JobRanks
from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["give_names", "give_tasks"]

_STREAM_FOLDER = re.compile(r"(?:^|/)(?:std)?(?:out|err)/")


def give_tasks(heard: Sequence[HeardSource], job: JobRanks) -> None:
    """Believe the numbers of a launcher's tasks or pods, unless the text speaks against them."""
    tasks = [(item, number) for item in heard if (number := _task(item)) is not None]
    if not tasks:
        return
    spoken = [(number, rank) for item, number in tasks if (rank := job.rank(item)) is not None]
    numbers = {number for _, number in tasks}
    reason = ""
    if any(number != rank for number, rank in spoken) or any(
        item.source.label.local is not None for item, _ in tasks
    ):
        reason = "numbers of tasks or pods are not the ranks that the text says"
    elif not spoken and job.world is not None and numbers != set(range(job.world)):
        reason = f"numbers of {len(numbers)} tasks or pods: the job has {job.world} ranks"
    elif not spoken and len(numbers) == 1:
        reason = "one task or pod only, and no text that says its rank"
    job.tasks_are_ranks = not reason
    for item, number in tasks:
        if reason:
            job.ignore(item, reason)
        else:
            job.give(item, number)


def _task(item: HeardSource) -> int | None:
    label = item.source.label
    if label.task is not None or label.pod is None:
        return label.task
    number = file_number(label.pod)
    return None if number.kind == "none" else number.value


def give_names(heard: Sequence[HeardSource], job: JobRanks, ranks: Ranks) -> None:
    """Believe the numbers of names that agree with the text, or that count from 0 to n - 1."""
    families: dict[str, dict[int, list[HeardSource]]] = {}
    for item in heard:
        name = item.number
        if name.kind == "none" and name.why:
            job.ignore(item, f"its name: {name.why}")
        elif name.value is not None and name.kind in ("rank", "number"):
            families.setdefault(name.family, {}).setdefault(name.value, []).append(item)
    repeated = _repeated(families)
    for family, files in families.items():
        reason = _why_no_ranks(family, files, job, ranks)
        if family in repeated and not any(_stated_ranks(items, job) for items in files.values()):
            reason = reason or "several folders have the same numbers"
        for number, items in files.items():
            for item in items:
                if reason:
                    job.ignore(item, f"its name: {reason}")
                else:
                    job.give(item, number)


def _repeated(families: Mapping[str, Mapping[int, object]]) -> set[str]:
    """Return families in folders that have the same numbers: ranks of a machine each."""
    folders: dict[str, set[str]] = {}
    for family in families:
        before, _, after = family.partition("#")
        folders.setdefault(f"{before.rpartition('/')[2]}#{after}", set()).add(family)
    repeated = set[str]()
    for alike in folders.values():
        for family in alike:
            others = (set(families[other]) for other in alike if other != family)
            if any(numbers & set(families[family]) for numbers in others):
                repeated.add(family)
    return {family for family in repeated if not _STREAM_FOLDER.search(family)}


def _why_no_ranks(
    family: str, files: dict[int, list[HeardSource]], job: JobRanks, ranks: Ranks
) -> str:
    """Return why the numbers of names are not ranks, or an empty string."""
    spoken = {number: _stated_ranks(items, job) for number, items in files.items()}
    if any(stated and stated != {number} for number, stated in spoken.items()):
        return "the text says other ranks"
    if any(spoken.values()) or files[min(files)][0].number.kind == "rank":
        return ""
    if any(_task(item) is not None for items in files.values() for item in items):
        return "the prefixes name other writers"
    bare = family.rpartition("/")[2] == "#"
    if bare and not ranks.listed and all(i.source.is_container for v in files.values() for i in v):
        return "the number counts the starts of a container"
    is_within = job.world is not None and max(files) < job.world
    if is_within and ranks.listed and (bare or set(files) == set(range(job.world or 0))):
        return ""
    if len(files) < 2 or set(files) != set(range(len(files))):
        return "numbers that do not count from 0, and no text that agrees with them"
    if job.world is not None and job.world != len(files):
        return f"{len(files)} files: the job has {job.world} ranks"
    return ""


def _stated_ranks(items: Iterable[HeardSource], job: JobRanks) -> set[int]:
    """Return the ranks that the text of a file says."""
    stated = {rank for item in items if (rank := job.rank(item)) is not None}
    for item in items:
        stated |= {rank for rank in item.heard.ranks if job.world is None or rank < job.world}
    return stated
