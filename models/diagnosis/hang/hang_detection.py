"""Hang detection: two probes that are idle together without a phase that explains the stall."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from forewarn.features.time_units import HOUR, MINUTE
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["detect_hang", "quiet_phase", "quiet_until"]

_AGREEMENT_WINDOW = 5 * MINUTE  # probes that become idle within it agree (Baidu 4.2)
_SAME_RESTART_WINDOW = MINUTE  # restarts logged within it are one
_LIMIT_FACTOR = 3  # times the longest finished phase of its kind
_MIN_FINISHED_PHASES = 5  # with fewer, the longest is a poor estimate
_MIN_LIMIT_FEW_PHASES = 30 * MINUTE  # limit with fewer finished phases: Megatron's time-out
_ABSENCE_LIMIT = 30 * MINUTE  # Megatron's time-out
_INFERRED_PHASES = ("pause", "repeat")  # inferred from behaviour
_SAMPLING_DELAY = MINUTE  # delay until metrics and stacks show the end of a phase
_LIMIT_WITHOUT_HISTORY = 2 * HOUR  # limit without any finished phase


def detect_hang(probes: Sequence[Probe], at: int) -> tuple[int, int] | None:
    """Return when a job stalled and when that was confirmed, or None if it makes progress.

    Two probes must agree: their last activity is within 5 minutes of each other, or the later one
    began to look when the job was stalled already. The stall is confirmed when the limits of both
    have passed. If all other probes are blind, one probe is enough after 5 idle minutes.

    Parameters
    ----------
    probes : sequence of Probe
    at : int
        Nanoseconds since 1970 UTC.

    Examples
    --------
    >>> probes = [Probe("log", "idle", 400, "", 880), Probe("collective", "idle", 420, "", 450)]
    >>> detect_hang(probes, 900)
    (400, 880)
    >>> detect_hang([probes[0], Probe("collective", "active", None, "")], 900) is None
    True
    """
    idle = sorted(
        (probe for probe in probes if probe.state == "idle" and probe.since is not None),
        key=lambda probe: probe.since or 0,
    )
    pairs = [
        (first.since or 0, max(_confirmed_at(first), _confirmed_at(second)))
        for first, second in itertools.combinations(idle, 2)
        if first.agrees(second, _AGREEMENT_WINDOW)
    ]
    seeing = [probe for probe in probes if probe.state != "blind"]
    if len(seeing) == len(idle) == 1:
        since = idle[0].since or 0
        pairs += [(since, max(since + _AGREEMENT_WINDOW, _confirmed_at(idle[0])))]
    return min((pair for pair in pairs if pair[1] <= at), key=lambda pair: pair[1], default=None)


def _confirmed_at(probe: Probe) -> int:
    return probe.confirmed_at or probe.since or 0


def quiet_phase(phases: Sequence[Phase], at: int) -> Phase | None:
    """Return the quiet phase that explains a stall at a time, or None.

    A phase lasts until one minute after its end, but at most 3 times the longest finished phase of
    its kind in this job. The limit is 120 minutes if none has finished, and at least 30 minutes if
    fewer than five have. The first step is over when any part shows a step. A restart ends all
    earlier phases: an interrupted phase is neither open nor finished.

    Parameters
    ----------
    phases : sequence of Phase
        All phases of the job, in any order; those that begin after `at` are ignored.
    at : int
        Nanoseconds since 1970 UTC.
    """
    past = [phase for phase in phases if phase.begin <= at]
    restarts = _restarts(past)
    for phase in sorted(past, key=lambda phase: -phase.begin):
        is_cut = any(phase.begin < moment for moment in restarts) or _is_first_step_over(
            phase, past, at
        )
        is_open = phase.end is None or (
            phase.begin < phase.end and phase.end + _SAMPLING_DELAY > at
        )
        if is_open and not is_cut and at - phase.begin <= _phase_limit(phase, past):
            return phase
    return None


def _restarts(past: Sequence[Phase]) -> list[int]:
    """Return the restart times of the job, which each rank logs by its own clock."""
    moments = sorted(phase.begin for phase in past if phase.kind == "restart")
    return [
        moment
        for before, moment in zip([None, *moments], moments, strict=False)
        if before is None or moment - before > _SAME_RESTART_WINDOW
    ]


def quiet_until(phase: Phase, phases: Sequence[Phase]) -> int:
    """Return until when a phase explains a stall if nothing ends it earlier."""
    return phase.begin + _phase_limit(
        phase, [other for other in phases if other.begin <= phase.begin]
    )


def _is_first_step_over(phase: Phase, past: Sequence[Phase], at: int) -> bool:
    """Return whether another part shows that a first step has finished."""
    return phase.kind == "first step" and any(
        other.kind == "first step" and other.end is not None and phase.begin < other.end <= at
        for other in past
    )


def _phase_limit(phase: Phase, past: Sequence[Phase]) -> int:
    """Return how long a phase may last, learned from earlier finished phases of its kind."""
    if phase.kind == "absence":
        return _ABSENCE_LIMIT
    lengths = [
        other.end - other.begin
        for other in past
        if other.kind == phase.kind and other.end is not None and other.begin < other.end
        if other.end <= phase.begin  # a phase of zero length only marks that a step was made
    ]
    if not lengths:
        return _LIMIT_WITHOUT_HISTORY
    is_known = len(lengths) >= _MIN_FINISHED_PHASES or phase.kind in _INFERRED_PHASES
    return max(_LIMIT_FACTOR * max(lengths), 0 if is_known else _MIN_LIMIT_FEW_PHASES)
