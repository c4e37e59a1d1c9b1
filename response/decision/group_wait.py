"""Settling: a finding waits until it is clear whether others of the same event still come.

What it costs: a machine under a job of several machines is drained `settle` (15 minutes, or the
collective time-out of its job) after its finding, another one `quiet` (2 minutes) after it, and at
most `settle` while others come. Evidence of certain damage that one machine of the job alone
reports waits for `quiet`, and its drain lets jobs run out. Meanwhile new jobs avoid the machine.
"""

from __future__ import annotations

from dataclasses import replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.remediation import Remediation
from forewarn.response.decision.situation import Situation
from forewarn.response.grouping.event_observations import group_keys, is_event, select_within
from forewarn.response.grouping.shared_incidents import event_ends_at
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.state.blocker import Blocker
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Incident
from forewarn.response.state.step import DrainMode

__all__ = ["find_group_wait", "group_wait_ends_at", "soften_drain"]


def find_group_wait(incident: Incident, wish: Remediation, situation: Situation) -> Blocker | None:
    """Return what an isolation waits for; None if it need not wait.

    Parameters
    ----------
    incident : Incident
    wish : Remedy
        One that isolates. It is enough that one of its findings has waited.
    situation : Situation
    """
    for other in situation.other_incidents(incident):
        if other.shared and any(part.supports(f) for part in other.findings for f in wish.findings):
            end = event_ends_at(other, situation.settings, situation.now)
            if situation.now < end:
                return Blocker(f"incident {other.id} ({other.shared}) is not over yet", end)
    ends = [group_wait_ends_at(finding, incident, situation) for finding in wish.findings]
    if min(ends) <= situation.now:
        return None
    return Blocker("others of the same event may still come", min(ends))


def soften_drain(incident: Incident, wish: Remediation, situation: Situation) -> Remediation:
    """Return a wish that lets jobs run out where others of the same event may still come."""
    whole = [
        group_wait_ends_at(finding, incident, situation, whole=True) for finding in wish.findings
    ]
    if wish.mode is DrainMode.FINISH or min(whole) <= situation.now:
        return wish
    reason = f"{wish.reason}; jobs run out: others of the same event may still come"
    return replace(wish, mode=DrainMode.FINISH, reason=reason)


def group_wait_ends_at(
    finding: Finding, incident: Incident, situation: Situation, *, whole: bool = False
) -> Nanoseconds:
    """Return from when on a finding is taken for one of its own machine alone.

    What a shared token says of other machines does not delay what a host reports.
    `whole` is the full wait, also of evidence of certain damage that nobody else reports.
    """
    if not is_event(finding):
        return finding.at
    settings = situation.settings
    # What came late was not seen earlier, and neither were the others.
    noticed = max(finding.at, incident.opened_at)
    if incident.opened_at > situation.now + settings.ahead:  # by a clock that was wrong
        noticed = finding.at
    keys = [key for key in group_keys(finding, situation.fleet) if key[0] != "cause"]
    spans = [
        settings.group_wait_for(name)
        for kind, name in keys
        if kind == "job" and situation.job_sizes.get(name, 0) > 1
    ]
    longest = max(spans, default=settings.group_wait)
    others = [
        sighting.at
        for key in keys
        for sighting in select_within(situation.observations.get(key, ()), finding.at, longest)
        if sighting.machine != finding.machine and sighting.finding.supports(finding)
    ]
    if is_certain(finding) and not others and not whole:
        return Nanoseconds(noticed + min(settings.quiet, longest))
    ends = [noticed + max(spans, default=settings.quiet), *(at + settings.quiet for at in others)]
    return Nanoseconds(min(max(ends), noticed + longest))
