"""Hang suppression: why a stalled job is not yet classified as a hang, and for how long."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.hang.hang_detection import detect_hang, quiet_phase, quiet_until
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["suppression_reason"]

_MAX_UNSEEN_PAUSE = 30 * MINUTE  # an unseen pause may last as long as Megatron's time-out
_MIN_LONE_ABSENCE = 5 * MINUTE  # after all others have entered
_INFERRED_PHASES = ("pause", "repeat", "absence")  # no log or stack names them
_NO_STACKS_REASON = "it may be saving a checkpoint or evaluating (no stacks to check)"
_PHASE_REASONS = {
    "first step": "there is no sign of a first step yet",
    "checkpoint": "the job is saving a checkpoint",
    "evaluation": "the job is evaluating",
    "pause": "the job has resumed after similar pauses",
    "repeat": "the job has returned from this call before",
    "absence": "the program may have sent the absent ranks elsewhere",
}


def suppression_reason(
    findings: Sequence[JobFinding],
    phases: Sequence[Phase],
    probes: Sequence[Probe],
    ranks: Ranks,
    at: int,
) -> str | None:
    """Return why a stalled job is not yet classified as a hang, or None.

    If stacks show what the ranks do, similar pauses in the past do not count. Without stacks, a job
    with logs or metrics may be in an unlogged pause, with two exceptions: an observed condition is
    permanent, or flight recorders prove that a single rank or machine, which programs do not send
    elsewhere, has not entered an operation for minutes after all others.

    Parameters
    ----------
    findings : sequence of JobFinding
    phases : sequence of Phase
    probes : sequence of Probe
    ranks : Ranks
        Provides the machine of each rank.
    at : int
        Nanoseconds since 1970 UTC.
    """
    hang = detect_hang(probes, at)
    if hang is None:
        return None
    seeing = {probe.name for probe in probes if probe.state != "blind"}
    is_seen = "stack" in seeing or any(
        finding.observed_at is not None and finding.observed_at > hang[0] for finding in findings
    )
    is_watched = bool(seeing & {"log", "metrics"})
    is_permanent = any(f.is_permanent and not f.is_before(hang[0]) for f in findings)
    is_alone = not is_seen and any(
        finding.absence is not None and finding.absence.is_alone(ranks, at, _MIN_LONE_ABSENCE)
        for finding in findings
    )
    known = [
        phase
        for phase in _applicable_phases(phases, hang[0])
        if not (phase.kind in _INFERRED_PHASES and is_permanent)
        and not (phase.kind == "pause" and (is_seen or is_alone))
        and not (phase.kind == "absence" and not is_watched)
    ]
    phase = quiet_phase(known, at)
    if phase is not None:
        return _format_reason(_PHASE_REASONS[phase.kind], quiet_until(phase, known) - at)
    if is_seen or is_alone or is_permanent or not is_watched:
        return None
    remaining = hang[0] + _MAX_UNSEEN_PAUSE - at
    return _format_reason(_NO_STACKS_REASON, remaining) if remaining > 0 else None


def _format_reason(what: str, remaining: int) -> str:
    minutes = math.ceil(remaining / MINUTE)
    return f"{what}; classified as a hang in {minutes} min without progress"


def _applicable_phases(phases: Sequence[Phase], began: int) -> Iterator[Phase]:
    """Yield the phases that may explain a stall.

    A repeated call explains it only if the job had left that call before the stall began.
    """
    repeats = [phase for phase in phases if phase.kind == "repeat"]
    has_left = any(phase.end is not None and phase.end <= began for phase in repeats)
    for phase in phases:
        is_over = phase.end is None and phase.last_seen is not None and phase.last_seen < began
        is_early = phase.kind == "repeat" and phase.end is not None and phase.end > began
        if not is_over and not is_early and (phase.kind != "repeat" or has_left):
            yield phase
