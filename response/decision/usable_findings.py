"""Usable findings: which findings may be acted on, and what blocks the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.response.decision.situation import Situation
from forewarn.response.grouping.shared_incidents import belongs_to_event
from forewarn.response.state.action import Action
from forewarn.response.state.blocker import Blocker, BlockerKind
from forewarn.response.state.finding import Finding, FindingKind

__all__ = ["find_answering_action", "find_finding_blocker", "may_drain", "usable_until"]

_NEVER_DRAIN = frozenset({FindingKind.BLIND, FindingKind.EXTERNAL_DRAIN})


def usable_until(finding: Finding, situation: Situation) -> Nanoseconds:
    """Return when a finding expires: by its own validity, the policy or the settings."""
    max_age = min(situation.policy.rule(finding).max_age, situation.settings.max_age)
    return min(finding.valid_until, Nanoseconds(finding.last_reported + max_age))


def may_drain(finding: Finding, situation: Situation) -> bool:
    """Tell whether a finding may drain a machine; application Xids and missing data never do."""
    return finding.kind not in _NEVER_DRAIN and situation.policy.rule(finding).at_most.isolates


def find_finding_blocker(finding: Finding, situation: Situation) -> Blocker | None:
    """Return why a finding may not be acted on; None if it may."""
    if finding.at > situation.now + situation.settings.ahead:
        return Blocker(f"{finding.cause} has a time in the future", finding.at)
    if situation.now >= usable_until(finding, situation):
        return Blocker(f"{finding.cause} is too old to act on", None, BlockerKind.STALE)
    return (
        _part_of_event(finding, situation)
        or _overridden(finding, situation)
        or _seen_before_return(finding, situation)
    )


def _part_of_event(finding: Finding, situation: Situation) -> Blocker | None:
    """Return the shared incident that explains a finding and drains none of its machines."""
    for other in situation.open.get(finding.machine, ()):
        if other.shared and belongs_to_event(finding, other, situation.settings):
            return Blocker(
                f"{finding.cause} belongs to incident {other.id} ({other.shared})",
                None,
                BlockerKind.EVENT,
            )
    return None


def _seen_before_return(finding: Finding, situation: Situation) -> Blocker | None:
    """Return the external drain that ended after the finding, so somebody has inspected it."""
    returned_at = situation.returned_at.get(finding.machine)
    if returned_at is None or finding.last_reported >= returned_at:
        return None
    words = f"{finding.cause} was known before {finding.machine} returned from an external drain"
    return Blocker(words, None, BlockerKind.STALE)


def _overridden(finding: Finding, situation: Situation) -> Blocker | None:
    """Return the recent manual override of the finding's cause on its machine."""
    span = situation.settings.override_span
    severity = situation.policy.rule(finding).severity
    for override in situation.overrides:
        is_more_severe = override.severity is not None and severity.rank > override.severity.rank
        if override.blocks(finding) and not is_more_severe and situation.now < override.at + span:
            by = f" by {override.who}" if override.who else ""
            words = f"{finding.cause} was overridden on {finding.machine}{by}, and does not act "
            words += f"there for {format_duration(span / SECOND)} unless it becomes more severe"
            return Blocker(words, Nanoseconds(override.at + span), BlockerKind.OVERRIDE)
    return None


def find_answering_action(
    machine: str, findings: Iterable[Finding], recent: Sequence[Action], *, isolates: bool
) -> Action | None:
    """Return the ended action that was taken after all these findings; None if there was none.

    A machine that was drained, inspected and returned is not drained again for findings known by
    then.
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
