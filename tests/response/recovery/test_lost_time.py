"""Lost time: accounts that can be counted by hand, and sums that are always exact."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import Nanoseconds
from forewarn.response.recovery.interruption_losses import (
    group_losses,
    interruption_losses,
    saved_by_rung,
)
from forewarn.response.recovery.job_run import JobRun, LoggedSave, ReportedStep, RunEnd
from forewarn.response.recovery.lost_time import LostTime, TimeUse, account_for
from forewarn.response.state.rung import Rung

SECOND = 1_000_000_000


def _run(begin: float, end: float, ended: RunEnd = RunEnd.FAILED, **values: object) -> JobRun:
    """Return a run of two GPUs, with times in seconds."""
    steps = values.pop("steps", ())
    saves = values.pop("saves", ())
    noticed = values.pop("noticed", None)
    submitted = values.pop("submitted", None)
    assert isinstance(steps, tuple)
    assert isinstance(saves, tuple)
    return JobRun(
        begin=_ns(begin),
        end=_ns(end),
        gpus=2,
        ended=ended,
        steps=tuple(ReportedStep(_ns(time), number) for time, number in steps),
        saves=tuple(LoggedSave(_ns(start), _ns(stop)) for start, stop in saves),
        noticed=None if noticed is None else _ns(noticed),  # type: ignore[arg-type]
        submitted=None if submitted is None else _ns(submitted),  # type: ignore[arg-type]
        **values,  # type: ignore[arg-type]
    )


def _ns(seconds: float) -> Nanoseconds:
    return Nanoseconds(round(seconds * SECOND))


def _seconds(lost: LostTime) -> dict[str, float]:
    """Return seconds of a GPU by use, without zeros, for two GPUs."""
    return {use.value: time / 2 / SECOND for use, time in lost.totals().items() if time}


def _steps(first: float, numbers: Iterable[int], each: float = 10) -> tuple[tuple[float, int], ...]:
    return tuple((first + each * place, number) for place, number in enumerate(numbers))


def test_a_log_may_begin_with_step_zero() -> None:
    run = _run(0, 40, RunEnd.COMPLETED, steps=_steps(20, range(3)))
    assert _seconds(account_for([run])) == {"initialise": 20, "useful": 20}


def test_a_run_that_completes_is_useful_after_its_start() -> None:
    run = _run(0, 130, RunEnd.COMPLETED, steps=_steps(30, range(1, 11)))
    assert _seconds(account_for([run])) == {"useful": 100, "initialise": 20, "unknown": 10}


def test_steps_since_the_checkpoint_are_recomputed() -> None:
    first = _run(0, 100, steps=_steps(20, range(1, 9)))  # steps 1 to 8, the last at 90
    second = _run(110, 200, RunEnd.COMPLETED, steps=_steps(130, range(6, 14)))  # from step 5
    assert _seconds(account_for([first, second])) == {
        "useful": 80 + 50,
        "detect": 10,
        "schedule": 10,
        "initialise": 10 + 10,
        "recompute": 30,
    }


def test_a_finding_ends_detection_and_the_request_ends_nothing_before_it() -> None:
    first = _run(0, 200, steps=_steps(10, range(1, 11)), noticed=150)  # hangs after 100
    second = _run(260, 300, RunEnd.COMPLETED, steps=_steps(270, range(11, 15)), submitted=230)
    lost = account_for([first, second])
    assert _seconds(lost) == {"useful": 140, "detect": 50, "schedule": 50 + 60}


def test_a_run_that_nothing_noticed_is_detected_when_the_next_is_asked_for() -> None:
    first = _run(0, 100, steps=_steps(10, range(1, 11)))
    second = _run(800, 900, RunEnd.COMPLETED, steps=_steps(810, range(11, 21)), submitted=700)
    assert _seconds(account_for([first, second])) == {
        "useful": 200,
        "detect": 600,
        "schedule": 100,
    }


def test_a_save_between_two_steps_is_no_useful_time() -> None:
    steps = (*_steps(10, range(1, 6)), *_steps(100, range(6, 11)))
    run = _run(0, 140, RunEnd.COMPLETED, steps=steps, saves=((50, 90),))
    assert _seconds(account_for([run])) == {"useful": 100, "save": 40}


def test_a_stall_that_ends_is_a_wait() -> None:
    steps = (*_steps(10, range(1, 6)), *_steps(100, range(6, 11)))
    run = _run(0, 140, RunEnd.COMPLETED, steps=steps)
    assert _seconds(account_for([run])) == {"useful": 100, "wait": 40}


def test_without_a_log_a_run_is_unknown() -> None:
    run = _run(0, 100, RunEnd.COMPLETED, is_logged=False)
    assert _seconds(account_for([run])) == {"unknown": 100}


def test_a_run_that_failed_before_its_first_step_was_a_start() -> None:
    first = _run(0, 100, noticed=80)
    second = _run(100, 150, RunEnd.COMPLETED, steps=_steps(120, range(1, 4)))
    assert _seconds(account_for([first, second])) == {
        "useful": 30,
        "schedule": 20,
        "initialise": 80 + 10,
        "unknown": 10,
    }


def test_a_job_that_ends_by_itself_and_continues_was_not_interrupted() -> None:
    first = _run(0, 100, RunEnd.COMPLETED, steps=_steps(10, range(1, 11)))
    second = _run(150, 250, RunEnd.COMPLETED, steps=_steps(160, range(11, 21)))
    lost = account_for([first, second])
    assert lost.interruptions == ()
    assert {span.interruption for span in lost.spans} == {None}


def test_each_interruption_owns_what_it_made_necessary() -> None:
    first = _run(0, 100, steps=_steps(10, range(1, 11)), cause="gpu", machines=("a",))
    second = _run(110, 250, steps=_steps(130, range(6, 16)), cause="gpu", machines=("b",))
    third = _run(310, 400, RunEnd.COMPLETED, steps=_steps(320, range(16, 24)), rung=Rung.RESTART)
    losses = interruption_losses("j", account_for([first, second, third]))
    seconds = [{use.value: value for use, value in each.seconds.items()} for each in losses]
    assert seconds == [
        {"detect": 0, "schedule": 10, "initialise": 10, "recompute": 50},
        {"detect": 30, "schedule": 60, "initialise": 0, "recompute": 0},
    ]
    [by_cause] = group_losses(losses, lambda loss: [loss.cause])
    assert (by_cause.count, by_cause.gpu_time) == (2, 2 * 160 * SECOND)
    rungs = group_losses(losses, lambda loss: [loss.rung or "none"])
    assert saved_by_rung(rungs) == {"restart": 70 - 90}


@pytest.mark.parametrize("spans", [[(0, 100), (90, 200)], []])
def test_runs_that_cannot_be_accounted_for_are_refused(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="run"):
        account_for([_run(begin, end) for begin, end in spans])


@st.composite
def _jobs(draw: st.DrawFn) -> list[JobRun]:
    """Draw runs with any steps, saves and notices, also such that lie outside their run."""
    runs, at, number = [], 0, 0
    for _ in range(draw(st.integers(1, 5))):
        begin = at + draw(st.integers(0, 50))
        end = begin + draw(st.integers(1, 200))
        times = sorted(draw(st.sets(st.integers(begin, end), max_size=8)))
        start = max(0, number - draw(st.integers(0, 20)))
        numbers = [start + draw(st.integers(1, 9)) + 10 * place for place in range(len(times))]
        marks = sorted(draw(st.sets(st.integers(begin - 9, end + 9), max_size=4)))
        runs.append(
            JobRun(
                begin=Nanoseconds(begin),
                end=Nanoseconds(end),
                gpus=draw(st.integers(1, 7)),
                ended=draw(st.sampled_from(RunEnd)),
                submitted=draw(st.none() | st.integers(0, end).map(Nanoseconds)),
                steps=tuple(map(ReportedStep, times, numbers)),
                saves=tuple(map(LoggedSave, marks[::2], marks[1::2])),
                noticed=draw(st.none() | st.integers(0, 2_000).map(Nanoseconds)),
            )
        )
        at, number = end, max([number, *numbers])
    return runs


@given(_jobs())
def test_spans_have_no_gap_and_add_up_to_the_elapsed_time(runs: list[JobRun]) -> None:
    lost = account_for(runs)
    assert sum(lost.totals().values()) == lost.elapsed
    position = runs[0].begin
    for span in lost.spans:
        assert span.begin == position
        assert span.end > span.begin
        position = Nanoseconds(span.end)
    assert position == runs[-1].end
    assert 0 <= lost.effective_share <= 1


@given(_jobs())
def test_no_step_is_useful_twice(runs: list[JobRun]) -> None:
    """A job that repeats its last run from the same step gains nothing useful by steps."""
    if not runs[-1].steps:
        return
    last = runs[-1]
    shift = last.end - last.begin
    again = JobRun(
        begin=Nanoseconds(last.begin + shift),
        end=Nanoseconds(last.end + shift),
        gpus=last.gpus,
        ended=RunEnd.FAILED,
        steps=tuple(ReportedStep(time + shift, number) for time, number in last.steps),
    )
    before = account_for(runs).totals()[TimeUse.USEFUL]
    assert account_for([*runs, again]).totals()[TimeUse.USEFUL] == before
