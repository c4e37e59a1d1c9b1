"""Escalation to a stronger step: frequent, lasting or likely causes, and steps without effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.response.policy.policy_rule import Rule
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding
from forewarn.response.state.step import Step

__all__ = ["MachineHistory", "count_taken", "escalate", "next_after_failure"]

_NEVER_TAKEN = frozenset({ActionState.FAILED, ActionState.EXPIRED})
_LADDER = list(Step)


@dataclass(frozen=True, slots=True)
class MachineHistory:
    """Findings and actions of one machine up to a moment.

    Attributes
    ----------
    findings : sequence of Finding
        Including expired ones.
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


def escalate(
    finding: Finding, rule: Rule, history: MachineHistory, *, again: Nanoseconds
) -> tuple[Step, str]:
    """Return the step of a rule, or a stronger one and the reason.

    Parameters
    ----------
    finding : Finding
    rule : Rule
    history : MachineHistory
    again : int
        If the cause returns within this many nanoseconds after a release, the step had no effect.
    """
    reasons = [(rule.step, ""), *_by_count(finding, rule, history)]
    if rule.likely and finding.probability >= rule.likely.probability:
        why = f"a probability of at least {rule.likely.probability:g}"
        reasons.append((rule.likely.step, why))
    reasons += [
        (_next_stronger(action.step), f"{action.step} had no effect")
        for action in history.actions
        if _had_no_effect(action, finding, again)
    ]
    return max(reasons, key=lambda reason: reason[0].rank)


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


def _by_count(finding: Finding, rule: Rule, history: MachineHistory) -> list[tuple[Step, str]]:
    """Return the steps that the rule prescribes for a frequent or lasting cause."""
    if rule.often is None and rule.lasting is None:
        return []
    same = [other for other in history.findings if _same(other, finding)]
    steps = []
    if rule.often is not None:
        start = finding.last_reported - rule.often.within
        if sum(_times_since(other, start) for other in same) >= rule.often.times:
            span = format_duration(rule.often.within / SECOND)
            steps.append((rule.often.step, f"{rule.often.times} times or more in {span}"))
    if rule.lasting is not None:
        first = min((_first(other) for other in same), default=finding.at)
        if finding.last_reported - first >= rule.lasting.span:
            span = format_duration(rule.lasting.span / SECOND)
            steps.append((rule.lasting.step, f"seen for {span} or more"))
    return steps


def _same(other: Finding, finding: Finding) -> bool:
    """Tell whether two findings have the same cause on the same GPU.

    Findings of a shared token do not escalate findings of the host itself.
    """
    names = (other.machine, other.cause), (finding.machine, finding.cause)
    return names[0] == names[1] and other.same_gpu(finding) and other.supports(finding)


def _first(finding: Finding) -> Nanoseconds:
    return finding.at if finding.first is None else finding.first


def _times_since(finding: Finding, start: int) -> int:
    """Estimate how often a finding was repeated since a moment, assuming even spacing."""
    first, last = _first(finding), finding.last_reported
    if last < start:
        return 0
    if first >= start or finding.count == 1:
        return finding.count
    return max(1, finding.count * (last - start) // (last - first))


def _had_no_effect(action: Action, finding: Finding, again: Nanoseconds) -> bool:
    """Tell whether a cause returned on a GPU after its machine was drained for it."""
    return (
        action.step.isolates
        and action.state is ActionState.RELEASED
        and action.cause == finding.cause
        and action.machine == finding.machine
        and action.gpu_serial in (None, finding.gpu_serial)
        and 0 <= finding.last_reported - action.changed_at <= again
    )


def _next_stronger(step: Step) -> Step:
    return _LADDER[min(step.rank + 1, len(_LADDER) - 1)]
