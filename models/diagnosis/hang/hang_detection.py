"""Whether a job hangs: two probes that stand still together, and no phase that explains it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from forewarn.features.time_units import HOUR, MINUTE
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["detect_hang", "quiet_phase", "quiet_until"]

_AGREEMENT_WINDOW = 5 * MINUTE  # probes that become idle within it agree (Baidu 4.2)
_SAME_RESTART_WINDOW = MINUTE  # within it the restarts that ranks write down are one
_LIMIT_FACTOR = 3  # times the longest phase of its kind that this job has finished
_MIN_FINISHED_PHASES = 5  # finished phases of a kind; the longest of fewer says little of the next
_MIN_LIMIT_FEW_PHASES = 30 * MINUTE  # limit until then: Megatron's time-out
_ABSENCE_LIMIT = 30 * MINUTE  # of ranks that may do what nobody sees: Megatron's time-out
_INFERRED_PHASES = ("pause", "repeat")  # nothing says what these are
_SAMPLING_DELAY = MINUTE  # after a phase, until samples of metrics and stacks show that it is over
_LIMIT_WITHOUT_HISTORY = 2 * HOUR  # limit of a phase that this job has not finished yet


def detect_hang(probes: Sequence[Probe], at: int) -> tuple[int, int] | None:
    """Return since when a job stands still and when that was sure; None if it is not.

    Two probes have to agree: they moved last within 5 minutes of each other, and it is sure when
    the limit of the second of them has passed. Where all but one are blind, that one is enough
    once it has been idle for 5 minutes.

    Parameters
    ----------
    probes : sequence of Probe
    at : int
        Nanoseconds since 1970 UTC.

    Examples
    --------
    >>> probes = [Probe("log", "idle", 400, "", 880), Probe("collective", "idle", 420, "", 450)]
    >>> hang_since(probes, 900)
    (400, 880)
    >>> hang_since([probes[0], Probe("collective", "active", None, "")], 900) is None
    True
    """
    idle = sorted(
        (probe.since, probe.sure or probe.since)
        for probe in probes
        if probe.state == "idle" and probe.since is not None
    )
    pairs = [
        (first[0], max(first[1], second[1]))
        for first, second in itertools.pairwise(idle)
        if second[0] - first[0] <= _AGREEMENT_WINDOW
    ]
    seeing = [probe for probe in probes if probe.state != "blind"]
    if len(seeing) == len(idle) == 1:
        pairs += [(idle[0][0], max(idle[0][0] + _AGREEMENT_WINDOW, idle[0][1]))]
    return min((pair for pair in pairs if pair[1] <= at), key=lambda pair: pair[1], default=None)


def quiet_phase(phases: Sequence[Phase], at: int) -> Phase | None:
    """Return the phase that explains why a job stands still at a moment, None if none does.

    A phase lasts until a minute after its end, but no longer than 3 times the longest of its kind
    that this job has finished; 120 minutes before it has finished any, and at least 30 minutes
    before it has finished five. The first step is over once any part
    tells that one was made. A restart ends all phases that began
    before it: one that was cut off is neither open nor finished.

    Parameters
    ----------
    phases : sequence of Phase
        Of the whole life of the job, in any order; what begins after `at` does not count.
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
    """Return when the job was restarted: all ranks write it down, by clocks of their own."""
    moments = sorted(phase.begin for phase in past if phase.kind == "restart")
    return [
        moment
        for before, moment in zip([None, *moments], moments, strict=False)
        if before is None or moment - before > _SAME_RESTART_WINDOW
    ]


def quiet_until(phase: Phase, phases: Sequence[Phase]) -> int:
    """Return until when a phase explains that a job stands still, if nothing ends it before."""
    return phase.begin + _phase_limit(
        phase, [other for other in phases if other.begin <= phase.begin]
    )


def _is_first_step_over(phase: Phase, past: Sequence[Phase], at: int) -> bool:
    """Say whether a first step is over, though its own part does not know it."""
    return phase.kind == "first step" and any(
        other.kind == "first step" and other.end is not None and phase.begin < other.end <= at
        for other in past
    )


def _phase_limit(phase: Phase, past: Sequence[Phase]) -> int:
    """Return how long a phase may last, learned from those that were finished before it."""
    if phase.kind == "absence":
        return _ABSENCE_LIMIT
    lengths = [
        other.end - other.begin
        for other in past
        if other.kind == phase.kind and other.end is not None and other.begin < other.end
        if other.end <= phase.begin  # one of no length is a moment by which a step was made
    ]
    if not lengths:
        return _LIMIT_WITHOUT_HISTORY
    is_known = len(lengths) >= _MIN_FINISHED_PHASES or phase.kind in _INFERRED_PHASES
    return max(_LIMIT_FACTOR * max(lengths), 0 if is_known else _MIN_LIMIT_FEW_PHASES)
