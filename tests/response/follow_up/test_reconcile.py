"""What becomes of an action, by what the scheduler says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.response.example_actions import drain

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.follow_up.action_transition import (
    ActionTransition,
    DriverCall,
    TrackedAction,
)
from forewarn.response.follow_up.reconcile import reconcile, stale_marks
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.pool import Limits, Pool
from forewarn.response.state.step import DrainMode, Step

NOW = Nanoseconds(100 * DAY)
DRAIN = drain(
    Nanoseconds(NOW - HOUR),
    Nanoseconds(NOW + HOUR),
    changed_at=Nanoseconds(NOW - HOUR // 2),
    state=ActionState.HOLDING,
    jobs=1,
)
AVOID = replace(DRAIN, id=16, step=Step.AVOID, mode=None)
SERVES = Machine("n0", ServiceState.IN_SERVICE, gpus=8, pool="train", boot="b1", jobs=("a",))
DRAINING = replace(SERVES, state=ServiceState.DRAINING, reason="forewarn:17 xid 79")
DRAINED = replace(DRAINING, state=ServiceState.DRAINED, jobs=())
FOREIGN = replace(DRAINED, reason="cable")


def course(
    action: Action,
    machine: Machine | None,
    *,
    controller: str = "c1",
    stopped: bool = False,
    now: int = NOW,
    **remembered: Any,
) -> ActionTransition:
    values = {"controller": "c1", "boot": "b1", **remembered}
    (single,) = reconcile(
        [TrackedAction(action, **values)],
        {machine.name: machine} if machine else {},
        controller=controller,
        pools={"train": Pool("train", limits=Limits(killed_jobs=1))},
        recent=[action],
        stopped=stopped,
        now=Nanoseconds(now),
    )
    return single


def outcome(*args: Any, **options: Any) -> tuple[ActionState, DriverCall | None]:
    got = course(*args, **options)
    return got.state, got.call


# --- sent, and read back --------------------------------------------------------------------------


def test_what_is_intended_is_sent_and_held_once_it_is_read() -> None:
    intended = replace(DRAIN, state=ActionState.INTENDED)
    assert outcome(intended, SERVES) == (ActionState.SENT, DriverCall.APPLY)
    sent = replace(DRAIN, state=ActionState.SENT)
    assert outcome(sent, DRAINING) == (ActionState.HOLDING, None)
    assert outcome(sent, DRAINED) == (ActionState.DRAINED, None)


def test_what_was_sent_before_we_were_killed_is_not_sent_twice() -> None:
    assert outcome(replace(DRAIN, state=ActionState.INTENDED), DRAINING) == (
        ActionState.HOLDING,
        None,
    )


def test_draining_is_not_drained() -> None:
    assert course(DRAIN, DRAINING) == ActionTransition(DRAIN, ActionState.HOLDING, confirmed=True)
    assert outcome(DRAIN, replace(DRAINING, jobs=())) == (ActionState.HOLDING, None)
    assert outcome(DRAIN, DRAINED) == (ActionState.DRAINED, None)


def test_a_machine_that_the_controller_does_not_know_yet_is_not_drained() -> None:
    unknown = replace(DRAINED, state=ServiceState.UNKNOWN)
    assert outcome(DRAIN, unknown, controller="c2") == (ActionState.HOLDING, None)


def test_no_answer_means_unknown_and_it_is_asked_again_while_it_is_valid() -> None:
    sent = replace(DRAIN, state=ActionState.SENT)
    assert outcome(sent, SERVES) == (ActionState.SENT, DriverCall.APPLY)


def test_what_never_held_is_taken_back_when_it_is_no_longer_valid() -> None:
    sent = replace(DRAIN, state=ActionState.SENT, changed_at=Nanoseconds(NOW + HOUR))
    over = NOW + HOUR
    assert outcome(sent, SERVES, now=over + 14 * HOUR // 60) == (ActionState.SENT, None)
    assert outcome(sent, SERVES, now=over + 15 * HOUR // 60) == (
        ActionState.RELEASING,
        DriverCall.UNDO,
    )


def test_what_is_stale_is_not_sent_any_more() -> None:
    intended = replace(DRAIN, state=ActionState.INTENDED)
    assert outcome(intended, SERVES, now=NOW + HOUR) == (ActionState.EXPIRED, None)


@pytest.mark.parametrize("state", [ActionState.INTENDED, ActionState.SENT])
def test_the_kill_switch_holds_back_what_was_not_sent(state: ActionState) -> None:
    action = replace(DRAIN, state=state, changed_at=NOW)
    assert outcome(action, SERVES, stopped=True) == (state, None)


@pytest.mark.parametrize(
    ("state", "end"),
    [(ActionState.INTENDED, ActionState.EXPIRED), (ActionState.SENT, ActionState.FAILED)],
)
def test_a_machine_that_somebody_else_took_out_first_is_left_alone(
    state: ActionState, end: ActionState
) -> None:
    got = course(replace(DRAIN, state=state), FOREIGN)
    assert (got.state, got.call) == (end, None)
    assert got.detail == "somebody else took the machine out first: cable"


def test_a_machine_that_is_not_listed_changes_nothing() -> None:
    assert outcome(DRAIN, None) == (ActionState.HOLDING, None)


# --- lost or undone -------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [DRAIN, replace(DRAIN, state=ActionState.DRAINED), AVOID])
def test_what_is_gone_was_overridden(action: Action) -> None:
    got = course(action, SERVES)
    assert (got.state, got.call, got.detail) == (
        ActionState.OVERRIDDEN,
        None,
        "somebody undid it",
    )


def test_another_reason_is_an_override() -> None:
    got = course(DRAIN, FOREIGN)
    assert (got.state, got.call) == (ActionState.OVERRIDDEN, None)
    assert got.detail == "somebody else set another reason: cable"


@pytest.mark.parametrize(
    ("machine", "controller", "why"),
    [
        (SERVES, "c2", "set again: the scheduler was started anew"),
        (replace(SERVES, boot="b2"), "c1", "set again: the machine is a new one"),
    ],
)
def test_what_a_restart_lost_is_set_again_once(machine: Machine, controller: str, why: str) -> None:
    got = course(DRAIN, machine, controller=controller)
    assert (got.state, got.call, got.reapplied) == (ActionState.SENT, DriverCall.APPLY, True)
    assert got.detail == why
    again = outcome(DRAIN, machine, controller=controller, reapplied=True)
    assert again == (ActionState.OVERRIDDEN, None)


def test_what_a_restart_lost_is_not_set_again_when_it_is_stale_or_acting_is_stopped() -> None:
    late = outcome(DRAIN, SERVES, controller="c2", now=NOW + HOUR)
    assert late == (ActionState.RELEASED, None)
    stopped = outcome(DRAIN, SERVES, controller="c2", stopped=True)
    assert stopped == (ActionState.HOLDING, None)


def test_an_action_that_was_never_read_to_hold_has_no_life_to_compare() -> None:
    assert outcome(DRAIN, SERVES, controller="c2", **{"boot": "b1"}) == (
        ActionState.SENT,
        DriverCall.APPLY,
    )
    (single,) = reconcile(
        [TrackedAction(DRAIN)],
        {"n0": SERVES},
        controller="c2",
        pools={},
        recent=[],
        stopped=False,
        now=NOW,
    )
    assert single.state is ActionState.OVERRIDDEN


def test_weights_that_are_all_reset_are_no_override() -> None:
    others = [replace(AVOID, id=30 + n, incident=30 + n, machine=f"n{n}") for n in range(3)]
    fleet = {f"n{n}": replace(SERVES, name=f"n{n}") for n in range(3)}
    watched = [TrackedAction(action, "c1", "b1") for action in others]
    options: Any = {"controller": "c1", "pools": {}, "recent": others, "stopped": False}
    courses = reconcile(watched, fleet, now=NOW, **options)
    assert {c.detail for c in courses} == {"set again: the weights of all machines were reset"}
    fleet["n2"] = replace(fleet["n2"], avoided=True)
    courses = reconcile(watched, fleet, now=NOW, **options)
    assert [c.state for c in courses] == [
        ActionState.OVERRIDDEN,
        ActionState.OVERRIDDEN,
        ActionState.HOLDING,
    ]


def test_all_our_marks_of_an_overridden_incident_go() -> None:
    fleet = {"n0": replace(SERVES, avoided=True)}
    courses = reconcile(
        [TrackedAction(AVOID, "c1", "b1"), TrackedAction(DRAIN, "c1", "b1")],
        fleet,
        controller="c1",
        pools={},
        recent=[],
        stopped=False,
        now=NOW,
    )
    assert [(c.action.id, c.state, c.call) for c in courses] == [
        (16, ActionState.RELEASING, DriverCall.UNDO),
        (17, ActionState.OVERRIDDEN, None),
    ]


def test_what_is_released_is_undone_until_it_is_read_to_be_gone() -> None:
    releasing = replace(DRAIN, state=ActionState.RELEASING)
    assert outcome(releasing, DRAINED) == (ActionState.RELEASING, DriverCall.UNDO)
    assert outcome(releasing, SERVES) == (ActionState.RELEASED, None)
    assert outcome(releasing, FOREIGN) == (ActionState.RELEASED, None)


def test_a_mark_whose_action_has_ended_is_an_orphan() -> None:
    late = replace(DRAINED, name="n1", reason="forewarn:9 xid 79")
    assert stale_marks([DRAINED, FOREIGN, late, SERVES], [17]) == [late]


# --- deadlines ------------------------------------------------------------------------------------


def test_jobs_go_when_the_deadline_is_reached() -> None:
    action = replace(DRAIN, mode=DrainMode.DEADLINE)
    assert outcome(action, DRAINING) == (ActionState.HOLDING, None)
    reached = course(action, DRAINING, now=NOW + HOUR)
    assert (reached.state, reached.call, reached.jobs) == (
        ActionState.HOLDING,
        DriverCall.EVICT,
        ("a",),
    )
    assert outcome(DRAIN, DRAINING, now=NOW + HOUR) == (ActionState.HOLDING, None)
    assert outcome(action, DRAINING, now=NOW + HOUR, stopped=True) == (ActionState.HOLDING, None)


def test_jobs_go_at_once_where_the_mode_is_now() -> None:
    assert outcome(replace(DRAIN, mode=DrainMode.NOW), DRAINING) == (
        ActionState.HOLDING,
        DriverCall.EVICT,
    )


def test_no_more_jobs_go_at_a_deadline_than_may_be_killed() -> None:
    action = replace(DRAIN, mode=DrainMode.DEADLINE)
    busy = replace(DRAINING, jobs=("a", "b"))
    held = course(action, busy, now=NOW + HOUR)
    assert held.call is None
    assert held.detail == (
        "no job is ended: 2 jobs would be ended, and 0 were within 1 day, at most 1"
    )


def test_a_machine_that_a_new_controller_does_not_know_yet_was_not_taken_over() -> None:
    unknown = replace(SERVES, state=ServiceState.UNKNOWN, jobs=())
    assert outcome(DRAIN, unknown, controller="c2") == (ActionState.HOLDING, None)
    again = course(DRAIN, SERVES, controller="c2")
    assert (again.state, again.call) == (ActionState.SENT, DriverCall.APPLY)
