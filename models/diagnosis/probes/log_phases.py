"""Quiet phases from logs: first step, checkpoints, evaluations and restarts."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.probes.phases import Phase

__all__ = ["PhaseLine", "find_log_pauses", "first_step_phase", "logged_phases"]

_PAUSE_FACTOR = 5  # times the median gap between two marks
_MIN_PAUSE = MINUTE
_SAME_PHASE_WINDOW = 5 * MINUTE  # beginnings logged by ranks within it belong to one phase


@dataclass(frozen=True, slots=True)
class PhaseLine:
    """A log line of any rank that begins or ends a phase.

    Attributes
    ----------
    kind : str
    begins : bool
    time : int
        Nanoseconds since 1970 UTC.
    """

    kind: Literal["checkpoint", "evaluation"]
    begins: bool
    time: int


def logged_phases(lines: Iterable[PhaseLine], last_step: int | None) -> list[Phase]:
    """Combine the lines of all ranks into phases of the job.

    A beginning without an end is an open phase only if it is the last one and no rank has made a
    step since, because not every program logs the end.

    Parameters
    ----------
    lines : iterable of PhaseLine
    last_step : int or None
        Time at which the last step was logged.

    Examples
    --------
    >>> lines = [PhaseLine("checkpoint", True, 10), PhaseLine("checkpoint", False, 30)]
    >>> logged_phases(lines, None)
    [Phase(kind='checkpoint', begin=10, end=30, last_seen=None)]
    """
    ordered = sorted(lines, key=lambda line: (line.time, line.begins))
    phases: list[Phase] = []
    for kind in ("checkpoint", "evaluation"):
        phases += _phases_of_kind(kind, [line for line in ordered if line.kind == kind], last_step)
    return sorted(phases, key=lambda phase: phase.begin)


def _phases_of_kind(
    kind: Literal["checkpoint", "evaluation"], lines: Sequence[PhaseLine], last_step: int | None
) -> list[Phase]:
    phases: list[Phase] = []
    begin: int | None = None
    for line in lines:
        if not line.begins:
            if begin is not None:
                phases.append(Phase(kind, begin, line.time))
            begin = None
        elif begin is None or line.time - begin > _SAME_PHASE_WINDOW:
            begin = line.time
    if begin is not None and (last_step is None or last_step <= begin):
        phases.append(Phase(kind, begin, None))
    return phases


def find_log_pauses(marks: Sequence[int], at: int) -> list[Phase]:
    """Return the spans in which no rank wrote for much longer than usual for this job.

    The last pause is open. It is returned only if the job has resumed after earlier ones, which
    then bound its length.

    Parameters
    ----------
    marks : sequence of int
        Times of lines of all ranks since the first step, in any order, in nanoseconds since 1970
        UTC.
    at : int
        Later times are ignored.

    Examples
    --------
    >>> seconds = [0, 10, 20, 30, 40, 140, 150, 160, 170]
    >>> marks = [second * 10**9 for second in seconds]
    >>> pauses = find_log_pauses(marks, 300 * 10**9)
    >>> [(p.begin // 10**9, p.end and p.end // 10**9) for p in pauses]
    [(40, 140), (170, None)]
    """
    times = sorted(mark for mark in marks if mark <= at)
    spans = list(itertools.pairwise(times))
    if not spans:
        return []
    usual = statistics.median(end - begin for begin, end in spans)
    least = max(_MIN_PAUSE, _PAUSE_FACTOR * usual)
    past = [Phase("pause", begin, end) for begin, end in spans if end - begin >= least]
    return [*past, Phase("pause", times[-1], None)] if past else []


def first_step_phase(start: int | None, first_steps: Sequence[int], at: int) -> list[Phase]:
    """Return the phase from the start of an attempt to its first step.

    Parameters
    ----------
    start : int or None
        First line of the attempt.
    first_steps : sequence of int
        Time at which each rank logged its first step; empty if no log contains steps.
    at : int
        Nanoseconds since 1970 UTC.
    """
    if start is None or start > at:
        return []
    steps = [step for step in first_steps if step >= start]
    end = min(steps, default=None)
    return [Phase("first step", start, end if end is not None and end <= at else None)]
