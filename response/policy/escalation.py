"""Escalation to a harder level: lasting, frequent and likely causes, and steps without effect."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.response.policy.fault_level import FaultLevel, LevelRule
from forewarn.response.policy.policy_rule import FaultDuration, FaultFrequency, ReturnLimit, Rule
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding
from forewarn.response.state.step import Step

__all__ = ["Escalated", "MachineHistory", "count_taken", "escalate", "next_after_failure"]

_NEVER_TAKEN = frozenset({ActionState.FAILED, ActionState.EXPIRED})
_LADDER = list(Step)


@dataclass(frozen=True, slots=True)
class MachineHistory:
    """Findings and actions of one machine up to a moment.

    Attributes
    ----------
    findings : sequence of Finding
        Including expired ones. Those of an event on many machines are left out: it escalates
        nothing.
    actions : sequence of Action
    now : int
        Nanoseconds since 1970 UTC.
    begun : sequence of (Step, int)
        Steps that began after a milder one had failed, and when.
    """

    findings: Sequence[Finding]
    actions: Sequence[Action]
    now: Nanoseconds
    begun: Sequence[tuple[Step, Nanoseconds]] = ()


class Escalated(NamedTuple):
    """Step of a finding, and the level that asks for it; None if it is not that of a level."""

    step: Step
    why: str = ""
    level: FaultLevel | None = None


def escalate(
    finding: Finding,
    rule: Rule,
    history: MachineHistory,
    *,
    levels: Mapping[FaultLevel, LevelRule],
    returned: ReturnLimit,
    together: Nanoseconds,
) -> Escalated:
    """Return the step of a rule, or a harder one and the reason.

    Parameters
    ----------
    finding : Finding
    rule : Rule
    history : MachineHistory
    levels : mapping of FaultLevel to LevelRule
    returned : ReturnLimit
        A cause that returns after releases gets a harder step than that which was released.
    together : int
        Nanoseconds in which repeats count once.
    """
    choices = [Escalated(rule.step)]
    counts = rule.duration is not None or rule.frequency is not None
    same = [other for other in history.findings if counts and _same(other, finding)]
    if rule.duration is not None and _lasts(finding, same, rule.duration, history.now):
        span = format_duration(rule.duration.fault_after / SECOND)
        choices.append(_by_level(rule.duration.level, f"it lasted {span} or more", levels))
    if rule.frequency is not None:
        times, apart = _counted(same, rule.duration, together)
        if _is_frequent(times, finding.last_reported, rule.frequency, apart):
            span = format_duration(rule.frequency.within / SECOND)
            why = f"{rule.frequency.times} times or more in {span}"
            choices.append(_by_level(rule.frequency.level, why, levels))
    if rule.likely and finding.probability >= rule.likely.probability:
        why = f"a probability of at least {rule.likely.probability:g}"
        choices.append(Escalated(rule.likely.step, why))
    choices += [
        Escalated(_next_stronger(action.step), f"{action.step} had no effect")
        for action in _without_effect(finding, history, returned)
    ]
    return max(choices, key=_severity)


def count_taken(step: Step, history: MachineHistory, *, within: Nanoseconds) -> int:
    """Return how often a step was taken and ended on this machine within a span."""
    later = sum(
        other is step and history.now - within <= at <= history.now for other, at in history.begun
    )
    return later + sum(
        action.step is step
        and not action.open
        and action.state not in _NEVER_TAKEN
        and history.now - within <= action.at <= history.now
        for action in history.actions
    )


def next_after_failure(
    failed: Step, history: MachineHistory, *, at_most: Step, most: int, within: Nanoseconds
) -> Step | None:
    """Return the next harder step after one that failed; None if a person has to decide.

    A failure never leads to `replace`, which destroys disks and evidence.

    Parameters
    ----------
    failed : Step
    history : MachineHistory
    at_most : Step
        Upper bound by the evidence.
    most, within : int
        A step is carried out at most `most` times within `within` nanoseconds.
    """
    step = _next_stronger(failed)
    if step is Step.REPLACE or step.rank > at_most.rank:
        return None
    return None if count_taken(step, history, within=within) >= most else step


def _severity(choice: Escalated) -> tuple[int, int]:
    return choice.step.rank, -1 if choice.level is None else choice.level.rank


def _by_level(level: FaultLevel, why: str, levels: Mapping[FaultLevel, LevelRule]) -> Escalated:
    return Escalated(levels[level].step, why, level)


def _same(other: Finding, finding: Finding) -> bool:
    """Tell whether two findings have the same cause on the same GPU.

    Findings of a shared token do not escalate findings of the host itself.
    """
    names = (other.machine, other.cause), (finding.machine, finding.cause)
    return names[0] == names[1] and other.same_gpu(finding) and other.supports(finding)


class _Span(NamedTuple):
    """Time in which a cause was reported without a longer gap."""

    first: int
    last: int


def _lasts(
    finding: Finding, same: Iterable[Finding], duration: FaultDuration, now: Nanoseconds
) -> bool:
    """Tell whether the fault of a finding has lasted long enough, and is not over."""
    if now - finding.last_reported >= duration.recover_after:
        return False
    spans = _spans((finding, *same), duration.recover_after)
    return any(
        span.first <= finding.last_reported <= span.last
        and span.last - span.first >= duration.fault_after
        for span in spans
    )


def _spans(findings: Iterable[Finding], recover_after: int) -> list[_Span]:
    """Return when a cause lasted; after a gap of `recover_after` it is another fault."""
    spans: list[_Span] = []
    for first, last in sorted(
        span for finding in findings for span in _unbroken(finding, recover_after)
    ):
        if spans and first - spans[-1].last < recover_after:
            spans[-1] = _Span(spans[-1].first, max(spans[-1].last, last))
        else:
            spans.append(_Span(first, last))
    return spans


def _unbroken(finding: Finding, recover_after: int) -> Iterator[_Span]:
    """Yield the spans of a finding, assuming evenly spaced reports."""
    first, last = _first(finding), finding.last_reported
    if _spacing(finding) < recover_after:
        yield _Span(first, last)
    else:
        yield from (_Span(at, at) for at in _report_times(finding, recover_after))


def _counted(
    same: Iterable[Finding], duration: FaultDuration | None, together: Nanoseconds
) -> tuple[list[int], int]:
    """Return when a cause was reported, or lasted, and how far apart two have to be to count."""
    if duration is not None:
        return [
            span.first + duration.fault_after
            for span in _spans(same, duration.recover_after)
            if span.last - span.first >= duration.fault_after
        ], 1
    times = {at for finding in same for at in _report_times(finding, together)}
    return sorted(times), max(1, together)


def _report_times(finding: Finding, apart: int) -> Iterator[int]:
    """Yield times of reports at least `apart` from each other, assuming even spacing."""
    first, last, spacing = _first(finding), finding.last_reported, _spacing(finding)
    yield first
    if spacing > 0:
        stride = spacing * max(1, -(-apart // spacing))
        yield from range(first + stride, last + 1, stride)


def _spacing(finding: Finding) -> int:
    return (finding.last_reported - _first(finding)) // max(1, finding.count - 1)


def _first(finding: Finding) -> Nanoseconds:
    return finding.at if finding.first is None else finding.first


def _is_frequent(times: Sequence[int], now: int, frequency: FaultFrequency, apart: int) -> bool:
    """Tell whether a cause is frequent, or was and is not released yet."""
    for first in reversed(times):
        last, counted = first, 1
        while counted < frequency.times:
            position = bisect_left(times, last + apart)
            if position == len(times) or times[position] - first >= frequency.within:
                break
            last, counted = times[position], counted + 1
        is_held = frequency.release is None or now - last < frequency.release
        if counted == frequency.times and last <= now and is_held:
            return True
    return False


def _without_effect(
    finding: Finding, history: MachineHistory, returned: ReturnLimit
) -> list[Action]:
    """Return the released actions on a GPU after which their cause returned often enough."""
    now = finding.last_reported
    released = [
        action
        for action in history.actions
        if action.step.isolates
        and action.state is ActionState.RELEASED
        and action.cause == finding.cause
        and action.machine == finding.machine
        and action.gpu_serial in (None, finding.gpu_serial)
        and 0 <= now - action.changed_at <= returned.within
    ]
    last = max((action.changed_at for action in released), default=None)
    if last is None or len(released) < returned.times - 1:
        return []
    return released if returned.release is None or now - last <= returned.release else []


def _next_stronger(step: Step) -> Step:
    return _LADDER[min(step.rank + 1, len(_LADDER) - 1)]
