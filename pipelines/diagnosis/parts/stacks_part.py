"""Part `stacks`: samples of all ranks, in `stacks/TIME/RANK.json` or in files of any name."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from forewarn.features.diagnosis.log_streams.job_streams import FileReading
from forewarn.features.diagnosis.numbered_names import ranks_of_names
from forewarn.features.diagnosis.ranks import Ranks, format_ranks
from forewarn.features.diagnosis.stack_file import stacks_by_rank
from forewarn.features.diagnosis.stack_sample import BrokenStackError, Stack
from forewarn.models.diagnosis.hang.expected_absence import expected_absence_phases
from forewarn.models.diagnosis.hang.outlier_stacks import find_outlier_stacks
from forewarn.models.diagnosis.probes.stack_phases import stack_phases
from forewarn.models.diagnosis.probes.stack_probe import (
    StackSample,
    latest_divergent_stacks,
    stack_probe,
)
from forewarn.pipelines.diagnosis.parts.captures import captures_elsewhere, name_in_job
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder, JobFolderError
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.files.regular_files import files_below, require_regular

__all__ = ["StacksPart", "read_stacks"]

_TIME = re.compile(
    r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)[T_](\d\d)[:-]?(\d\d)[:-]?(\d\d(?:\.\d{1,9})?)"
    r"(Z|[+-]\d\d:\d\d)?(?!\d)"
)
_MAX_STACK_BYTES = 16 * 2**20
_MAX_NOTES = 5


@dataclass(frozen=True, slots=True)
class StacksPart:
    """Stack samples in time order.

    Attributes
    ----------
    samples : tuple of StackSample
    undated : mapping of int to Stack
        Stacks by rank of files whose path has no time: they count as of the verdict.
    files : tuple of FileReading
    """

    samples: tuple[StackSample, ...]
    undated: Mapping[int, Stack]
    files: tuple[FileReading, ...]

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks with a stack."""
        return frozenset(self.undated).union(*(sample.stacks for sample in self.samples))

    @property
    def last(self) -> int | None:
        """Time of the last sample."""
        return self.samples[-1].time if self.samples else None

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return whether stacks change, which ranks are outliers, and the current quiet phase.

        A single sample is enough for the last two, although it does not show whether the job moves.
        """
        samples = [sample for sample in self.samples if sample.time <= snapshot.at]
        samples += [StackSample(snapshot.at, self.undated)] if self.undated else []
        probe = stack_probe(samples, len(snapshot.ranks.table), snapshot.at)
        odd = latest_divergent_stacks(samples, len(snapshot.ranks.table), snapshot.at, probe.since)
        if odd is not None and self.undated:  # they may be older than the stall
            odd = replace(odd, is_only_outsider=False)
        findings = [odd]
        if probe.state == "idle":
            findings.append(find_outlier_stacks(samples[-1].stacks, snapshot.ranks, probe.since))
        phases = (*stack_phases(samples), *expected_absence_phases(samples, snapshot.ranks))
        notes = tuple(_notes(self.files))
        return PartResult(probe, tuple(f for f in findings if f is not None), phases, notes)


def _notes(files: Sequence[FileReading]) -> Iterator[str]:
    unread = [f"stacks: {file.name} {file.why[0]}" for file in files if file.read_as is None]
    yield from unread[:_MAX_NOTES]
    if len(unread) > _MAX_NOTES:
        yield f"stacks: {len(unread) - _MAX_NOTES} more"


def read_stacks(folder: JobFolder, ranks: Ranks) -> StacksPart | None:
    """Read all stacks of a job, or return None if there are none.

    Raises
    ------
    JobFolderError
        If a path in `stacks/` is not a regular file.
    """
    paths = list(_stack_files(folder))
    if not paths and folder.part("stacks") is None:
        return None
    samples: dict[int | None, dict[int, Stack]] = {}
    files, by_pid = list[FileReading](), ranks.by_pid()
    for path, by_name in _numbered(paths, ranks):
        name = name_in_job(folder, path)
        time = _time_in_path(PurePath(name))
        try:
            stacks = stacks_by_rank(_read_stack_file(path), by_name, by_pid)
        except BrokenStackError as error:
            files.append(FileReading(name, None, (str(error),)))
            continue
        samples.setdefault(time, {}).update(stacks)
        why = () if time is not None else ("its path has no time: taken as of the verdict",)
        files.append(FileReading(name, f"stacks of {format_ranks(sorted(stacks))}", why))
    undated = samples.pop(None, {})
    dated = tuple(StackSample(time, samples[time]) for time in sorted(filter(None, samples)))
    return StacksPart(dated, undated, tuple(files))


def _stack_files(folder: JobFolder) -> Iterator[Path]:
    """Yield the files of `stacks/`, whatever they contain, and the stacks elsewhere."""
    path = folder.part("stacks")
    if path is not None:
        for entry in sorted(path.rglob("*")):
            if not entry.is_dir():
                require_regular(entry, JobFolderError)
        yield from files_below(path, JobFolderError)
    yield from captures_elsewhere(folder, "py-spy stacks")


def _numbered(paths: Sequence[Path], ranks: Ranks) -> Iterator[tuple[Path, int | None]]:
    """Yield the files with the rank in their name; names of one folder are compared."""
    known = ranks.table.keys() if ranks.listed else None
    for _, group in itertools.groupby(paths, key=lambda path: path.parent):
        below = list(group)
        by_name = ranks_of_names([path.name for path in below], known)
        yield from ((path, by_name[path.name]) for path in below)


def _read_stack_file(path: Path) -> bytes:
    if path.stat().st_size > _MAX_STACK_BYTES:
        raise BrokenStackError(f"is larger than {_MAX_STACK_BYTES} bytes, expected a stack")
    return path.read_bytes()


def _time_in_path(path: PurePath) -> int | None:
    """Return the time in the name of a file or its folder: ISO 8601, with or without separators."""
    for part in reversed(path.parts):
        match = _TIME.search(part)
        if match:
            with contextlib.suppress(ValueError):
                return parse_moment("{}-{}-{}T{}:{}:{}{}".format(*match.groups("Z")))
    return None
