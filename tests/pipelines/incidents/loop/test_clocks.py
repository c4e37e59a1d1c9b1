"""Tests of the loop with a wrong clock: it only observes and raises an alert."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.pipelines.incidents.loop.test_responder import START, Rig, rig

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.response.state.action import ActionState
from forewarn.response.state.decision import Ruling
from forewarn.response.state.incident import IncidentState
from forewarn.response.state.machine import ServiceState
from forewarn.response.state.step import DrainMode

__all__ = ["rig"]


def jump(rig: Rig, by: int) -> None:
    """Move the clock of the loop, not that of the scheduler."""
    rig.clock.at = Nanoseconds(rig.clock.at + by)


def collect_alerts(rig: Rig) -> list[str]:
    alerts: list[str] = []
    rig.responder.warn = lambda _subject, text: alerts.append(text)
    return alerts


@pytest.fixture
def deadline(rig: Rig) -> Rig:
    """Return a rig with a machine that is drained with a deadline of a day."""
    rig.driver.machines["m0"] = replace(rig.driver.machines["m0"], jobs=("17",))
    rig.report("xid 79")
    rig.once(20)
    assert [a.mode for i in rig.ledger.incidents() for a in i.actions] == [DrainMode.DEADLINE]
    return rig


@pytest.mark.parametrize("by", [25 * HOUR, 8 * DAY, 400 * DAY, 6 * MINUTE, -6 * MINUTE, -2 * DAY])
def test_clock_jump_causes_only_one_alert(deadline: Rig, by: int) -> None:
    alerts, calls = collect_alerts(deadline), list(deadline.driver.calls)
    deadline.report("xid 95", "m5")
    before = deadline.ledger.last_heartbeat("loop")
    jump(deadline, by)
    for _ in range(3):
        decided = deadline.responder.once()
        assert {d.decision.ruling for d in decided} == {Ruling.OBSERVE}
        assert all("the local clock is " in d.decision.reason for d in decided)
    assert deadline.driver.calls == calls
    assert deadline.ledger.last_heartbeat("loop") == before
    assert len(alerts) == 1  # once, until it changes or ends
    assert {i.state for i in deadline.ledger.incidents()} == {IncidentState.OPEN}
    jump(deadline, -by)
    deadline.once(20)
    assert deadline.state("m5") is not ServiceState.IN_SERVICE
    assert "evict 17" not in deadline.driver.calls
    deadline.once(25 * 60)
    assert "evict 17" in deadline.driver.calls


def test_findings_wait_for_a_correct_clock(rig: Rig) -> None:
    jump(rig, 25 * HOUR)
    rig.driver.set("m3", ServiceState.DRAINED, "Tom: cable")
    rig.responder.once()
    assert rig.ledger.incidents() == []
    jump(rig, -25 * HOUR)
    rig.once(1)
    assert [i.machine for i in rig.ledger.incidents()] == ["m3"]
    assert rig.ledger.incidents()[0].opened_at == rig.clock.at


def test_only_finish_drains_without_second_clock(
    rig: Rig,
) -> None:
    rig.driver.reports_clock = False
    rig.driver.machines["m0"] = replace(rig.driver.machines["m0"], jobs=("17",))
    rig.report("xid 79")
    for _ in range(5):
        rig.once(4)
    (action,) = (a for i in rig.ledger.incidents() for a in i.actions if a.step.isolates)
    assert (action.step, action.mode) == ("drain", DrainMode.FINISH)
    Operator(rig.ledger, "ann", rig.clock.at, "now!").drain("m5", DrainMode.NOW)
    decided = {d.incident.machine: d.decision for d in rig.once(1)}
    assert "ends jobs, and no second clock confirms the local one" in decided["m5"].reason
    assert rig.state("m5") is ServiceState.IN_SERVICE


def test_deadline_evicts_no_job_without_second_clock(deadline: Rig) -> None:
    deadline.driver.reports_clock = False
    for minutes in (1, 25 * 60, 1, 1):
        deadline.once(minutes)
    assert "evict 17" not in deadline.driver.calls
    deadline.driver.reports_clock = True
    deadline.once(1)
    assert "evict 17" in deadline.driver.calls


def test_call_after_pause_observes_without_second_clock(rig: Rig) -> None:
    rig.driver.reports_clock = False
    alerts = collect_alerts(rig)
    rig.report("xid 79")
    (decided,) = rig.once(20)
    assert decided.decision.ruling is Ruling.OBSERVE
    assert "the last call of the loop is long ago by the local clock" in decided.decision.reason
    assert alerts[-1] == decided.decision.reason.rpartition("observed only: ")[2]
    rig.once(1)
    assert rig.state() is not ServiceState.IN_SERVICE


@pytest.mark.parametrize("behind", [0, 3 * HOUR, 8 * DAY])
def test_undo_by_late_clock_lasts_a_week(deadline: Rig, behind: int) -> None:
    (incident,) = deadline.ledger.incidents()
    wrong = Nanoseconds(deadline.clock.at - behind)
    assert Operator(deadline.ledger, "ann", wrong, "it is fine").undo(incident.id)
    deadline.once(1)
    deadline.once(1)
    deadline.report("xid 79")
    for _ in range(5):
        deadline.once(10)
    assert deadline.state() is ServiceState.IN_SERVICE
    assert ActionState.RELEASED in deadline.actions()


def test_early_clock_does_not_prolong_group_wait(
    rig: Rig,
) -> None:
    at = rig.clock.at
    rig.clock.at = Nanoseconds(at + 3 * DAY)  # clock of the API's host
    rig.report("xid 79", at=at, valid_until=Nanoseconds(at + DAY))
    rig.clock.at = at
    rig.once(20)
    assert rig.state() is not ServiceState.IN_SERVICE


def test_database_clock_counts_as_second_clock(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Callable[[object], int] = lambda _: START + 40 * DAY  # noqa: E731
    monkeypatch.setattr(type(rig.ledger.database), "clock", clock)
    rig.report("xid 79")
    (decided,) = rig.once(20)
    assert decided.decision.ruling is Ruling.OBSERVE
    assert "behind that of the database" in decided.decision.reason
