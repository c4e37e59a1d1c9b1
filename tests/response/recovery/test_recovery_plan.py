"""Recovery of a job: where it begins, what follows, and when retries end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import DAY, MINUTE, SECOND, Nanoseconds
from forewarn.response.policy.fault_level import BlockScope
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.recovery.job_crash import FaultOrigin, JobAbilities, JobCrash, NoSpare
from forewarn.response.recovery.ladder import NoSpareCosts, RungChoice, choose_rung
from forewarn.response.recovery.recovery_plan import PlanState, RecoveryPlan, plan_recovery
from forewarn.response.recovery.recovery_state import (
    CheckpointSaved,
    RecoveryEvent,
    RungBegun,
    RungFailed,
    StepMade,
    recovery_state,
)
from forewarn.response.state.rung import Rung

EXPLICIT, IMPLICIT, NOT_ONE = FaultOrigin
ALL = JobAbilities(rungs=frozenset(Rung))
RULES = LadderRules({rung: Nanoseconds(10 * MINUTE) for rung in Rung if rung is not Rung.RESUBMIT})


def _at(minutes: float) -> Nanoseconds:
    return Nanoseconds(round(minutes * MINUTE))


def _crash(minutes: float, origin: FaultOrigin = NOT_ONE, **values: object) -> JobCrash:
    machine = None if origin is NOT_ONE else "node-1"
    return replace(JobCrash(_at(minutes), origin, "boom", machine), **values)  # type: ignore[arg-type]


def _first(crash: JobCrash, abilities: JobAbilities = ALL, **values: object) -> RungChoice:
    choice = choose_rung(crash, abilities, **values)  # type: ignore[arg-type]
    assert choice is not None
    return choice


def _plan(
    events: list[RecoveryEvent], minutes: float, abilities: JobAbilities = ALL
) -> RecoveryPlan:
    return plan_recovery(recovery_state(events, RULES), abilities, RULES, _at(minutes))


@pytest.mark.parametrize(
    ("origin", "rung", "scope"),
    [
        (EXPLICIT, Rung.REPLACE, BlockScope.CLUSTER),
        (IMPLICIT, Rung.REPLACE, BlockScope.JOB),
        (NOT_ONE, Rung.RESTART, BlockScope.NONE),
    ],
)
def test_evidence_decides_where_recovery_begins(
    origin: FaultOrigin, rung: Rung, scope: BlockScope
) -> None:
    choice = _first(_crash(0, origin))
    assert (choice.rung, choice.scope) == (rung, scope)


def test_level_of_a_fault_begins_lower_and_climbs_to_the_replacement() -> None:
    crash = _crash(0, EXPLICIT, rung=Rung.STEP_RETRY)
    rungs = [_first(crash)]
    while (choice := choose_rung(crash, ALL, above=rungs[-1].rung)) is not None:
        rungs.append(choice)
    assert [choice.rung for choice in rungs] == list(Rung)
    assert [choice.scope for choice in rungs] == [BlockScope.NONE] * 2 + [BlockScope.CLUSTER] * 4


def test_what_a_framework_cannot_do_is_skipped_and_named() -> None:
    choice = _first(_crash(0, EXPLICIT), JobAbilities(rungs=frozenset({Rung.REQUEUE})))
    assert (choice.rung, choice.skipped) == (Rung.REQUEUE, (Rung.REPLACE, Rung.RESTART))


def test_rank_zero_needs_the_job_level_where_the_framework_says_so() -> None:
    crash = _crash(0, EXPLICIT, hits_rank_zero=True)
    assert _first(crash).rung is Rung.REPLACE
    assert _first(crash, replace(ALL, rank_zero_needs_job=True)).rung is Rung.REQUEUE


def test_reset_in_place_needs_a_graceful_framework() -> None:
    graceful = JobAbilities(rungs=frozenset({Rung.REPLACE, Rung.RESTART}), graceful=True)
    crash = _crash(0, EXPLICIT, rung=Rung.RESTART)
    assert _first(crash).rung is Rung.REPLACE
    assert (_first(crash, graceful).rung, _first(crash, graceful).scope) == (
        Rung.RESTART,
        BlockScope.NONE,
    )


@pytest.mark.parametrize(
    ("wishes", "wait_seconds", "expected"),
    [
        ((NoSpare.WAIT,), 10.0, (Rung.REPLACE, NoSpare.WAIT)),
        ((NoSpare.STAY,), 10.0, (Rung.RESTART, NoSpare.STAY)),
        ((NoSpare.WAIT, NoSpare.SHRINK), 3600.0, (Rung.REPLACE, NoSpare.SHRINK)),
        ((NoSpare.SHRINK, NoSpare.WAIT), 10.0, (Rung.REPLACE, NoSpare.WAIT)),
    ],
)
def test_without_a_spare_the_wish_or_the_least_loss_decides(
    wishes: tuple[NoSpare, ...], wait_seconds: float, expected: tuple[Rung, NoSpare]
) -> None:
    costs = NoSpareCosts(wait_seconds, 300.0, gpus=8, gpus_left_out=4)
    abilities = replace(ALL, without_spare=wishes)
    choice = _first(_crash(0, IMPLICIT), abilities, spares=0, costs=costs)
    assert (choice.rung, choice.without_spare) == expected


def test_a_crash_names_a_machine_exactly_if_its_origin_is_one() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        JobCrash(_at(0), EXPLICIT)
    with pytest.raises(ValueError, match="does not fit"):
        JobCrash(_at(0), NOT_ONE, machine="node-1")


def test_graceful_and_process_level_exclude_each_other() -> None:
    with pytest.raises(ValueError, match=r"`graceful` and the rung process exclude"):
        JobAbilities(rungs=frozenset({Rung.PROCESS, Rung.RESTART}), graceful=True)


def test_a_rung_has_its_time_and_fails_at_its_limit() -> None:
    events: list[RecoveryEvent] = [_crash(0, EXPLICIT), RungBegun(_at(1), Rung.REPLACE)]
    under_way = _plan(events, 11 - 1 / 60)
    assert (under_way.state, under_way.until) == (PlanState.UNDER_WAY, _at(11))
    assert under_way.next_rung is Rung.RESTART
    late = _plan(events, 11)
    assert late.choice is not None
    assert (late.state, late.choice.rung) == (PlanState.BEGIN, Rung.RESTART)


def test_a_rung_that_is_known_to_have_failed_is_not_waited_for() -> None:
    events: list[RecoveryEvent] = [_crash(0, EXPLICIT), RungBegun(_at(1), Rung.REPLACE)]
    for failure in (RungFailed(_at(2)), _crash(2, NOT_ONE), _crash(2, EXPLICIT)):
        plan = _plan([*events, failure], 3)
        assert plan.choice is not None
        assert (plan.state, plan.choice.rung) == (PlanState.BEGIN, Rung.RESTART)


def test_damage_of_another_machine_is_an_interruption_of_its_own() -> None:
    other = _crash(2, EXPLICIT, machine="node-2")
    plan = _plan([_crash(0, EXPLICIT), RungBegun(_at(1), Rung.REPLACE), other], 3)
    assert plan.choice is not None
    assert (plan.choice.rung, plan.choice.reason) == (Rung.REPLACE, "node-2 is damaged")


def test_a_step_ends_the_interruption() -> None:
    events: list[RecoveryEvent] = [_crash(0), RungBegun(_at(1), Rung.RESTART), StepMade(_at(2))]
    assert _plan(events, 2).state is PlanState.TRAINING
    again = _plan([*events, _crash(3)], 3)
    assert again.choice is not None
    assert again.choice.rung is Rung.RESTART


def test_evidence_that_comes_later_names_the_machine() -> None:
    plan = _plan([_crash(0), _crash(1, EXPLICIT), _crash(1, IMPLICIT, machine="node-2")], 1)
    assert plan.choice is not None
    assert plan.choice.reason == "node-1 is damaged"


def _retries(*minutes: float) -> list[RecoveryEvent]:
    """Return restarts after crashes of unknown cause, each of which makes a step."""
    events: list[RecoveryEvent] = []
    for minute in minutes:
        begun = RungBegun(_at(minute + 1), Rung.RESTART)
        events += [_crash(minute), begun, StepMade(_at(minute + 2))]
    return events


def test_three_retries_without_progress_stop_the_job() -> None:
    events = [CheckpointSaved(_at(0), 400), *_retries(10, 20, 30), CheckpointSaved(_at(35), 400)]
    assert _plan(events, 36).retries_left == 0
    plan = _plan([*events, _crash(40)], 40)
    assert plan.state is PlanState.STOP
    assert plan.reason == "no retry is left: 3 restarts saved no step beyond 400"


def test_progress_beyond_the_furthest_checkpoint_gives_one_retry_back() -> None:
    events = [CheckpointSaved(_at(0), 400), *_retries(10, 20, 30), CheckpointSaved(_at(35), 401)]
    plan = _plan([*events, _crash(40)], 40)
    assert (plan.state, plan.retries_left) == (PlanState.BEGIN, 1)


def test_retries_have_an_upper_bound_within_a_day() -> None:
    events: list[RecoveryEvent] = []
    for number in range(10):
        begin = number * 10
        events += [*_retries(begin), CheckpointSaved(_at(begin + 3), number + 1)]
    crash = _crash(100)
    assert _plan([*events, crash], 100).state is PlanState.STOP
    first = RULES.within / MINUTE + 1  # a day after the first retry, at minute 1
    assert _plan([*events, _crash(first - 1)], first - 1 / 60).state is PlanState.STOP
    assert _plan([*events, _crash(first - 1)], first).state is PlanState.BEGIN


def test_damage_costs_no_retry() -> None:
    events: list[RecoveryEvent] = []
    for minute in range(0, 100, 10):
        begun = RungBegun(_at(minute + 1), Rung.REPLACE)
        events += [_crash(minute, EXPLICIT), begun, StepMade(_at(minute + 2))]
    assert _plan(events, 100).retries_left == 3


def test_the_same_cause_on_another_machine_is_the_applications() -> None:
    first: list[RecoveryEvent] = [_crash(0, IMPLICIT), RungBegun(_at(1), Rung.REPLACE)]
    first.append(StepMade(_at(2)))
    again = _plan([*first, _crash(5, IMPLICIT, machine="node-2")], 5)
    assert again.choice is not None
    assert (again.choice.rung, again.choice.scope) == (Rung.RESTART, BlockScope.NONE)
    assert "boom on node-1 and node-2" in again.reason
    other = _plan([*first, _crash(5, IMPLICIT, machine="node-2", cause="other")], 5)
    assert other.choice is not None
    assert other.choice.rung is Rung.REPLACE
    day_later = _plan([*first, _crash(DAY / MINUTE, IMPLICIT, machine="node-2")], DAY / MINUTE)
    assert day_later.choice is not None
    assert day_later.choice.rung is Rung.REPLACE


# --- properties -----------------------------------------------------------------------------------

moments = st.integers(0, 60).map(lambda second: Nanoseconds(second * SECOND))
crashes = st.builds(
    lambda at, origin, cause, machine, leads, rung: JobCrash(
        at, origin, cause, None if origin is NOT_ONE else machine, leads, rung
    ),
    moments,
    st.sampled_from(FaultOrigin),
    st.sampled_from(["", "boom"]),
    st.sampled_from(["node-1", "node-2"]),
    st.booleans(),
    st.sampled_from([None, Rung.STEP_RETRY, Rung.PROCESS, Rung.RESTART]),
)
reports = st.one_of(
    crashes,
    st.builds(StepMade, moments),
    st.builds(RungFailed, moments),
    st.builds(CheckpointSaved, moments, st.integers(0, 5)),
)
all_events = st.one_of(reports, st.builds(RungBegun, moments, st.sampled_from(Rung)))
abilities_of_jobs = st.builds(
    JobAbilities,
    rungs=st.frozensets(st.sampled_from([Rung.REPLACE, Rung.RESTART, Rung.REQUEUE])),
    rank_zero_needs_job=st.booleans(),
    graceful=st.booleans(),
    without_spare=st.lists(st.sampled_from(NoSpare), max_size=2).map(tuple),
)


@given(st.lists(all_events, max_size=20), st.randoms(use_true_random=False))
def test_late_and_doubled_events_change_nothing(
    events: list[RecoveryEvent], random: object
) -> None:
    shuffled = [*events, *events[::2]]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert recovery_state(shuffled, RULES) == recovery_state(events, RULES)


@given(st.lists(reports, max_size=30), abilities_of_jobs, st.sampled_from([None, 0, 1]))
def test_a_crash_climbs_at_most_the_ladder_within_the_budget(
    happened: list[RecoveryEvent], abilities: JobAbilities, spares: int | None
) -> None:
    """Carry out each plan as it is made, and look at what was begun."""
    log: list[RecoveryEvent] = []
    for event in sorted(happened, key=lambda event: event.at):
        log.append(event)
        state = recovery_state(log, RULES)
        plan = plan_recovery(state, abilities, RULES, event.at, spares=spares)
        if plan.state is not PlanState.BEGIN:
            continue
        assert plan.choice is not None
        assert abilities.can(plan.choice.rung)
        begun = RungBegun(Nanoseconds(event.at + 1), plan.choice.rung)
        log.append(begun)
        after = recovery_state(log, RULES)
        ranks = [each.rung.rank for each in after.tried]
        assert all(earlier < later for earlier, later in pairwise(ranks))
        assert len(ranks) <= len(Rung)
        assert 0 <= after.retries_left <= RULES.retries
        assert len(after.retries) <= RULES.most
        repeated = plan_recovery(after, abilities, RULES, begun.at, spares=spares)
        assert repeated.state is PlanState.UNDER_WAY
