from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import event
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
class Rig:
    """A responder with its ledger, clock and scheduler."""

    responder: Responder
    driver: MemoryDriver
    clock: FixedClock
    ledger: Ledger

    def once(self, minutes: float = 0) -> list[LoopDecision]:
        """Advance the clock and run one round of the loop."""
        self.clock.at = Nanoseconds(int(self.clock.at + minutes * MINUTE))
        self.driver.now = self.clock.at
        return self.responder.once()

    def report(self, cause: str, machine: str = "m0", **more: object) -> None:
        kind = FindingKind.XID if cause.startswith("xid") else FindingKind.AT_RISK
        values: dict[str, object] = {
            "source": "test",
            "id": f"{cause} {machine} {self.clock.at}",
            "kind": kind,
            "cause": cause,
            "machine": machine,
            "gpu_serial": f"GPU-{machine}",
            "at": self.clock.at,
            "valid_until": Nanoseconds(self.clock.at + DAY),
        }
        finding = Finding(**(values | more))  # type: ignore[arg-type]
        self.ledger.record_findings([finding], now=self.clock.at)

    def state(self, machine: str = "m0") -> ServiceState:
        return self.driver.machines[machine].state

    def actions(self) -> list[ActionState]:
        return [a.state for i in self.ledger.incidents() for a in i.actions]


def make_rig(folder: Path, mode: str, text: str = CONFIG) -> Rig:
    config = folder / "my.toml"
    config.write_text(text.format(mode=mode))
    site = ResponseSite.from_config(config)
    in_service = ServiceState.IN_SERVICE
    machines = {
        f"m{i}": Machine(f"m{i}", in_service, gpus=8, pool="train", rack=f"r{i // 4}", boot="1")
        for i in range(8)
    }
    driver, clock = MemoryDriver(machines, START), FixedClock(START)
    ledger = site.new_ledger()
    rig = Rig(Responder(site, ledger, site.policy(), driver, clock), driver, clock, ledger)
    rig.once()
    rig.once(5)  # past the policy's first day, set to one minute here
    return rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = make_rig(tmp_path, "act")
    with rig.ledger:
        yield rig


def test_lost_gpu_drains_machine_and_notifies_jobs(
    rig: Rig,
) -> None:
    rig.driver.machines["m0"] = Machine(
        "m0", ServiceState.IN_SERVICE, gpus=8, pool="train", rack="r0", boot="1", jobs=("17",)
    )
    rig.report("xid 79")
    rig.once(20)
    assert rig.state() is ServiceState.DRAINING
    assert rig.driver.machines["m0"].action == 1
    assert "notify 17" in rig.driver.calls
    rig.driver.end_jobs("m0")
    rig.once(1)
    assert rig.actions() == [ActionState.DRAINED]
    calls = list(rig.driver.calls)
    rig.once(1)
    assert rig.driver.calls == calls  # no repeated calls


def test_observe_mode_records_decisions_only(
    tmp_path: Path,
) -> None:
    rig = make_rig(tmp_path, "observe")
    with rig.ledger:
        rig.report("xid 79")
        (decided,) = rig.once(20)
        assert decided.decision.ruling is Ruling.OBSERVE
        assert decided.decision.step.isolates
        assert "mode observe" in decided.decision.reason
        assert rig.driver.calls == []


def test_approved_proposal_is_carried_out(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, "propose")
    with rig.ledger:
        rig.report("xid 79")
        (decided,) = rig.once(20)
        assert decided.decision.ruling is Ruling.PROPOSE
        Operator(rig.ledger, "ann", rig.clock.at).approve(decided.incident.id)
        (decided,) = rig.once(1)
        assert (decided.decision.ruling, decided.decision.who) == (Ruling.ACT, "ann")
        assert rig.state().value == "drained"


def test_manual_drain_can_be_undone(rig: Rig) -> None:
    person = Operator(rig.ledger, "ann", rig.clock.at, "fan is loud")
    number, _ = person.drain("m3")
    rig.once(1)
    assert rig.state("m3") is ServiceState.DRAINED
    assert rig.driver.machines["m3"].reason.endswith("by hand: fan is loud")
    Operator(rig.ledger, "ann", rig.clock.at).undo(number)
    rig.once(1)
    rig.once(1)
    assert rig.state("m3") is ServiceState.IN_SERVICE
    assert rig.actions() == [ActionState.RELEASED]
    incident = rig.ledger.incident(number)
    assert incident is not None
    assert incident.state is IncidentState.OVERRIDDEN


def test_manual_resume_overrides_the_cause(rig: Rig) -> None:
    rig.report("xid 79")
    rig.once(20)
    rig.driver.set("m0", ServiceState.IN_SERVICE)
    rig.once(1)
    assert rig.actions() == [ActionState.OVERRIDDEN]
    rig.report("xid 79")
    rig.once(20)
    assert rig.state() is ServiceState.IN_SERVICE


def test_drain_lost_by_controller_is_reapplied_once(rig: Rig) -> None:
    rig.report("xid 79")
    rig.once(20)
    for _ in range(2):
        rig.driver.controller += ", again"
        rig.driver.set("m0", ServiceState.IN_SERVICE)
        rig.once(1)
        rig.once(1)
    assert rig.driver.calls.count(f"{_first_step(rig)} m0") == 2
    assert rig.actions() == [ActionState.OVERRIDDEN]


def _first_step(rig: Rig) -> Step:
    return rig.ledger.incidents()[0].actions[0].step


def test_lost_answer_is_read_back(rig: Rig) -> None:
    rig.driver.silent = True
    rig.report("xid 79")
    rig.once(20)
    rig.once(1)
    assert rig.actions() == [ActionState.DRAINED]
    assert rig.driver.calls.count(f"{_first_step(rig)} m0") == 1


def test_jobs_are_notified_once_despite_lost_answer(rig: Rig) -> None:
    rig.driver.machines["m0"] = replace(rig.driver.machines["m0"], jobs=("17",))
    rig.driver.silent = True
    rig.report("xid 79")
    rig.once(20)
    rig.once(1)
    assert rig.driver.calls.count("notify 17") == 1


def test_jobs_are_notified_after_interrupted_round(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.driver.machines["m0"] = replace(rig.driver.machines["m0"], jobs=("17",))
    rig.report("xid 79")
    with monkeypatch.context() as patched:
        patched.setattr(
            "forewarn.pipelines.incidents.loop.responder.start_action", lambda *_, **__: None
        )
        rig.once(20)  # the follow-up of this round sends it
    rig.once(1)
    assert rig.state() is ServiceState.DRAINING
    assert rig.driver.calls.count("notify 17") == 1


def test_external_drain_becomes_incident_without_action(rig: Rig) -> None:
    rig.driver.set("m0", ServiceState.DRAINED, "bob: replacing a fan")
    rig.report("xid 79")
    decided = rig.once(20)
    assert rig.driver.calls == []
    assert rig.driver.machines["m0"].reason == "bob: replacing a fan"
    causes = {f.cause for item in decided for f in item.incident.findings}
    assert causes == {"xid 79", "foreign drain"}


def test_manual_return_requires_fresh_evidence(rig: Rig) -> None:
    rig.report("xid 79")
    rig.driver.set("m0", ServiceState.DRAINED, "bob: new GPU")
    rig.once(1)
    rig.driver.set("m0", ServiceState.IN_SERVICE)
    rig.once(20)
    rig.once(20)
    assert rig.driver.calls == []
    reasons = [i.decision.reason for i in rig.ledger.open_incidents() if i.decision]
    assert any("before m0 returned from an external drain" in reason for reason in reasons)
    rig.report("xid 79")
    rig.once(20)
    assert rig.state() is ServiceState.DRAINED


def test_recovered_down_machine_is_still_drained(
    rig: Rig,
) -> None:
    rig.report("xid 79")
    rig.driver.set("m0", ServiceState.DOWN, "Not responding")
    rig.once(1)
    rig.driver.set("m0", ServiceState.IN_SERVICE)
    rig.once(20)
    assert rig.state() is ServiceState.DRAINED


def test_kill_switch_blocks_actions_but_not_releases(rig: Rig) -> None:
    rig.report("xid 79", "m0")
    rig.once(20)
    number = rig.ledger.incidents()[0].id
    rig.responder.site.switch(rig.ledger).stop(now=rig.clock.at, who="ann", why="fire")
    rig.report("xid 79", "m1")
    Operator(rig.ledger, "ann", rig.clock.at).undo(number)
    rig.once(20)
    rig.once(1)
    assert (rig.state("m0"), rig.state("m1")) == (
        ServiceState.IN_SERVICE,
        ServiceState.IN_SERVICE,
    )


def test_event_on_many_machines_is_shared_incident(rig: Rig) -> None:
    for i in range(8):
        rig.report("xid 74", f"m{i}", job="17")
    for _ in range(30):
        rig.once(1)
    assert rig.driver.calls == []
    assert [i.shared for i in rig.ledger.open_incidents() if i.shared] == ["job 17"]


def test_unconfirmed_prediction_is_released(rig: Rig) -> None:
    rig.report("at_risk", evidence={"probability": 0.9}, model_version="1")
    for _ in range(30):
        rig.once(60)
    assert rig.state() is ServiceState.IN_SERVICE
    assert not rig.driver.machines["m0"].avoided


def test_unconfirmed_prediction_in_service_is_recorded(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, "observe")
    with rig.ledger:
        rig.driver.machines["m0"] = Machine(
            "m0", ServiceState.IN_SERVICE, gpus=8, pool="train", rack="r0", boot="1", jobs=("17",)
        )
        rig.report("at_risk", evidence={"probability": 0.9}, model_version="1")
        for _ in range(int(3 * DAY / HOUR)):
            rig.once(60)
        (incident,) = rig.ledger.incidents()
        assert incident.outcome is Outcome.NOT_CONFIRMED
        assert incident.state is IncidentState.CLOSED


def test_concurrent_responders_drain_once(rig: Rig) -> None:
    other = Responder(
        rig.responder.site,
        rig.ledger,
        rig.responder.policy,
        rig.driver,
        rig.clock,
    )
    rig.report("xid 79")
    rig.once(20)
    other.once()
    assert rig.driver.calls.count(f"{_first_step(rig)} m0") == 1
    assert len(rig.actions()) == 1


def test_repeated_reads_record_finding_once(tmp_path: Path) -> None:
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
        assert finding.count == 1  # read twice, recorded once


def test_late_mark_of_ended_action_is_removed(rig: Rig) -> None:
    rig.report("xid 79")
    rig.once(20)
    number = rig.ledger.incidents()[0].id
    Operator(rig.ledger, "ann", rig.clock.at).undo(number)
    rig.once(1)
    rig.once(1)
    rig.driver.set("m0", ServiceState.DRAINED, "forewarn:1 late")  # set by a slow controller
    rig.once(1)
    assert rig.state() is ServiceState.IN_SERVICE


def test_scheduled_task_decides_like_command(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text("")
    assert respond_site(str(config)) == []
    with ResponseSite.from_config(config).ledger() as ledger:
        finding = Finding("nhc", "1", FindingKind.REPORT, "fan", "m1", START, Nanoseconds(2**61))
        ledger.record_findings([finding], now=START)
    (line,) = respond_site(str(config))
    assert (line["machine"], line["finding"], line["ruling"]) == ("m1", "fan", "hold")
    assert respond_site(str(config)) == []  # nothing new


def test_manual_drain_in_storm_drains_named_machine(rig: Rig) -> None:
    for i in range(3):
        rig.report("xid 79", f"m{i}", gpu_serial=None, job="17")
    rig.once(1)
    Operator(rig.ledger, "ann", rig.clock.at).drain("m2")
    rig.once(1)
    assert [rig.state(f"m{i}") for i in range(3)] == [
        ServiceState.IN_SERVICE,
        ServiceState.IN_SERVICE,
        ServiceState.DRAINED,
    ]


def test_kill_switch_during_round_blocks_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = rig.responder.site.switch(None)
    plain = rig.ledger.decide

    def switch_off_and_decide(decision: Decision) -> bool:
        stop.mark("ann", "fire")
        return plain(decision)

    monkeypatch.setattr(rig.ledger, "decide", switch_off_and_decide)
    rig.report("xid 79")
    rig.once(20)
    assert rig.driver.calls == []
    (incident,) = rig.ledger.open_incidents()
    assert incident.decision is not None
    assert "kill switch" in incident.decision.reason


def test_interrupted_override_is_still_recorded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.report("xid 79")
    rig.once(20)
    rig.driver.set("m0", ServiceState.IN_SERVICE)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rig.ledger, "advance", killed)
        with pytest.raises(KeyboardInterrupt):
            rig.once(1)
    for _ in range(2):
        rig.once(1)
    assert rig.ledger.incidents()[-1].state is IncidentState.OVERRIDDEN
    assert rig.actions() == [ActionState.OVERRIDDEN]
    assert rig.state() is ServiceState.IN_SERVICE


def test_drift_blocks_model_only_findings(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, "act")
    with rig.ledger:
        rig.responder.site.records.mkdir()
        write_drift(rig.responder.site.records, START, ["power_draw"])
        rig.report("at_risk", "m0", evidence={"probability": 0.9})
        rig.report("xid 79", "m5")
        decided = {item.incident.machine: item.decision for item in rig.once(20)}
        assert decided["m0"].ruling is Ruling.OBSERVE
        assert "drifted: power_draw" in decided["m0"].reason
        assert decided["m5"].ruling is Ruling.ACT
        # A retraining as of an earlier time changes nothing; the next one ends the interlock.
        write_drift(rig.responder.site.records, Nanoseconds(START - DAY), [])
        assert read_drift(rig.responder.site.records).drifted == ("power_draw",)
        write_drift(rig.responder.site.records, Nanoseconds(START + DAY), [])
        decided = {item.incident.machine: item.decision for item in rig.once(1)}
        assert decided["m0"].ruling is Ruling.ACT


def test_unreadable_drift_report_counts_as_drift(tmp_path: Path) -> None:
    assert read_drift(tmp_path).drifted == ()
    (tmp_path / "_drift.json").write_text("nonsense")
    assert read_drift(tmp_path).drifted == ("_drift.json cannot be read",)
    write_drift(tmp_path, START, [])
    assert read_drift(tmp_path).drifted == ()


def test_alert_is_raised_once_until_it_ends(rig: Rig) -> None:
    alerts: list[str] = []
    lists = rig.responder.site.lists
    lists.mkdir()

    def call() -> list[str]:
        alerts.clear()
        parts = (rig.responder.site, rig.ledger, rig.responder.policy, rig.driver, rig.clock)
        Responder(*parts, warn=lambda _, text: alerts.append(text)).once()  # as a new process
        return alerts

    assert call() == ["no list so far"]
    assert call() == []
    lists.rmdir()  # lists are no longer made
    assert call() == []
    lists.mkdir()
    assert call() == ["no list so far"]


def count_statements(rig: Rig) -> int:
    """Return the statements to the database in one round."""
    statements = list[str]()

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    engine = rig.ledger.database.engine
    event.listen(engine, "before_cursor_execute", count)
    rig.once(5)
    event.remove(engine, "before_cursor_execute", count)
    return len(statements)


def test_statements_of_a_quiet_round_do_not_grow_with_incidents(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, "observe")
    with rig.ledger:
        rig.report("xid 79")
        rig.once(5)
        with_one_incident = count_statements(rig)
        for machine, cause in (("m1", "xid 48"), ("m5", "xid 95"), ("m6", "likely to fail")):
            rig.report(cause, machine)
        assert len(rig.once(5)) == 4
        assert count_statements(rig) == with_one_incident
