"""Part `stacks/TIME/RANK.json`: stack samples of all ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.diagnosis.ranks import MAX_RANKS, Ranks
from forewarn.features.diagnosis.stack_sample import BrokenStackError, Stack, main_stack
from forewarn.models.diagnosis.hang.expected_absence import expected_absence_phases
from forewarn.models.diagnosis.hang.outlier_stacks import find_outlier_stacks
from forewarn.models.diagnosis.probes.stack_phases import stack_phases
from forewarn.models.diagnosis.probes.stack_probe import (
    StackSample,
    latest_divergent_stacks,
    stack_probe,
)
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder, JobFolderError
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.files.regular_files import require_regular

__all__ = ["StacksPart", "read_stacks"]

_COMPACT_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d(?:\.\d{1,9})?)Z?")
_MAX_STACK_BYTES = 16 * 2**20
_MAX_NOTES = 5


@dataclass(frozen=True, slots=True)
class StacksPart:
    """Stack samples in time order.

    Attributes
    ----------
    samples : tuple of StackSample
    notes : tuple of str
        Files that could not be used, with reasons.
    """

    samples: tuple[StackSample, ...]
    notes: tuple[str, ...]

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks with a stack."""
        return frozenset(rank for sample in self.samples for rank in sample.stacks)

    @property
    def last(self) -> int | None:
        """Time of the last sample."""
        return self.samples[-1].time if self.samples else None

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return whether stacks change, which ranks are outliers, and the current quiet phase.

        A single sample is enough for the last two, although it does not show whether the job moves.
        """
        samples = [sample for sample in self.samples if sample.time <= snapshot.at]
        probe = stack_probe(samples, len(snapshot.ranks.table), snapshot.at)
        findings = [
            latest_divergent_stacks(samples, len(snapshot.ranks.table), snapshot.at, probe.since)
        ]
        if probe.state == "idle":
            findings.append(find_outlier_stacks(samples[-1].stacks, snapshot.ranks, probe.since))
        phases = (*stack_phases(samples), *expected_absence_phases(samples, snapshot.ranks))
        return PartResult(probe, tuple(f for f in findings if f is not None), phases, self.notes)


def read_stacks(folder: JobFolder, _: Ranks) -> StacksPart | None:
    """Read all samples of a job, or return None if there are none.

    Raises
    ------
    JobFolderError
        If a folder name is not a time, or a file name not a rank.
    """
    path = folder.part("stacks")
    if path is None or not path.is_dir():
        return None
    notes = list[str]()
    samples = [
        StackSample(_sample_time(sample), dict(_read_sample(sample, notes)))
        for sample in path.iterdir()
        if sample.is_dir() and not sample.name.startswith(".")
    ]
    if not samples:
        return None
    more = [f"stacks: {len(notes) - _MAX_NOTES} more"] if len(notes) > _MAX_NOTES else []
    ordered = tuple(sorted(samples, key=lambda sample: sample.time))
    return StacksPart(ordered, (*notes[:_MAX_NOTES], *more))


def _sample_time(sample: Path) -> int:
    """Return the time in a folder name: ISO 8601, with or without separators."""
    match = _COMPACT_TIME.fullmatch(sample.name)
    text = "{}-{}-{}T{}:{}:{}Z".format(*match.groups()) if match else sample.name
    try:
        return parse_moment(text)
    except ValueError:
        raise JobFolderError(
            f"{sample}: its name is not a time, expected a name such as 2026-11-22T08:30:00Z."
        ) from None


def _read_sample(sample: Path, notes: list[str]) -> Iterator[tuple[int, Stack]]:
    for file in sorted(sample.glob("*.json")):
        name = file.stem
        if not (name.isascii() and name.isdecimal() and len(name) < 8 and int(name) < MAX_RANKS):
            raise JobFolderError(
                f"{file}: its name is not a rank, expected a name such as 12.json."
            )
        require_regular(file, JobFolderError)
        try:
            if file.stat().st_size > _MAX_STACK_BYTES:
                raise BrokenStackError(f"is larger than {_MAX_STACK_BYTES} bytes, expected a stack")
            yield int(name), main_stack(file.read_bytes())
        except BrokenStackError as error:
            notes.append(f"stacks: {sample.name}/{file.name} {error}")
