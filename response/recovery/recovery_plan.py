"""What is to do about a job: the rung to begin, to wait for, or to stop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.recovery.job_crash import FaultOrigin, JobAbilities, JobCrash, is_same_cause
from forewarn.response.recovery.ladder import NoSpareCosts, RungChoice, choose_rung
from forewarn.response.recovery.recovery_state import RecoveryState
from forewarn.response.state.rung import Rung

__all__ = ["PlanState", "RecoveryPlan", "plan_recovery"]


class PlanState(StrEnum):
    """What a plan says.

    `TRAINING`: nothing is to do. `BEGIN`: the rung is to begin. `UNDER_WAY`: it was begun, and has
    time left. `STOP`: the job ends, and a person decides.
    """

    TRAINING = "training"
    BEGIN = "begin"
    UNDER_WAY = "under_way"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What is to do about a job.

    Attributes
    ----------
    state : PlanState
    reason : str
    retries_left : int
    choice : RungChoice or None
        The rung that begins; of one that is under way only its name is known.
    next_rung : Rung or None
        What follows if it fails; None if the ladder ends.
    until : int or None
        When the rung has failed, nanoseconds since 1970 UTC; None without a limit.
    """

    state: PlanState
    reason: str
    retries_left: int
    choice: RungChoice | None = None
    next_rung: Rung | None = None
    until: Nanoseconds | None = None


def plan_recovery(
    state: RecoveryState,
    abilities: JobAbilities,
    rules: LadderRules,
    now: Nanoseconds,
    *,
    spares: int | None = None,
    costs: NoSpareCosts | None = None,
) -> RecoveryPlan:
    """Return what is to do about a job.

    Parameters
    ----------
    state : RecoveryState
    abilities : JobAbilities
    rules : LadderRules
    now : int
        Nanoseconds since 1970 UTC.
    spares, costs
        As in `choose_rung`.
    """
    crash = state.crash
    if crash is None:
        return RecoveryPlan(PlanState.TRAINING, "no interruption is known", state.retries_left)
    begun = state.tried[-1] if state.tried else None
    until = None if begun is None else _until(begun.rung, begun.at, rules)
    if begun is not None and not state.is_failed and (until is None or now < until):
        choice = RungChoice(begun.rung, "it was begun")
        following = choose_rung(crash, abilities, above=state.hardest, spares=spares, costs=costs)
        return RecoveryPlan(
            PlanState.UNDER_WAY, choice.reason, state.retries_left, choice, _rung(following), until
        )
    refusal = _refusal(state, crash, rules, now)
    first = choose_rung(crash, abilities, above=state.hardest, spares=spares, costs=costs)
    if refusal or first is None:
        reason = refusal or f"all rungs failed: {crash.cause or 'the cause is unknown'}"
        return RecoveryPlan(PlanState.STOP, reason, state.retries_left)
    following = choose_rung(crash, abilities, above=first.rung, spares=spares, costs=costs)
    until = _until(first.rung, now, rules)
    reason, left = _application(state, crash) or first.reason, state.retries_left
    return RecoveryPlan(PlanState.BEGIN, reason, left, first, _rung(following), until)


def _application(state: RecoveryState, crash: JobCrash) -> str:
    """Return why the application is the cause: it was seen on several machines."""
    same = {e.machine for e in state.suspected if is_same_cause(e.cause, crash.cause)}
    if crash.machine is not None or len(same) < 2:
        return ""
    names = " and ".join(sorted(filter(None, same)))
    return f"{crash.cause} on {names}: the application is the cause, not a machine"


def _rung(choice: RungChoice | None) -> Rung | None:
    return None if choice is None else choice.rung


def _until(rung: Rung, begun: Nanoseconds, rules: LadderRules) -> Nanoseconds | None:
    limit = rules.limits.get(rung)
    return None if limit is None else Nanoseconds(begun + limit)


def _refusal(state: RecoveryState, crash: JobCrash, rules: LadderRules, now: Nanoseconds) -> str:
    """Return why an unknown cause gets no further retry; empty if it does."""
    if crash.origin is FaultOrigin.EXPLICIT:
        return ""
    if state.retries_left <= 0:
        return (
            f"no retry is left: {rules.retries} restarts saved no step beyond "
            f"{state.furthest_saved:,}"
        )
    if sum(at > now - rules.within for at in state.retries) >= rules.most:
        return f"no retry is left: {rules.most} restarts within the span of the budget"
    return ""
