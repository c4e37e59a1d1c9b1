from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.response.follow_up.release import CheckVerdict
from forewarn.response.follow_up.step_progress import (
    StepChange,
    StepEvent,
    StepProgress,
    next_change,
    parse_change,
)
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.site_step import REMEDIES, SiteStep
from forewarn.response.state.step import DrainMode, Step

HARDER = {Step.RESET: Step.RESTART}
EVENTS = [*StepEvent, "check passed", "check failed", "jobs", "empty", ""]
RESULTS = (StepEvent.SUCCEEDED, StepEvent.FAILED, StepEvent.UNKNOWN)


def _action(step: Step, state: ActionState, serial: str | None = "GPU-1") -> Action:
    zero = Nanoseconds(0)
    values = (1, 1, "node-17", "train", None, None, "xid 119", step, DrainMode.FINISH)
    return Action(*values, *(zero, zero, zero), state=state, gpu_serial=serial)


@given(
    st.sampled_from(REMEDIES),
    st.sets(st.sampled_from(REMEDIES)),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 90)), max_size=25),
)
def test_no_command_begins_twice(
    step: Step,
    configured: set[Step],
    needs_idle: bool,
    may_replace: bool,
    events: list[tuple[str, int]],
) -> None:
    commands = {s: SiteStep(("x",), Nanoseconds(10 * MINUTE), needs_idle) for s in configured}
    state, check, changes = ActionState.HOLDING, None, list[StepChange]()
    now = Nanoseconds(0)
    for event, minutes in events:
        now = Nanoseconds(now + minutes * MINUTE)
        progress = StepProgress(_action(step, state), changes, check, commands, may_replace)
        last = progress.last
        if event.startswith("check"):
            check = CheckVerdict(event == "check passed", now)
        elif event in ("jobs", "empty"):
            state = ActionState.HOLDING if event == "jobs" else ActionState.DRAINED
        elif event in RESULTS and last is not None and last.event is StepEvent.BEGUN:
            changes.append(StepChange(last.step, StepEvent(event), "", now))
        elif (change := next_change(progress, HARDER.get, now=now)) is not None:
            if change.event is StepEvent.BEGUN:
                assert state is ActionState.DRAINED or not needs_idle
                assert may_replace or change.step is not Step.REPLACE
                assert last is None or last.event is not StepEvent.UNKNOWN
            changes.append(change)
    begun = [change.step for change in changes if change.event is StepEvent.BEGUN]
    assert len(set(begun)) == len(begun)
    assert set(begun) <= configured
    assert Step.REPLACE not in begun or step is Step.REPLACE


@given(st.sampled_from(REMEDIES), st.sampled_from(StepEvent), st.text())
def test_ledger_keeps_each_change(step: Step, event: StepEvent, detail: str) -> None:
    change = StepChange(step, event, detail, Nanoseconds(5), 3)
    parsed = parse_change(change.text, change.at, 3)
    assert parsed is not None
    assert (parsed.step, parsed.event) == (step, event)


def test_other_details_are_no_steps() -> None:
    for detail in ("", "check begun", "read back", "reset", "resetting begun: x", "drain begun: x"):
        assert parse_change(detail, Nanoseconds(0), 1) is None


def test_request_names_gpu_only_if_known() -> None:
    requests = {
        (step, serial): next_change(
            StepProgress(_action(step, ActionState.DRAINED, serial), [], None, {}, False),
            HARDER.get,
            now=Nanoseconds(0),
        )
        for step in (Step.RESET, Step.RESTART)
        for serial in ("GPU-1", None)
    }
    assert {key: change.detail for key, change in requests.items() if change} == {
        (Step.RESET, "GPU-1"): "a person must reset GPU GPU-1 of node-17",
        (Step.RESET, None): "a person must reset node-17",
        (Step.RESTART, "GPU-1"): "a person must restart node-17",
        (Step.RESTART, None): "a person must restart node-17",
    }
