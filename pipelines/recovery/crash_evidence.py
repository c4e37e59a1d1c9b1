"""What a verdict and findings say about the origin of a job's interruption."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from forewarn.features.time_units import Nanoseconds
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.response.policy.fault_level import BlockScope, FaultLevel
from forewarn.response.policy.policy import Policy
from forewarn.response.recovery.job_crash import FaultOrigin, JobCrash
from forewarn.response.state.finding import Finding

__all__ = ["INTERRUPTIONS", "crash_by_finding", "crash_by_verdict"]

INTERRUPTIONS = ("crash", "hang", "slow")
"""Kinds of verdicts after which a job has to go on in another way."""

_ELSEWHERE = ("application", "fabric", "storage", "platform")  # not a machine of the job
_XID = re.compile(r"\bxid\b(?: \([^)]*\):)? (\d{1,4})\b", re.IGNORECASE)


def crash_by_verdict(
    verdict: Diagnosis, at: Nanoseconds, *, leader: str | None = None, policy: Policy | None = None
) -> JobCrash | None:
    """Return the interruption that a verdict describes; None if it is none.

    A machine that needs repair is explicit evidence. So is an Xid for which the policy takes the
    machine out of service. Otherwise the machine is only suspected.

    Parameters
    ----------
    verdict : Diagnosis
    at : int
        Nanoseconds since 1970 UTC.
    leader : str, optional
        Machine of rank 0.
    policy : Policy, optional
        Levels of Xids.
    """
    if verdict.kind not in INTERRUPTIONS:
        return None
    cause = verdict.cause or ""
    fault = next((each.fault for each in verdict.culprits if each.fault), verdict.fault)
    level = _level(cause, fault, policy)
    rung = None if policy is None or level is None else policy.levels[level].rung
    machines = {each.machine for each in verdict.culprits} - {None}
    scope = None if policy is None or level is None else policy.levels[level].scope
    is_elsewhere = fault is not None and not fault.needs_repair and fault.scope in _ELSEWHERE
    if len(machines) != 1 or (is_elsewhere and scope is not BlockScope.CLUSTER):
        return JobCrash(at, FaultOrigin.NOT_ONE, cause, rung=rung)
    (machine,) = machines
    is_damaged = (fault is not None and fault.needs_repair) or scope is BlockScope.CLUSTER
    origin = FaultOrigin.EXPLICIT if is_damaged else FaultOrigin.IMPLICIT
    return JobCrash(at, origin, cause, machine, machine == leader, rung)


def _level(cause: str, fault: Fault | None, policy: Policy | None) -> FaultLevel | None:
    match = _XID.search(cause) or _XID.search("" if fault is None else fault.line)
    xid = policy.xids.get(int(match[1])) if match and policy is not None else None
    return None if xid is None else xid.rule.level


def crash_by_finding(crash: JobCrash, findings: Sequence[Finding], policy: Policy) -> JobCrash:
    """Return a crash with the damage that findings at its time report on one machine.

    Parameters
    ----------
    crash : JobCrash
    findings : sequence of Finding
        About machines of the job, at the time of the crash.
    policy : Policy
        A finding counts if it takes its machine out of service, and is no prediction.
    """
    rules = [(each, policy.rule(each)) for each in findings if not each.predicts]
    damaging = [
        (each, rule) for each, rule in rules if rule.step.isolates and not rule.confirmed_by
    ]
    if crash.origin is FaultOrigin.EXPLICIT or len({each.machine for each, _ in damaging}) != 1:
        return crash
    finding, rule = min(damaging, key=lambda pair: (pair[0].at, pair[0].source, pair[0].id))
    level = rule.level
    return replace(
        crash,
        origin=FaultOrigin.EXPLICIT,
        cause=policy.words(finding),
        machine=finding.machine,
        hits_rank_zero=crash.hits_rank_zero and crash.machine == finding.machine,
        rung=None if level is None else policy.levels[level].rung,
    )
