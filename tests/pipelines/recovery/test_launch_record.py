"""The record of a launcher, and the account of a job from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.recovery.job_life import read_life
from forewarn.pipelines.recovery.launch_record import (
    Attempt,
    LaunchRecordError,
    Loss,
    read_attempts,
    write_change,
    write_end,
    write_start,
)
from forewarn.pipelines.recovery.scheduler_runs import ScheduledRun
from forewarn.response.recovery.job_run import RunEnd
from forewarn.response.state.rung import Rung

FIRST = Attempt(
    number=1,
    begin=Nanoseconds(100 * SECOND),
    submitted=None,
    rung=None,
    machines=("a", "b"),
    processes=4,
    reason="the job begins",
)


def _ended(attempt: Attempt, end: int) -> Attempt:
    return replace(
        attempt,
        end=Nanoseconds(end * SECOND),
        ended=RunEnd.FAILED,
        noticed=Nanoseconds((end - 5) * SECOND),
        cause="xid 79",
        blamed="b",
        origin="explicit",
        saved=40,
        is_started=True,
    )


def _second(begin: int) -> Attempt:
    return replace(
        FIRST,
        number=2,
        begin=Nanoseconds(begin * SECOND),
        submitted=Nanoseconds((begin - 1) * SECOND),
        rung=Rung.REPLACE,
        machines=("a", "c"),
        out=("b",),
    )


def test_attempts_come_back_as_written(tmp_path: Path) -> None:
    attempts = [_ended(FIRST, 200), _second(202)]
    write_start(tmp_path, FIRST)
    write_end(tmp_path, attempts[0])
    write_start(tmp_path, attempts[1])
    with (tmp_path / "launch.jsonl").open("a") as file:
        file.write('{"event": "end", "numb')  # the launcher was killed
    assert read_attempts(tmp_path) == attempts


def test_invalid_line_is_named(tmp_path: Path) -> None:
    write_start(tmp_path, FIRST)
    with (tmp_path / "launch.jsonl").open("a") as file:
        file.write('{"event": "end", "number": 7}\n')
    with pytest.raises(LaunchRecordError, match=r"launch.jsonl, line 2"):
        read_attempts(tmp_path)


@pytest.mark.parametrize("is_allocated", [False, True])
def test_runs_of_a_life_are_the_attempts(is_allocated: bool, tmp_path: Path) -> None:
    write_start(tmp_path, FIRST)
    write_end(tmp_path, _ended(FIRST, 200))
    write_start(tmp_path, _second(202))
    write_end(tmp_path, replace(_ended(_second(202), 300), ended=RunEnd.COMPLETED, noticed=None))
    allocation = ScheduledRun(
        "7",
        "job",
        None,
        Nanoseconds(90 * SECOND),
        Nanoseconds(310 * SECOND),
        RunEnd.COMPLETED,
        "",
        8,
        ("a", "b", "c"),
    )
    runs = read_life(tmp_path, [allocation] if is_allocated else [])
    begin, end = (90, 310) if is_allocated else (100, 300)
    spans = [(run.begin // SECOND, run.end // SECOND) for run in runs]
    assert spans == [(begin, 200), (202, end)]
    assert [run.gpus for run in runs] == [8, 8]
    assert runs[0].noticed == 195 * SECOND
    assert runs[0].machines == ("b",)
    assert runs[1].rung is Rung.REPLACE


def _changed(*losses: Loss) -> Attempt:
    return replace(FIRST, machines=("a", "c"), out=("b",), losses=losses)


def test_replaced_machine_ends_a_run_of_the_life(tmp_path: Path) -> None:
    """Machine b is lost at 150 s; its spare trains from 170 s on, until all is done at 300 s."""
    lost = Loss("b", Nanoseconds(150 * SECOND))
    joined = replace(lost, joined=Nanoseconds(170 * SECOND))
    write_start(tmp_path, FIRST)
    write_change(tmp_path, "replace", _changed(lost))
    assert read_attempts(tmp_path) == [_changed(lost)]
    write_change(tmp_path, "join", _changed(joined))
    end = Nanoseconds(300 * SECOND)
    write_end(tmp_path, replace(_changed(joined), end=end, ended=RunEnd.COMPLETED))
    before, after = read_life(tmp_path, [])
    assert (before.begin, before.end, before.ended) == (FIRST.begin, lost.noticed, RunEnd.FAILED)
    assert (before.cause, before.machines) == ("a machine was lost", ("b",))
    assert (after.submitted, after.begin, after.end) == (lost.noticed, joined.joined, end)
    assert (after.rung, after.ended, after.cause) == (Rung.REPLACE, RunEnd.COMPLETED, "")


def test_spare_lost_before_it_has_its_rank_ends_a_run_of_its_own(tmp_path: Path) -> None:
    first, second = (Loss(name, Nanoseconds(t * SECOND)) for name, t in (("b", 150), ("c", 160)))
    joined = replace(second, joined=Nanoseconds(170 * SECOND))
    write_start(tmp_path, FIRST)
    end = Nanoseconds(300 * SECOND)
    write_change(tmp_path, "join", _changed(first, joined))
    write_end(tmp_path, replace(_changed(first, joined), end=end, ended=RunEnd.COMPLETED))
    spans = [(run.begin // SECOND, run.end // SECOND) for run in read_life(tmp_path, [])]
    assert spans == [(100, 150), (150, 160), (170, 300)]
