"""Evidence: which findings of an incident may be acted on, and why others may not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.response.decision.situation import Situation
from forewarn.response.grouping.shared_incidents import belongs_to_event
from forewarn.response.state.action import Action
from forewarn.response.state.blocker import Blocker
from forewarn.response.state.finding import Finding, FindingKind

__all__ = ["find_answering_action", "find_finding_blocker", "may_drain", "usable_until"]

_NEVER_DRAIN = frozenset({FindingKind.BLIND, FindingKind.EXTERNAL_DRAIN})


def usable_until(finding: Finding, situation: Situation) -> Nanoseconds:
    """Return from when on a finding is not acted on, by itself, the policy or the settings."""
    max_age = min(situation.policy.rule(finding).max_age, situation.settings.max_age)
    return min(finding.valid_until, Nanoseconds(finding.last_reported + max_age))


def may_drain(finding: Finding, situation: Situation) -> bool:
    """Tell whether a finding may take a machine out; application Xids and blindness never do."""
    return finding.kind not in _NEVER_DRAIN and situation.policy.rule(finding).at_most.isolates


def find_finding_blocker(finding: Finding, situation: Situation) -> Blocker | None:
    """Return why a finding is not acted on; None if it may be."""
    if finding.at > situation.now + situation.settings.ahead:
        return Blocker(f"{finding.cause} has a time that is still to come", finding.at)
    if situation.now >= usable_until(finding, situation):
        return Blocker(f"{finding.cause} is too old to act on", None)
    return (
        _part_of_event(finding, situation)
        or _overridden(finding, situation)
        or _seen_before_return(finding, situation)
    )


def _part_of_event(finding: Finding, situation: Situation) -> Blocker | None:
    """Return the event on many machines that a finding is a part of; it drains none of them."""
    for other in situation.open.get(finding.machine, ()):
        if other.shared and belongs_to_event(finding, other, situation.settings):
            return Blocker(f"{finding.cause} belongs to incident {other.id} ({other.shared})", None)
    return None


def _seen_before_return(finding: Finding, situation: Situation) -> Blocker | None:
    """Return who has had the machine since, and so has looked at it."""
    back = situation.returned_at.get(finding.machine)
    if back is None or finding.last_reported >= back:
        return None
    words = f"{finding.cause} was known before somebody else gave {finding.machine} back"
    return Blocker(words, None)


def _overridden(finding: Finding, situation: Situation) -> Blocker | None:
    """Return what holds back a cause that somebody undid lately on this machine."""
    rest = situation.settings.override_span
    severity = situation.policy.rule(finding).severity
    for override in situation.overrides:
        graver = override.severity is not None and severity.rank > override.severity.rank
        if override.blocks(finding) and not graver and situation.now < override.at + rest:
            by = f" by {override.who}" if override.who else ""
            words = f"{finding.cause} was overridden on {finding.machine}{by}, and does not act "
            words += f"there for {format_duration(rest / SECOND)} unless it becomes graver"
            return Blocker(words, Nanoseconds(override.at + rest))
    return None


def find_answering_action(
    machine: str, findings: Iterable[Finding], recent: Sequence[Action], *, isolates: bool
) -> Action | None:
    """Return the action that has ended and was taken after all these findings; None if none was.

    What was drained, looked at and given back is not drained again for what was known by then.
    """
    newest = max((finding.last_reported for finding in findings), default=None)
    for action in recent:
        if (
            action.machine == machine
            and not action.open
            and action.started
            and (action.step.isolates or not isolates)
            and newest is not None
            and newest <= action.changed_at
        ):
            return action
    return None
