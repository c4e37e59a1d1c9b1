from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.responder import LoopDecision, Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.scheduled_tasks import respond_site
from forewarn.pipelines.storage.registry.drift_report import read_drift, write_drift
from forewarn.response.state.action import ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import IncidentState, Outcome
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.step import Step

START = Nanoseconds(1_740_787_200 * SECOND)  # 2025-03-01
CONFIG = """
[respond]
driver = "slurm"
first_day = "1min"
[respond.pools.train]
mode = "{mode}"
share = 0.5
rack = 4
"""


@dataclass(slots=True)
class FixedClock:
    at: Nanoseconds

    def now(self) -> int:
        return self.at

    def wait(self, seconds: float, until: object) -> bool:
        raise AssertionError(f"nothing waits here, {seconds} s for {until}")


@dataclass(slots=True)
class Room:
    """A responder, and the world that it sees."""

    responder: Responder
    driver: MemoryDriver
    clock: FixedClock
    ledger: Ledger

    def once(self, minutes: float = 0) -> list[LoopDecision]:
        """Let some minutes pass, and call the loop."""
        self.clock.at = Nanoseconds(int(self.clock.at + minutes * MINUTE))
        self.driver.now = self.clock.at
        return self.responder.once()

    def notice(self, cause: str, machine: str = "m0", **more: object) -> None:
        kind = FindingKind.XID if cause.startswith("xid") else FindingKind.AT_RISK
        values: dict[str, object] = {
            "source": "test",
            "id": f"{cause} {machine} {self.clock.at}",
            "kind": kind,
            "cause": cause,
            "machine": machine,
            "gpu_serial": f"GPU of {machine}",
            "at": self.clock.at,
            "valid_until": Nanoseconds(self.clock.at + DAY),
        }
        finding = Finding(**(values | more))  # type: ignore[arg-type]
        self.ledger.record_findings([finding], now=self.clock.at)

    def state(self, machine: str = "m0") -> ServiceState:
        return self.driver.machines[machine].state

    def actions(self) -> list[ActionState]:
        return [a.state for i in self.ledger.incidents() for a in i.actions]


def _room(folder: Path, mode: str) -> Room:
    config = folder / "my.toml"
    config.write_text(CONFIG.format(mode=mode))
    site = ResponseSite.from_config(config)
    in_service = ServiceState.IN_SERVICE
    machines = {
        f"m{i}": Machine(f"m{i}", in_service, gpus=8, pool="train", rack=f"r{i // 4}", boot="1")
        for i in range(8)
    }
    driver, clock = MemoryDriver(machines, START), FixedClock(START)
    ledger = site.new_ledger()
    room = Room(Responder(site, ledger, site.policy(), driver, clock), driver, clock, ledger)
    room.once()
    room.once(5)  # the first day of the policy, which is a minute here, is over
    return room


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = _room(tmp_path, "act")
    with room.ledger:
        yield room


def test_a_gpu_that_fell_off_the_bus_takes_its_machine_out_and_the_jobs_are_told(
    room: Room,
) -> None:
    room.driver.machines["m0"] = Machine(
        "m0", ServiceState.IN_SERVICE, gpus=8, pool="train", rack="r0", boot="1", jobs=("17",)
    )
    room.notice("xid 79")
    room.once(20)
    assert room.state() is ServiceState.DRAINING
    assert room.driver.machines["m0"].action == 1
    assert "notify 17" in room.driver.told
    room.driver.end_jobs("m0")
    room.once(1)
    assert room.actions() == [ActionState.DRAINED]
    told = list(room.driver.told)
    room.once(1)
    assert room.driver.told == told  # once done, nothing is asked for again


def test_in_mode_observe_nothing_is_touched_and_the_ledger_says_what_would_be(
    tmp_path: Path,
) -> None:
    room = _room(tmp_path, "observe")
    with room.ledger:
        room.notice("xid 79")
        (decided,) = room.once(20)
        assert decided.decision.ruling is Ruling.OBSERVE
        assert decided.decision.step.isolates
        assert "mode observe" in decided.decision.reason
        assert room.driver.told == []


def test_what_is_proposed_is_done_once_a_person_approves(tmp_path: Path) -> None:
    room = _room(tmp_path, "propose")
    with room.ledger:
        room.notice("xid 79")
        (decided,) = room.once(20)
        assert decided.decision.ruling is Ruling.PROPOSE
        Operator(room.ledger, "ann", room.clock.at).approve(decided.incident.id)
        (decided,) = room.once(1)
        assert (decided.decision.ruling, decided.decision.who) == (Ruling.ACT, "ann")
        assert room.state().value == "drained"


def test_a_person_may_drain_and_take_it_back_and_the_cause_rests(room: Room) -> None:
    person = Operator(room.ledger, "ann", room.clock.at, "fan is loud")
    number, _ = person.drain("m3")
    room.once(1)
    assert room.state("m3") is ServiceState.DRAINED
    assert room.driver.machines["m3"].reason.endswith("by hand: fan is loud")
    Operator(room.ledger, "ann", room.clock.at).undo(number)
    room.once(1)
    room.once(1)
    assert room.state("m3") is ServiceState.IN_SERVICE
    assert room.actions() == [ActionState.RELEASED]
    incident = room.ledger.incident(number)
    assert incident is not None
    assert incident.state is IncidentState.OVERRIDDEN


def test_whoever_undoes_us_wins_and_the_same_cause_does_not_act_there_again(room: Room) -> None:
    room.notice("xid 79")
    room.once(20)
    room.driver.set("m0", ServiceState.IN_SERVICE)
    room.once(1)
    assert room.actions() == [ActionState.OVERRIDDEN]
    room.notice("xid 79")
    room.once(20)
    assert room.state() is ServiceState.IN_SERVICE


def test_a_drain_that_a_new_controller_has_forgotten_is_set_once_more(room: Room) -> None:
    room.notice("xid 79")
    room.once(20)
    for _ in range(2):
        room.driver.controller += ", again"
        room.driver.set("m0", ServiceState.IN_SERVICE)
        room.once(1)
        room.once(1)
    assert room.driver.told.count(f"{_step(room)} m0") == 2
    assert room.actions() == [ActionState.OVERRIDDEN]


def _step(room: Room) -> Step:
    return room.ledger.incidents()[0].actions[0].step


def test_an_answer_that_was_lost_after_the_deed_is_read_back(room: Room) -> None:
    room.driver.silent = True
    room.notice("xid 79")
    room.once(20)
    room.once(1)
    assert room.actions() == [ActionState.DRAINED]
    assert room.driver.told.count(f"{_step(room)} m0") == 1


def test_jobs_are_told_once_although_the_answer_was_lost_after_the_deed(room: Room) -> None:
    room.driver.machines["m0"] = replace(room.driver.machines["m0"], jobs=("17",))
    room.driver.silent = True
    room.notice("xid 79")
    room.once(20)
    room.once(1)
    assert room.driver.told.count("notify 17") == 1


def test_jobs_are_told_of_what_was_written_before_we_were_ended(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.driver.machines["m0"] = replace(room.driver.machines["m0"], jobs=("17",))
    room.notice("xid 79")
    with monkeypatch.context() as patched:
        patched.setattr(
            "forewarn.pipelines.incidents.loop.responder.start_action", lambda *_, **__: None
        )
        room.once(20)  # the follow-up of this very call sends it
    room.once(1)
    assert room.state() is ServiceState.DRAINING
    assert room.driver.told.count("notify 17") == 1


def test_a_foreign_drain_is_left_alone_and_becomes_an_incident(room: Room) -> None:
    room.driver.set("m0", ServiceState.DRAINED, "bob: replacing a fan")
    room.notice("xid 79")
    decided = room.once(20)
    assert room.driver.told == []
    assert room.driver.machines["m0"].reason == "bob: replacing a fan"
    causes = {f.cause for item in decided for f in item.incident.findings}
    assert causes == {"xid 79", "foreign drain"}


def test_what_was_known_before_others_gave_a_machine_back_needs_fresh_evidence(room: Room) -> None:
    room.notice("xid 79")
    room.driver.set("m0", ServiceState.DRAINED, "bob: new GPU")
    room.once(1)
    room.driver.set("m0", ServiceState.IN_SERVICE)
    room.once(20)
    room.once(20)
    assert room.driver.told == []
    reasons = [i.decision.reason for i in room.ledger.open_incidents() if i.decision]
    assert any("before somebody else gave m0 back" in reason for reason in reasons)
    room.notice("xid 79")
    room.once(20)
    assert room.state() is ServiceState.DRAINED


def test_a_machine_that_was_down_and_came_back_by_itself_was_looked_at_by_nobody(
    room: Room,
) -> None:
    room.notice("xid 79")
    room.driver.set("m0", ServiceState.DOWN, "Not responding")
    room.once(1)
    room.driver.set("m0", ServiceState.IN_SERVICE)
    room.once(20)
    assert room.state() is ServiceState.DRAINED


def test_the_kill_switch_stops_what_is_new_and_releases_go_on(room: Room) -> None:
    room.notice("xid 79", "m0")
    room.once(20)
    number = room.ledger.incidents()[0].id
    room.responder.site.switch(room.ledger).stop(now=room.clock.at, who="ann", why="fire")
    room.notice("xid 79", "m1")
    Operator(room.ledger, "ann", room.clock.at).undo(number)
    room.once(20)
    room.once(1)
    assert (room.state("m0"), room.state("m1")) == (
        ServiceState.IN_SERVICE,
        ServiceState.IN_SERVICE,
    )


def test_one_crash_on_many_machines_is_one_incident_and_drains_nothing(room: Room) -> None:
    for i in range(8):
        room.notice("xid 74", f"m{i}", job="17")
    for _ in range(30):
        room.once(1)
    assert room.driver.told == []
    assert [i.shared for i in room.ledger.open_incidents() if i.shared] == ["job 17"]


def test_a_prediction_that_did_not_come_true_gives_the_machine_back(room: Room) -> None:
    room.notice("at_risk", evidence={"probability": 0.9}, model_version="1")
    for _ in range(30):
        room.once(60)
    assert room.state() is ServiceState.IN_SERVICE
    assert not room.driver.machines["m0"].avoided


def test_a_prediction_in_service_that_did_not_come_true_counts_against_us(tmp_path: Path) -> None:
    room = _room(tmp_path, "observe")
    with room.ledger:
        room.driver.machines["m0"] = Machine(
            "m0", ServiceState.IN_SERVICE, gpus=8, pool="train", rack="r0", boot="1", jobs=("17",)
        )
        room.notice("at_risk", evidence={"probability": 0.9}, model_version="1")
        for _ in range(int(3 * DAY / HOUR) * 2):
            room.once(30)
        (incident,) = room.ledger.incidents()
        assert incident.outcome is Outcome.NOT_CONFIRMED
        assert incident.state is IncidentState.CLOSED


def test_two_responders_beside_each_other_drain_once(room: Room) -> None:
    other = Responder(
        room.responder.site,
        room.ledger,
        room.responder.policy,
        room.driver,
        room.clock,
    )
    room.notice("xid 79")
    room.once(20)
    other.once()
    assert room.driver.told.count(f"{_step(room)} m0") == 1
    assert len(room.actions()) == 1


def test_a_scheduler_that_is_away_loses_no_finding(tmp_path: Path) -> None:
    verdicts = tmp_path / "verdicts.jsonl"
    config = tmp_path / "my.toml"
    config.write_text('[respond]\nverdicts = "verdicts.jsonl"\n')
    verdicts.write_text(
        '{"task": "j", "machine": "m1", "metric": "x", "score": 2.0, "also": [], "kind": "fault",'
        ' "since": "2025-03-01T00:00:00Z", "detected_at": "2025-03-01T00:00:00Z"}\n'
    )
    site = ResponseSite.from_config(config)
    with site.ledger() as ledger:
        responder = Responder(site, ledger, site.policy(), None, FixedClock(START))
        (decided,) = responder.once()
        assert decided.decision.ruling is Ruling.OBSERVE
        (again,) = responder.once()
        assert not again.new
        (finding,) = again.incident.findings
        assert finding.count == 1  # read twice, said once


def test_a_mark_that_turns_up_after_its_action_has_ended_is_taken_off(room: Room) -> None:
    room.notice("xid 79")
    room.once(20)
    number = room.ledger.incidents()[0].id
    Operator(room.ledger, "ann", room.clock.at).undo(number)
    room.once(1)
    room.once(1)
    room.driver.set("m0", ServiceState.DRAINED, "forewarn:1 late")  # a controller that was slow
    room.once(1)
    assert room.state() is ServiceState.IN_SERVICE


def test_a_scheduled_task_decides_as_the_command_does(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text("")
    assert respond_site(str(config)) == []
    with ResponseSite.from_config(config).ledger() as ledger:
        finding = Finding("nhc", "1", FindingKind.REPORT, "fan", "m1", START, Nanoseconds(2**61))
        ledger.record_findings([finding], now=START)
    (line,) = respond_site(str(config))
    assert (line["machine"], line["finding"], line["ruling"]) == ("m1", "fan", "hold")
    assert respond_site(str(config)) == []  # nothing new


def test_in_a_storm_a_person_drains_the_machine_that_was_named_and_no_other(room: Room) -> None:
    for i in range(3):
        room.notice("xid 79", f"m{i}", gpu_serial=None, job="17")
    room.once(1)
    Operator(room.ledger, "ann", room.clock.at).drain("m2")
    room.once(1)
    assert [room.state(f"m{i}") for i in range(3)] == [
        ServiceState.IN_SERVICE,
        ServiceState.IN_SERVICE,
        ServiceState.DRAINED,
    ]


def test_a_switch_that_is_turned_while_the_loop_decides_counts_at_once(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = room.responder.site.switch(None)
    plain = room.ledger.decide

    def turned(decision: Decision) -> bool:
        stop.mark("ann", "fire")
        return plain(decision)

    monkeypatch.setattr(room.ledger, "decide", turned)
    room.notice("xid 79")
    room.once(20)
    assert room.driver.told == []
    (incident,) = room.ledger.open_incidents()
    assert incident.decision is not None
    assert "kill switch" in incident.decision.reason


def test_an_override_that_is_cut_off_half_way_is_no_less_an_override(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.notice("xid 79")
    room.once(20)
    room.driver.set("m0", ServiceState.IN_SERVICE)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(room.ledger, "advance", killed)
        with pytest.raises(KeyboardInterrupt):
            room.once(1)
    for _ in range(2):
        room.once(1)
    assert room.ledger.incidents()[-1].state is IncidentState.OVERRIDDEN
    assert room.actions() == [ActionState.OVERRIDDEN]
    assert room.state() is ServiceState.IN_SERVICE


def test_drifted_inputs_hold_back_what_nothing_but_a_model_says(tmp_path: Path) -> None:
    room = _room(tmp_path, "act")
    with room.ledger:
        room.responder.site.records.mkdir()
        write_drift(room.responder.site.records, START, ["power_draw"])
        room.notice("at_risk", "m0", evidence={"probability": 0.9})
        room.notice("xid 79", "m5")
        decided = {item.incident.machine: item.decision for item in room.once(20)}
        assert decided["m0"].ruling is Ruling.OBSERVE
        assert "drifted: power_draw" in decided["m0"].reason
        assert decided["m5"].ruling is Ruling.ACT
        # A retraining as of an earlier moment knows less; the next one lifts the brake.
        write_drift(room.responder.site.records, Nanoseconds(START - DAY), [])
        assert read_drift(room.responder.site.records).drifted == ("power_draw",)
        write_drift(room.responder.site.records, Nanoseconds(START + DAY), [])
        decided = {item.incident.machine: item.decision for item in room.once(1)}
        assert decided["m0"].ruling is Ruling.ACT


def test_a_report_of_drift_that_cannot_be_read_is_no_good_news(tmp_path: Path) -> None:
    assert read_drift(tmp_path).drifted == ()
    (tmp_path / "drift.json").write_text("nonsense")
    assert read_drift(tmp_path).drifted == ("drift.json cannot be read",)
    write_drift(tmp_path, START, [])
    assert read_drift(tmp_path).drifted == ()


def test_an_alert_is_raised_once_by_whichever_call_until_it_has_been_over(room: Room) -> None:
    alerts: list[str] = []
    lists = room.responder.site.lists
    lists.mkdir()

    def call() -> list[str]:
        alerts.clear()
        parts = (room.responder.site, room.ledger, room.responder.policy, room.driver, room.clock)
        Responder(*parts, warn=lambda _, words: alerts.append(words)).once()  # as a new process
        return alerts

    assert call() == ["no list came so far"]
    assert call() == []
    lists.rmdir()  # nobody makes lists any more
    assert call() == []
    lists.mkdir()
    assert call() == ["no list came so far"]
