"""The loop on a machine whose clock is wrong: it only observes, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.pipelines.incidents.loop.test_responder import START, Room, room

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.response.state.action import ActionState
from forewarn.response.state.decision import Ruling
from forewarn.response.state.incident import IncidentState
from forewarn.response.state.machine import ServiceState
from forewarn.response.state.step import DrainMode

__all__ = ["room"]


def jump(room: Room, by: int) -> None:
    """Let our clock jump, and not that of the scheduler."""
    room.clock.at = Nanoseconds(room.clock.at + by)


def warnings_of(room: Room) -> list[str]:
    words: list[str] = []
    room.responder.warn = lambda _about, text: words.append(text)
    return words


@pytest.fixture
def deadline(room: Room) -> Room:
    """A machine with a job that is drained until tomorrow, and another job is told so."""
    room.driver.machines["m0"] = replace(room.driver.machines["m0"], jobs=("17",))
    room.notice("xid 79")
    room.once(20)
    assert [a.mode for i in room.ledger.incidents() for a in i.actions] == [DrainMode.DEADLINE]
    return room


@pytest.mark.parametrize("by", [25 * HOUR, 8 * DAY, 400 * DAY, 6 * MINUTE, -6 * MINUTE, -2 * DAY])
def test_a_clock_that_jumps_does_nothing_to_a_machine_and_says_so(deadline: Room, by: int) -> None:
    words, told = warnings_of(deadline), list(deadline.driver.told)
    deadline.notice("xid 95", "m5")
    before = deadline.ledger.last_heartbeat("loop")
    jump(deadline, by)
    for _ in range(3):
        decided = deadline.responder.once()
        assert {d.decision.ruling for d in decided} == {Ruling.OBSERVE}
        assert all("the local clock is " in d.decision.reason for d in decided)
    assert deadline.driver.told == told
    assert deadline.ledger.last_heartbeat("loop") == before
    assert len(words) == 1  # once, until it changes or is over
    assert {i.state for i in deadline.ledger.incidents()} == {IncidentState.OPEN}
    jump(deadline, -by)
    deadline.once(20)
    assert deadline.state("m5") is not ServiceState.IN_SERVICE
    assert "evict 17" not in deadline.driver.told
    deadline.once(25 * 60)
    assert "evict 17" in deadline.driver.told


def test_findings_wait_for_a_clock_that_is_right(room: Room) -> None:
    jump(room, 25 * HOUR)
    room.driver.set("m3", ServiceState.DRAINED, "Tom: cable")
    room.responder.once()
    assert room.ledger.incidents() == []
    jump(room, -25 * HOUR)
    room.once(1)
    assert [i.machine for i in room.ledger.incidents()] == ["m3"]
    assert room.ledger.incidents()[0].opened_at == room.clock.at


def test_without_a_second_clock_nothing_goes_beyond_a_drain_that_lets_jobs_run_out(
    room: Room,
) -> None:
    room.driver.tells = False
    room.driver.machines["m0"] = replace(room.driver.machines["m0"], jobs=("17",))
    room.notice("xid 79")
    for _ in range(5):
        room.once(4)
    (action,) = (a for i in room.ledger.incidents() for a in i.actions if a.step.isolates)
    assert (action.step, action.mode) == ("drain", DrainMode.FINISH)
    Operator(room.ledger, "ann", room.clock.at, "now!").drain("m5", DrainMode.NOW)
    decided = {d.incident.machine: d.decision for d in room.once(1)}
    assert "ends jobs, and no second clock confirms the local one" in decided["m5"].reason
    assert room.state("m5") is ServiceState.IN_SERVICE


def test_a_deadline_that_was_set_before_ends_no_job_without_a_second_clock(deadline: Room) -> None:
    deadline.driver.tells = False
    for minutes in (1, 25 * 60, 1, 1):
        deadline.once(minutes)
    assert "evict 17" not in deadline.driver.told
    deadline.driver.tells = True
    deadline.once(1)
    assert "evict 17" in deadline.driver.told


def test_without_a_second_clock_the_call_after_a_pause_only_observes(room: Room) -> None:
    room.driver.tells = False
    words = warnings_of(room)
    room.notice("xid 79")
    (decided,) = room.once(20)
    assert decided.decision.ruling is Ruling.OBSERVE
    assert "the last call of the loop is long ago by the local clock" in decided.decision.reason
    assert words[-1] == decided.decision.reason.rpartition("observed only: ")[2]
    room.once(1)
    assert room.state() is not ServiceState.IN_SERVICE


@pytest.mark.parametrize("behind", [0, 3 * HOUR, 8 * DAY])
def test_an_undo_by_a_machine_whose_clock_is_behind_holds_for_a_week(
    deadline: Room, behind: int
) -> None:
    (incident,) = deadline.ledger.incidents()
    wrong = Nanoseconds(deadline.clock.at - behind)
    assert Operator(deadline.ledger, "ann", wrong, "it is fine").undo(incident.id)
    deadline.once(1)
    deadline.once(1)
    deadline.notice("xid 79")
    for _ in range(5):
        deadline.once(10)
    assert deadline.state() is ServiceState.IN_SERVICE
    assert ActionState.RELEASED in deadline.actions()


def test_an_incident_opened_by_a_clock_that_is_ahead_waits_no_longer_than_others(
    room: Room,
) -> None:
    at = room.clock.at
    room.clock.at = Nanoseconds(at + 3 * DAY)  # of the host with the API
    room.notice("xid 79", at=at, valid_until=Nanoseconds(at + DAY))
    room.clock.at = at
    room.once(20)
    assert room.state() is not ServiceState.IN_SERVICE


def test_a_database_that_tells_another_time_is_believed_as_much(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: Callable[[object], int] = lambda _: START + 40 * DAY  # noqa: E731
    monkeypatch.setattr(type(room.ledger.database), "clock", clock)
    room.notice("xid 79")
    (decided,) = room.once(20)
    assert decided.decision.ruling is Ruling.OBSERVE
    assert "behind that of the database" in decided.decision.reason
