"""Transitions of an action for each state of the scheduler."""

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


def transition(
    action: Action,
    machine: Machine | None,
    *,
    controller: str = "c1",
    stopped: bool = False,
    now: int = NOW,
    lasting: bool = False,
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
        lasting=lasting,
    )
    return single


def outcome(*args: Any, **options: Any) -> tuple[ActionState, DriverCall | None]:
    result = transition(*args, **options)
    return result.state, result.call


# --- sent and confirmed ---------------------------------------------------------------------------


def test_intended_action_is_sent_then_confirmed() -> None:
    intended = replace(DRAIN, state=ActionState.INTENDED)
    assert outcome(intended, SERVES) == (ActionState.SENT, DriverCall.APPLY)
    sent = replace(DRAIN, state=ActionState.SENT)
    assert outcome(sent, DRAINING) == (ActionState.HOLDING, None)
    assert outcome(sent, DRAINED) == (ActionState.DRAINED, None)


def test_confirmed_action_is_not_sent_twice() -> None:
    assert outcome(replace(DRAIN, state=ActionState.INTENDED), DRAINING) == (
        ActionState.HOLDING,
        None,
    )


def test_draining_machine_is_not_drained() -> None:
    assert transition(DRAIN, DRAINING) == ActionTransition(
        DRAIN, ActionState.HOLDING, confirmed=True
    )
    assert outcome(DRAIN, replace(DRAINING, jobs=())) == (ActionState.HOLDING, None)
    assert outcome(DRAIN, DRAINED) == (ActionState.DRAINED, None)


def test_unknown_machine_is_not_drained() -> None:
    unknown = replace(DRAINED, state=ServiceState.UNKNOWN)
    assert outcome(DRAIN, unknown, controller="c2") == (ActionState.HOLDING, None)


def test_unanswered_call_is_repeated_while_valid() -> None:
    sent = replace(DRAIN, state=ActionState.SENT)
    assert outcome(sent, SERVES) == (ActionState.SENT, DriverCall.APPLY)


def test_unapplied_action_is_released_after_expiry() -> None:
    sent = replace(DRAIN, state=ActionState.SENT, changed_at=Nanoseconds(NOW + HOUR))
    over = NOW + HOUR
    assert outcome(sent, SERVES, now=over + 14 * HOUR // 60) == (ActionState.SENT, None)
    assert outcome(sent, SERVES, now=over + 15 * HOUR // 60) == (
        ActionState.RELEASING,
        DriverCall.UNDO,
    )


def test_stale_action_is_not_sent() -> None:
    intended = replace(DRAIN, state=ActionState.INTENDED)
    assert outcome(intended, SERVES, now=NOW + HOUR) == (ActionState.EXPIRED, None)


@pytest.mark.parametrize("state", [ActionState.INTENDED, ActionState.SENT])
def test_kill_switch_blocks_unsent_action(state: ActionState) -> None:
    action = replace(DRAIN, state=state, changed_at=NOW)
    assert outcome(action, SERVES, stopped=True) == (state, None)


@pytest.mark.parametrize(
    ("state", "end"),
    [(ActionState.INTENDED, ActionState.EXPIRED), (ActionState.SENT, ActionState.FAILED)],
)
def test_externally_drained_machine_is_left_alone(state: ActionState, end: ActionState) -> None:
    result = transition(replace(DRAIN, state=state), FOREIGN)
    assert (result.state, result.call) == (end, None)
    assert result.detail == "drained externally first: cable"


def test_unlisted_machine_changes_nothing() -> None:
    assert outcome(DRAIN, None) == (ActionState.HOLDING, None)


# --- lost or undone -------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [DRAIN, replace(DRAIN, state=ActionState.DRAINED), AVOID])
def test_missing_action_counts_as_overridden(action: Action) -> None:
    result = transition(action, SERVES)
    assert (result.state, result.call, result.detail) == (
        ActionState.OVERRIDDEN,
        None,
        "undone manually",
    )


def test_changed_reason_is_override() -> None:
    result = transition(DRAIN, FOREIGN)
    assert (result.state, result.call) == (ActionState.OVERRIDDEN, None)
    assert result.detail == "the reason was changed manually: cable"


@pytest.mark.parametrize(
    ("machine", "controller", "why"),
    [
        (SERVES, "c2", "applied again: the scheduler restarted"),
        (replace(SERVES, boot="b2"), "c1", "applied again: the machine was replaced"),
    ],
)
def test_action_lost_by_restart_is_reapplied_once(
    machine: Machine, controller: str, why: str
) -> None:
    result = transition(DRAIN, machine, controller=controller)
    assert (result.state, result.call, result.reapplied) == (
        ActionState.SENT,
        DriverCall.APPLY,
        True,
    )
    assert result.detail == why
    again = outcome(DRAIN, machine, controller=controller, reapplied=True)
    assert again == (ActionState.OVERRIDDEN, None)


def test_stale_action_is_not_reapplied() -> None:
    late = outcome(DRAIN, SERVES, controller="c2", now=NOW + HOUR)
    assert late == (ActionState.RELEASED, None)
    stopped = outcome(DRAIN, SERVES, controller="c2", stopped=True)
    assert stopped == (ActionState.HOLDING, None)


def test_unconfirmed_action_has_no_start_to_compare() -> None:
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


def test_reset_of_all_weights_is_no_override() -> None:
    others = [replace(AVOID, id=30 + n, incident=30 + n, machine=f"n{n}") for n in range(3)]
    fleet = {f"n{n}": replace(SERVES, name=f"n{n}") for n in range(3)}
    watched = [TrackedAction(action, "c1", "b1") for action in others]
    options: Any = {"controller": "c1", "pools": {}, "recent": others, "stopped": False}
    transitions = reconcile(watched, fleet, now=NOW, **options)
    assert {c.detail for c in transitions} == {
        "applied again: the weights of all machines were reset"
    }
    fleet["n2"] = replace(fleet["n2"], avoided=True)
    transitions = reconcile(watched, fleet, now=NOW, **options)
    assert [c.state for c in transitions] == [
        ActionState.OVERRIDDEN,
        ActionState.OVERRIDDEN,
        ActionState.HOLDING,
    ]


def test_override_releases_all_marks_of_incident() -> None:
    fleet = {"n0": replace(SERVES, avoided=True)}
    transitions = reconcile(
        [TrackedAction(AVOID, "c1", "b1"), TrackedAction(DRAIN, "c1", "b1")],
        fleet,
        controller="c1",
        pools={},
        recent=[],
        stopped=False,
        now=NOW,
    )
    assert [(c.action.id, c.state, c.call) for c in transitions] == [
        (16, ActionState.RELEASING, DriverCall.UNDO),
        (17, ActionState.OVERRIDDEN, None),
    ]


def test_release_repeats_until_mark_is_gone() -> None:
    releasing = replace(DRAIN, state=ActionState.RELEASING)
    assert outcome(releasing, DRAINED) == (ActionState.RELEASING, DriverCall.UNDO)
    assert outcome(releasing, SERVES) == (ActionState.RELEASED, None)
    assert outcome(releasing, FOREIGN) == (ActionState.RELEASED, None)


def test_mark_of_ended_action_is_stale() -> None:
    late = replace(DRAINED, name="n1", reason="forewarn:9 xid 79")
    assert stale_marks([DRAINED, FOREIGN, late, SERVES], [17]) == [late]


# --- deadlines ------------------------------------------------------------------------------------


def test_deadline_ends_jobs() -> None:
    action = replace(DRAIN, mode=DrainMode.DEADLINE)
    assert outcome(action, DRAINING) == (ActionState.HOLDING, None)
    reached = transition(action, DRAINING, now=NOW + HOUR)
    assert (reached.state, reached.call, reached.jobs) == (
        ActionState.HOLDING,
        DriverCall.EVICT,
        ("a",),
    )
    assert outcome(DRAIN, DRAINING, now=NOW + HOUR) == (ActionState.HOLDING, None)
    assert outcome(action, DRAINING, now=NOW + HOUR, stopped=True) == (ActionState.HOLDING, None)


def test_mode_now_ends_jobs_at_once() -> None:
    assert outcome(replace(DRAIN, mode=DrainMode.NOW), DRAINING) == (
        ActionState.HOLDING,
        DriverCall.EVICT,
    )


def test_moved_jobs_are_not_evicted() -> None:
    moved = replace(DRAIN, mode=DrainMode.MOVED)
    assert outcome(moved, DRAINING, now=NOW + DAY) == (ActionState.HOLDING, None)


def test_killed_jobs_limit_holds_at_deadline() -> None:
    action = replace(DRAIN, mode=DrainMode.DEADLINE)
    busy = replace(DRAINING, jobs=("a", "b"))
    held = transition(action, busy, now=NOW + HOUR)
    assert held.call is None
    assert held.detail == (
        "no job is ended: 2 jobs would be ended, and 0 were within 1 day, at most 1"
    )


def test_unknown_machine_after_restart_is_no_override() -> None:
    unknown = replace(SERVES, state=ServiceState.UNKNOWN, jobs=())
    assert outcome(DRAIN, unknown, controller="c2") == (ActionState.HOLDING, None)
    again = transition(DRAIN, SERVES, controller="c2")
    assert (again.state, again.call) == (ActionState.SENT, DriverCall.APPLY)


# --- schedulers that lose nothing -----------------------------------------------------------------


def test_vanished_machine_ends_its_action() -> None:
    assert transition(DRAIN, None).state is ActionState.HOLDING  # Slurm may not list it for a while
    gone = transition(DRAIN, None, lasting=True)
    assert (gone.state, gone.call, gone.detail) == (
        ActionState.RELEASED,
        DriverCall.UNDO,  # removes the mark of one of its GPUs
        "replaced_by_other: the machine is gone",
    )
    intended = replace(DRAIN, state=ActionState.INTENDED)
    assert outcome(intended, None, lasting=True) == (ActionState.EXPIRED, None)
    other_cluster = transition(DRAIN, None, lasting=True, controller="c2")
    assert other_cluster.state is ActionState.HOLDING


def test_override_names_who_changed_the_mark() -> None:
    returned = replace(SERVES, reason_by="tom")
    assert transition(DRAIN, returned).by == "tom"
    assert transition(DRAIN, replace(FOREIGN, reason_by="tom")).by == "tom"


def test_marks_removed_together_are_overridden() -> None:
    """Slurm resets all weights at once by itself; others keep what was set."""
    actions = [replace(AVOID, id=number, machine=f"n{number}") for number in (1, 2)]
    tracked = [TrackedAction(action, controller="c1", boot="b1") for action in actions]
    fleet = {action.machine: replace(SERVES, name=action.machine) for action in actions}
    for lasting, expected in ((False, ActionState.SENT), (True, ActionState.OVERRIDDEN)):
        transitions = reconcile(
            tracked,
            fleet,
            controller="c1",
            pools={"train": Pool("train")},
            recent=actions,
            stopped=False,
            now=NOW,
            lasting=lasting,
        )
        assert {transition.state for transition in transitions} == {expected}


# --- one GPU --------------------------------------------------------------------------------------

GPU_OUT = replace(SERVES, jobs=("a", "b"), device_actions={17: ("a",)})


def test_action_on_one_gpu_follows_the_jobs_of_that_gpu() -> None:
    sent = replace(DRAIN, state=ActionState.SENT)
    assert outcome(sent, GPU_OUT) == (ActionState.HOLDING, None)
    assert transition(sent, GPU_OUT).detail == "read back: one GPU"
    assert outcome(DRAIN, replace(GPU_OUT, device_actions={17: ()})) == (ActionState.DRAINED, None)
    assert outcome(DRAIN, SERVES) == (ActionState.OVERRIDDEN, None)
    ended = transition(replace(DRAIN, mode=DrainMode.NOW), GPU_OUT)
    assert (ended.call, ended.jobs) == (DriverCall.EVICT, ("a",))


def test_actions_on_gpu_and_machine_are_both_held() -> None:
    machine = replace(GPU_OUT, state=ServiceState.DRAINING, reason="forewarn:18 xid 79")
    for action in (DRAIN, replace(DRAIN, id=18)):
        assert transition(action, machine).state is ActionState.HOLDING


def test_mark_of_an_ended_action_on_one_gpu_is_stale() -> None:
    assert stale_marks([GPU_OUT], [17]) == []
    assert stale_marks([GPU_OUT], [18]) == [GPU_OUT]
