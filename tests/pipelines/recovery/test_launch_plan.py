"""What follows an attempt of a launched job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.recovery.launch_plan import (
    NextAttempt,
    Stop,
    next_attempt,
    replaced_within,
    resubmitted,
)
from forewarn.pipelines.recovery.launch_record import Attempt, Loss
from forewarn.pipelines.recovery.launch_table import LaunchTable
from forewarn.response.recovery.job_run import RunEnd
from forewarn.response.state.rung import Rung

TABLE = LaunchTable(
    hosts=("n[0-4]",), nodes=4, processes=8, program=("t.py",), folder=Path("j"), unit=2, minimum=2
)


def _attempt(
    number: int, machines: str = "n0 n1 n2 n3", *, rung: Rung | None = None, out: str = ""
) -> Attempt:
    return Attempt(
        number=number,
        begin=Nanoseconds(number * HOUR),
        submitted=None,
        rung=rung,
        machines=tuple(machines.split()),
        processes=8,
        reason="",
        out=tuple(out.split()),
    )


def _failed(attempt: Attempt, origin: str, blamed: str = "", cause: str = "x") -> Attempt:
    return replace(
        attempt,
        end=Nanoseconds(attempt.begin + HOUR // 2),
        ended=RunEnd.FAILED,
        cause=cause,
        blamed=blamed,
        origin=origin,
        is_started=True,
    )


def _next(*attempts: Attempt, table: LaunchTable = TABLE) -> NextAttempt:
    following = next_attempt(table, attempts)
    assert isinstance(following, NextAttempt)
    return following


@pytest.mark.parametrize("origin", ["explicit", "implicit"])
def test_spare_takes_the_rank_of_the_blamed_machine(origin: str) -> None:
    following = _next(_failed(_attempt(1), origin, "n1"))
    assert following.rung is Rung.REPLACE
    assert following.machines == ("n0", "n4", "n2", "n3")
    assert following.out == ("n1",)


def test_without_a_spare_the_job_shrinks_by_its_unit_and_later_waits() -> None:
    first = _failed(_attempt(1, "n0 n4 n2 n3", out="n1"), "explicit", "n3")
    following = _next(first)
    assert following.machines == ("n0", "n4")
    smaller = _attempt(2, "n0 n4", rung=Rung.REPLACE, out="n1 n3")
    following = _next(first, _failed(smaller, "explicit", "n0", cause="y"))
    assert following.machines == ("n2", "n4")  # the machine that waited is a spare
    last = _attempt(3, "n2 n4", rung=Rung.REPLACE, out="n0 n1 n3")
    assert _next(first, _failed(last, "explicit", "n4", cause="z")).machines == ()


def test_smaller_job_grows_with_a_new_host() -> None:
    table = TABLE.model_copy(update={"hosts": (*TABLE.hosts, "n5")})
    smaller = _attempt(2, "n0 n4", rung=Rung.REPLACE, out="n1 n3")
    assert _next(_failed(smaller, "not_one"), table=table).machines == ("n0", "n4", "n2", "n5")


def test_unknown_cause_restarts_in_place_until_no_retry_is_left() -> None:
    attempts = [_failed(_attempt(1), "not_one")]
    while isinstance(following := next_attempt(TABLE, attempts), NextAttempt):
        assert following.rung is Rung.RESTART
        assert following.machines == attempts[0].machines
        number = len(attempts) + 1
        attempts.append(_failed(_attempt(number, rung=Rung.RESTART), "not_one"))
    assert len(attempts) == 4  # three restarts
    assert not following.is_resubmission
    assert "no retry is left" in following.reason
    assert resubmitted(TABLE, attempts).rung is Rung.RESUBMIT


def test_saved_progress_gives_a_retry_back() -> None:
    attempts = [replace(_failed(_attempt(1), "not_one"), saved=100)]
    for number in range(2, 8):
        attempt = _failed(_attempt(number, rung=Rung.RESTART), "not_one")
        attempts.append(replace(attempt, saved=100 * number))
    assert _next(*attempts).rung is Rung.RESTART


def test_attempt_without_a_step_leads_to_a_new_submission() -> None:
    first = _failed(_attempt(1), "not_one")
    second = _failed(_attempt(2, rung=Rung.RESTART), "not_one")
    following = next_attempt(TABLE, [first, replace(second, is_started=False)])
    assert isinstance(following, Stop)
    assert following.is_resubmission


def test_same_cause_on_another_machine_is_that_of_the_program() -> None:
    first = _failed(_attempt(1), "implicit", "n1")
    second = _attempt(2, "n0 n4 n2 n3", rung=Rung.REPLACE, out="n1")
    following = _next(first, _failed(second, "implicit", "n4"))
    assert following.rung is Rung.RESTART
    assert following.machines == second.machines


def test_killed_launcher_goes_on_in_place() -> None:
    last = replace(_attempt(1, out="n4"), ended=RunEnd.FAILED, end=Nanoseconds(2 * HOUR))
    following = _next(last)
    assert (following.rung, following.machines) == (Rung.RESTART, last.machines)
    assert following.out == ("n4",)


@pytest.mark.parametrize("rung", [Rung.REPLACE, Rung.RESTART])
def test_rung_whose_launcher_was_killed_goes_on_and_counts_once(rung: Rung) -> None:
    origin = ("implicit", "n1") if rung is Rung.REPLACE else ("not_one", "")
    crashed = _failed(_attempt(1), *origin)
    killed = [
        replace(
            _attempt(number, "n0 n4 n2 n3", rung=rung, out=origin[1]),
            ended=RunEnd.FAILED,
            end=Nanoseconds(number * HOUR + 1),
        )
        for number in range(2, 8)
    ]
    following = _next(crashed, *killed)
    assert (following.rung, following.machines) == (rung, killed[-1].machines)
    last = _failed(_attempt(8, "n0 n4 n2 n3", rung=rung, out=origin[1]), "not_one")
    assert _next(crashed, *killed, last).rung is Rung.RESTART


def test_stopped_attempt_that_made_steps_ends_the_crash() -> None:
    crashed = _failed(_attempt(1), "not_one")
    stopped = replace(
        _attempt(2, rung=Rung.RESTART),
        end=Nanoseconds(2 * HOUR + HOUR // 2),
        ended=RunEnd.STOPPED,
        is_started=True,
    )
    broken = replace(_failed(_attempt(3, rung=Rung.RESTART), "not_one"), is_started=False)
    assert _next(crashed, stopped, broken).rung is Rung.RESTART


def test_spare_takes_a_rank_within_the_attempt_under_dlrover_alone() -> None:
    table = TABLE.model_copy(update={"launcher": "dlrover"})
    at = Nanoseconds(HOUR)
    changed = replaced_within(table, _attempt(1), "n2", at)
    assert changed is not None
    assert (changed.machines, changed.out) == (("n0", "n1", "n4", "n3"), ("n2",))
    assert changed.losses == (Loss("n2", at),)
    assert replaced_within(table, changed, "n1", at) is None  # no further spare
    assert replaced_within(TABLE, _attempt(1), "n2", at) is None
