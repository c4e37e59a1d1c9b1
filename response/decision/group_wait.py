"""Group wait: the time a finding waits for related findings of the same event.

Cost of the wait: a machine under a job of several machines is drained `group_wait` (15 minutes, or
the collective time-out of its job) after its finding, any other machine `quiet` (2 minutes) after
it, and at most `group_wait` while related findings arrive. Certain damage that only one machine of
the job reports waits for `quiet`, and its drain lets jobs finish. Meanwhile new jobs avoid the
machine.
"""

from __future__ import annotations

from dataclasses import replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.remediation import Remediation
from forewarn.response.decision.situation import Situation
from forewarn.response.grouping.event_observations import group_keys, is_event, select_within
from forewarn.response.grouping.shared_incidents import event_ends_at
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.state.blocker import Blocker, BlockerKind
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Incident
from forewarn.response.state.step import DrainMode

__all__ = ["find_group_wait", "group_wait_ends_at", "soften_drain"]


def find_group_wait(
    incident: Incident, remediation: Remediation, situation: Situation
) -> Blocker | None:
    """Return the wait that blocks an isolation; None if it need not wait.

    Parameters
    ----------
    incident : Incident
    remediation : Remediation
        One that isolates. It may proceed as soon as one of its findings has waited.
    situation : Situation
    """
    for other in situation.other_incidents(incident):
        if other.shared and any(
            part.supports(f) for part in other.findings for f in remediation.findings
        ):
            end = event_ends_at(other, situation.settings, situation.now)
            if situation.now < end:
                return Blocker(
                    f"incident {other.id} ({other.shared}) is not over yet", end, BlockerKind.EVENT
                )
    ends = [group_wait_ends_at(finding, incident, situation) for finding in remediation.findings]
    if min(ends) <= situation.now:
        return None
    return Blocker("related findings may still arrive", min(ends), BlockerKind.EVENT)


def soften_drain(incident: Incident, remediation: Remediation, situation: Situation) -> Remediation:
    """Return the remediation with drain mode `finish` while related findings may still arrive."""
    full = [
        group_wait_ends_at(finding, incident, situation, full=True)
        for finding in remediation.findings
    ]
    if remediation.mode is DrainMode.FINISH or min(full) <= situation.now:
        return remediation
    reason = f"{remediation.reason}; jobs finish: related findings may still arrive"
    return replace(remediation, mode=DrainMode.FINISH, reason=reason)


def group_wait_ends_at(
    finding: Finding, incident: Incident, situation: Situation, *, full: bool = False
) -> Nanoseconds:
    """Return the time from which a finding counts as a fault of its own machine alone.

    Findings of a shared token about other machines do not delay a finding of a host. `full` asks
    for the full wait, which certain damage otherwise shortens if no other machine reports anything.
    """
    if not is_event(finding):
        return finding.at
    settings = situation.settings
    # A finding that arrives late starts its wait on arrival: related findings are late as well.
    noticed = max(finding.at, incident.opened_at)
    if incident.opened_at > situation.now + settings.ahead:  # opened by a wrong clock
        noticed = finding.at
    keys = [key for key in group_keys(finding, situation.fleet) if key[0] != "cause"]
    spans = [
        settings.group_wait_for(name)
        for kind, name in keys
        if kind == "job" and situation.job_sizes.get(name, 0) > 1
    ]
    longest = max(spans, default=settings.group_wait)
    others = [
        observation.at
        for key in keys
        for observation in select_within(situation.observations.get(key, ()), finding.at, longest)
        if observation.machine != finding.machine and observation.finding.supports(finding)
    ]
    if is_certain(finding) and not others and not full:
        return Nanoseconds(noticed + min(settings.quiet, longest))
    ends = [noticed + max(spans, default=settings.quiet), *(at + settings.quiet for at in others)]
    return Nanoseconds(min(max(ends), noticed + longest))
