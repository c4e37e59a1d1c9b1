"""The last checkpoint is the last one that was certainly saved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.diagnosis.verdict.restart_point import CheckpointLine, last_saved_step


def begun(step: int | None) -> CheckpointLine:
    return CheckpointLine(is_end=False, step=step)


def saved(step: int | None) -> CheckpointLine:
    return CheckpointLine(is_end=True, step=step)


def test_unfinished_checkpoint_does_not_count() -> None:
    lines = [begun(100), saved(100), begun(200)]
    assert last_saved_step(lines, 250) == 100


def test_end_without_step_takes_the_beginning() -> None:
    assert last_saved_step([begun(100), saved(None)], None) == 100
    assert last_saved_step([saved(None)], 250) is None


def test_later_steps_show_silent_saves() -> None:
    assert last_saved_step([begun(100), begun(200)], 200) == 100
    assert last_saved_step([begun(100)], None) is None


@given(st.lists(st.builds(CheckpointLine, st.booleans(), st.none() | st.integers(0, 9))))
def test_saved_step_was_stated_before(lines: list[CheckpointLine]) -> None:
    step = last_saved_step(lines, 9)
    assert step is None or step in {line.step for line in lines}
