"""What a job's logs say of its progress: steps, checkpoints and restarts, with their times."""

from __future__ import annotations

import datetime as dt
import math
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, starmap
from pathlib import Path
from typing import NamedTuple

from forewarn.features.diagnosis.log_lines.line_selection import LinePurpose, LineSelection
from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.progress_lines import (
    ProgressForm,
    ProgressLine,
    learn_progress,
)
from forewarn.features.diagnosis.log_lines.time_marks import TimeMarks
from forewarn.features.diagnosis.log_streams.job_streams import read_streams
from forewarn.features.diagnosis.log_streams.line_sources import Source
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.probes.log_phases import PhaseLine, logged_phases
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.knowledge_base import load_patterns
from forewarn.pipelines.diagnosis.parts.log_files import log_files, read_bounded
from forewarn.pipelines.diagnosis.parts.log_reader import line_selector, newest_time
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.response.recovery.job_run import LoggedSave, ReportedStep

__all__ = ["LoggedProgress", "Restart", "read_progress"]

_BLOCK_BYTES = 2**15
_TAIL_BYTES = 2**16
_EVEN_PACE_FACTOR = 1.1
_SAME_RESTART = 2 * SECOND  # processes take longer to start


class Restart(NamedTuple):
    """Processes that launchers start again, each for its machine.

    Attributes
    ----------
    begin, end : int
        Times of the first and of the last launcher's line, in nanoseconds since 1970 UTC.
    """

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LoggedProgress:
    """Progress of a job as its logs state it.

    Attributes
    ----------
    steps : tuple of ReportedStep
        In order of time; of the rank that reports most. Numbers fall where the job starts again.
    saves : tuple of LoggedSave
        Checkpoints of which beginning and end are logged, in order.
    restarts : tuple of Restart
        In order.
    marks : tuple of int
        Times of lines of that rank, about 10 s apart, in order.
    first, last : int or None
        Of any line, in nanoseconds since 1970 UTC.
    ranks : int
        Ranks that the logs know.
    """

    steps: tuple[ReportedStep, ...] = ()
    saves: tuple[LoggedSave, ...] = ()
    restarts: tuple[Restart, ...] = ()
    marks: tuple[int, ...] = ()
    first: int | None = None
    last: int | None = None
    ranks: int = 0


@dataclass(slots=True)
class _Reader:
    """Reads the sources of a job one after another.

    Parameters
    ----------
    matcher : LogMatcher
        Of the lines about checkpoints and restarts alone.
    before : int or None
    zone : datetime.tzinfo
        As in `parse_line_timestamp`.
    """

    matcher: LogMatcher
    before: int | None
    zone: dt.tzinfo
    steps: list[list[ReportedStep]] = field(default_factory=list)
    marks: list[list[int]] = field(default_factory=list)
    forms: dict[ProgressForm, None] = field(default_factory=dict)
    phases: list[PhaseLine] = field(default_factory=list)
    restarts: list[tuple[int, int]] = field(default_factory=list)  # time, and number of the source

    def read(self, source: Source, selection: LineSelection) -> None:
        """Read a source; its steps stay in the order of the sources."""
        text = source.text
        marks = TimeMarks(self.before, self.zone)
        marks.read(text)
        self.marks.append(marks.marks if marks.last is None else [*marks.marks, marks.last])
        tail = text[-_TAIL_BYTES:]
        form = next((form for form in self.forms if form.last(tail) is not None), None)
        form = form or learn_progress(text)
        self.steps.append(_steps(text, form, marks))
        if form.is_known:
            self.forms[form] = None
        matched = list(self.matcher.lines(selection.joined(LinePurpose.PATTERN, text)))
        times = marks.times(text, [line.start for line in matched])
        for line, time in zip(matched, times, strict=True):
            if time is None:
                continue
            if line.pattern.attempt:
                self.restarts.append((time, len(self.marks)))
            elif line.pattern.phase is not None:
                is_begin = line.pattern.phase.endswith("begins")
                self.phases.append(PhaseLine("checkpoint", is_begin, time))


def _steps(text: bytes, form: ProgressForm, marks: TimeMarks) -> list[ReportedStep]:
    """Return the steps of a text: the last of each block, and all where training was not even.

    Most lines of a long log say what those around them say. The first block, and blocks in which
    steps fall back or take longer than elsewhere, are read whole.
    """
    if not form.is_known:
        return []
    starts = list(_block_starts(text))
    blocks = list(pairwise((*starts, len(text))))
    lasts: list[tuple[int, ProgressLine]] = []
    for number, (start, end) in enumerate(blocks):
        last = form.last(text[start:end])
        if last is not None:
            lasts.append((number, ProgressLine(start + last.offset, last.number)))
    steps = _timed([line for _, line in lasts], text, marks)
    slow = _uneven(steps)
    lines = []
    for index, (number, last) in enumerate(lasts):
        if index and index not in slow:
            lines.append(last)
            continue
        first = lasts[index - 1][0] + 1 if index else 0
        start, end = blocks[first][0], blocks[number][1]
        whole = form.first_lines(text[start:end], sys.maxsize)
        lines += [ProgressLine(start + line.offset, line.number) for line in whole]
    return [step for step in _timed(lines, text, marks) if step is not None]


def _block_starts(text: bytes) -> Iterator[int]:
    position = 0
    while position < len(text):
        yield position
        position = text.find(b"\n", position + _BLOCK_BYTES) + 1 or len(text)


def _timed(
    lines: Sequence[ProgressLine], text: bytes, marks: TimeMarks
) -> list[ReportedStep | None]:
    times = marks.times(text, [line.offset for line in lines])
    return [
        None if time is None else ReportedStep(time, line.number)
        for line, time in zip(lines, times, strict=True)
    ]


def _uneven(steps: Sequence[ReportedStep | None]) -> set[int]:
    """Return the places of the steps before which training fell back, or was slow."""
    paces = dict(enumerate(starmap(_pace, pairwise(steps)), start=1))
    fastest = min(paces.values(), default=0.0)
    return {
        index
        for index, pace in paces.items()
        if math.isinf(pace) or pace > _EVEN_PACE_FACTOR * fastest
    }


def _pace(earlier: ReportedStep | None, later: ReportedStep | None) -> float:
    """Return the nanoseconds of a step between two; infinite where they do not tell."""
    if earlier is None or later is None or later.number <= earlier.number:
        return math.inf
    return (later.time - earlier.time) / (later.number - earlier.number)


def read_progress(job: Path, *, zone: dt.tzinfo = dt.UTC) -> LoggedProgress:
    """Read the progress of a job from its logs; empty if it has none.

    Parameters
    ----------
    job : Path
        As `forewarn diagnose run` takes it: a folder, a log, or an archive.
    zone : datetime.tzinfo
        Zone of times that state none.

    Raises
    ------
    JobFolderError, ArchiveError
        If it cannot be read.
    """
    with JobFolder.open(job) as folder:
        files = log_files(folder)
        before = newest_time(files)
        reader = _Reader(_phase_matcher(), before, zone)
        selector = line_selector(reader.matcher)
        streams = read_streams(_contents(files), folder.ranks(), selector, reader.read)
    by_rank: defaultdict[int | None, _RankProgress] = defaultdict(_RankProgress)
    for stream, own, marks in zip(streams.streams, reader.steps, reader.marks, strict=True):
        by_rank[stream.rank].steps += own
        by_rank[stream.rank].marks += marks
    chosen = max(by_rank.values(), key=lambda each: len(each.steps), default=_RankProgress())
    times = [time for marks in reader.marks for time in (marks[:1] + marks[-1:])]
    steps = sorted(chosen.steps, key=lambda step: step.time)
    return LoggedProgress(
        steps=tuple(steps),
        saves=tuple(_saves(reader.phases)),
        restarts=tuple(_restarts(reader.restarts, [step.time for step in steps])),
        marks=tuple(sorted(chosen.marks)),
        first=min(times, default=None),
        last=max(times, default=None),
        ranks=streams.world or len(streams.ranks),
    )


def _restarts(lines: Sequence[tuple[int, int]], steps: Sequence[int]) -> Iterator[Restart]:
    """Yield the restarts: all launchers of a job restart their processes together.

    A launcher that restarts once more, before any step, has failed to restart.

    Parameters
    ----------
    lines : sequence of (int, int)
        Time of a launcher's line, and number of its log.
    steps : sequence of int
        Times of steps, in order.
    """
    begin, last = 0, dict[int, int]()  # of the present restart, and of each log in it
    for time, log in sorted(lines):
        is_again = time - last.get(log, time) > _SAME_RESTART
        if last and (is_again or bisect_left(steps, time) > bisect_left(steps, begin)):
            yield Restart(begin, max(last.values()))
            last.clear()
        begin = begin if last else time
        last[log] = time
    if last:
        yield Restart(begin, max(last.values()))


@dataclass(slots=True)
class _RankProgress:
    """Steps and times of lines of one rank, from all its streams."""

    steps: list[ReportedStep] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)


@cache  # its expressions take a tenth of a second to compile
def _phase_matcher() -> LogMatcher:
    patterns = load_patterns().patterns
    return LogMatcher(
        [
            pattern
            for pattern in patterns
            if pattern.attempt or (pattern.phase or "").startswith("checkpoint")
        ]
    )


def _contents(files: Sequence[tuple[str, Path]]) -> Iterable[tuple[str, bytes]]:
    with progress_bar(len(files), "reading logs", "log") as bar:
        for name, path in files:
            yield name, read_bounded(path, len(files))[0]
            bar.update()


def _saves(lines: Iterable[PhaseLine]) -> Iterable[LoggedSave]:
    """Yield the checkpoints whose beginning and end are logged, apart from each other."""
    position = 0
    for phase in logged_phases(lines, None):
        begin = max(phase.begin, position)
        if phase.end is not None and phase.end > begin:
            yield LoggedSave(begin, phase.end)
            position = phase.end
