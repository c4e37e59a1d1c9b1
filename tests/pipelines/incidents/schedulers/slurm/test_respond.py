"""Tests of `forewarn respond` with a real Slurm, from a finding to the return to service."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipelines.incidents.schedulers.one_replay import EXPECTED, decision_log
from tests.pipelines.incidents.schedulers.scheduler_site import POLICY, SchedulerSite

from forewarn.features.time_units import HOUR
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.response.state.action import ActionState
from forewarn.response.state.finding import FindingKind

CONFIG = """
[respond]
driver = "slurm"
slurm_conf = "{conf}"
command_timeout = "{timeout}"
policy = ["policy.toml"]
first_day = "1ms"
{extra}
[respond.pools.rest]
partition = "gpu"
mode = "act"
machines = {machines}
share = 0.5
rack = 4
"""


@dataclass
class Site(SchedulerSite):
    """A site with a real Slurm."""

    @property
    def slurm(self) -> Any:
        return self.cluster

    def configure(self, *, timeout: str = "60s", machines: int = 2, extra: str = "") -> None:
        values = {"conf": self.slurm.conf, "timeout": timeout, "machines": machines, "extra": extra}
        Path(self.config).write_text(CONFIG.format(**values))

    def node(self, name: str) -> Any:
        return self.slurm.machine(name)

    def take_out(self, machine: str) -> None:
        self.slurm.update(machine, "state=drain", "reason=Tom looks at it")

    def put_back(self, machine: str) -> None:
        self.slurm.update(machine, "state=resume")
        # A resumed node is "not responding" until it answers the controller's ping.
        self.slurm.until(lambda: not self.node(machine).out, "back")


@pytest.fixture
def site(slurm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "my.toml").touch()
    with ResponseSite.from_config(tmp_path / "my.toml").ledger() as ledger:
        site = Site(tmp_path, slurm, capsys, ledger)
        site.configure()
        site.respond()  # the first round records the new policy
        yield site


def test_node_is_drained_and_returned_by_person(site: Site) -> None:
    job = site.slurm.submit("-w", "node-00001")
    site.report("node-00001")
    decision = site.respond()["node-00001"]
    assert (decision["ruling"], decision["step"], decision["mode"]) == ("act", "drain", "finish")
    machine = site.node("node-00001")
    assert (machine.state.value, machine.jobs, machine.action) == ("draining", (job,), 1)
    assert site.states() == [ActionState.HOLDING]
    site.slurm.call("scancel", job)
    site.slurm.until(lambda: site.node("node-00001").state.value == "drained", "drained")
    site.respond()
    assert site.states() == [ActionState.DRAINED]
    assert main(["undo", "1", "--config", site.config, "--why", "looked at"]) == 0
    site.respond()
    site.slurm.until(lambda: not site.node("node-00001").out, "back")
    site.respond()
    assert site.states() == [ActionState.RELEASED]


@pytest.mark.parametrize("hours", [25, -25, 24 * 365])
def test_wrong_clock_causes_no_action(
    hours: int, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's controller reports its own time, which differs from ours by hours."""
    job = site.slurm.submit("-w", "node-00001", "--requeue")
    site.report("node-00001", "xid 79")
    decision = site.respond()["node-00001"]
    assert (decision["ruling"], decision["mode"]) == ("act", "deadline")
    site.report("node-00006", "xid 95")
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + hours * HOUR)
    decided = site.respond()
    assert {line["ruling"] for line in decided.values()} == {"observe"}
    assert "that of the scheduler" in decided["node-00006"]["blocked_by"]
    assert site.node("node-00001").jobs == (job,)
    assert not site.node("node-00006").out
    monkeypatch.setattr(time, "time_ns", real)
    assert site.respond()["node-00006"]["ruling"] == "act"
    assert site.node("node-00001").jobs == (job,)


def test_deleted_ledger_stops_actions_and_lists_marks(site: Site) -> None:
    site.report("node-00001")
    assert site.respond()["node-00001"]["ruling"] == "act"
    site.ledger.close()
    for path in site.folder.glob("ledger.db*"):
        path.unlink()
    before = site.slurm.line("node-00001")
    site.capsys.readouterr()
    assert main(["respond", "--once", "--config", site.config]) == 2
    errors = site.capsys.readouterr().err
    assert (
        "1 machine carries a mark of forewarn without an action in the ledger: node-00001" in errors
    )
    assert "`forewarn respond --new-ledger`" in errors.splitlines()[-1]
    assert not (site.folder / "ledger.db").exists()
    assert main(["incidents", "--json", "--config", site.config]) == 0
    (line,) = map(json.loads, site.capsys.readouterr().out.splitlines())
    assert (line["incident"], line["machine"]) == (None, "node-00001")
    assert line["mark"].startswith("forewarn:1 ")
    assert main(["respond", "--new-ledger", "--once", "--config", site.config]) == 0
    assert "without an action in the ledger: node-00001" in site.capsys.readouterr().err
    site.ledger = ResponseSite.from_config(Path(site.config)).ledger()
    site.report("node-00001")
    site.report("node-00006")
    site.report("node-00007")
    rulings = {name: line["ruling"] for name, line in site.respond().items()}
    assert rulings["node-00001"] == "hold"
    drained = {name for name, ruling in rulings.items() if ruling == "act"}
    assert len(drained) == 1  # the unknown drain counts against `fleet_rate` and `machines`
    assert site.slurm.line("node-00001") == before


def test_external_drain_is_kept_and_counts(site: Site) -> None:
    site.slurm.update("node-00004", "state=drain", "reason=Tom looks at DIMM")
    before = site.slurm.line("node-00004")
    for number in (4, 5, 6):
        site.report(f"node-0000{number}")
    decided = site.respond()
    assert site.slurm.line("node-00004") == before
    assert decided["node-00004"]["ruling"] == "hold"
    rulings = sorted(decided[f"node-0000{number}"]["ruling"] for number in (5, 6))
    assert rulings == ["act", "hold"]  # Tom's node is one of the two that may be out
    blocked = next(
        d
        for d in decided.values()
        if d["ruling"] == "hold" and d["step"] == "drain" and "at most 2" in (d["blocked_by"] or "")
    )
    assert "2 of 16 machines" in blocked["blocked_by"]


def test_resumed_node_is_not_drained_again(site: Site) -> None:
    site.report("node-00007")
    site.respond()
    site.slurm.update("node-00007", "state=resume")
    site.respond()
    # A resumed node is "not responding" until it answers the controller's ping.
    site.slurm.until(lambda: not site.node("node-00007").out, "back")
    site.respond()
    assert site.states() == [ActionState.OVERRIDDEN]
    site.report("node-00007", minutes_ago=19)
    assert "overridden" in site.respond()["node-00007"]["blocked_by"]
    kinds = {finding.kind for i in site.ledger.incidents() for finding in i.findings}
    assert kinds == {FindingKind.AT_RISK}  # no external drain was recorded


def test_reconfiguration_is_not_a_manual_override(site: Site) -> None:
    site.report("node-00003", probability=0.1)
    site.respond()
    for _ in range(2):  # each one resets the weight
        site.respond()
        assert site.node("node-00003").avoided
        site.slurm.call("scontrol", "reconfigure")
        site.slurm.until(lambda: not site.node("node-00003").avoided, "reconfigured")
    site.slurm.until(lambda: not site.node("node-00003").out, "idle")
    site.respond()
    site.respond()
    assert site.states() == [ActionState.HOLDING]
    site.slurm.update("node-00003", "weight=7")  # a manual change
    site.respond()
    assert site.states() == [ActionState.OVERRIDDEN]
    assert not site.node("node-00003").avoided


def test_drain_lost_by_killed_controller_is_reapplied(site: Site) -> None:
    site.report("node-00008")
    site.respond()
    site.slurm.kill_controller()
    site.slurm.start_controller()
    site.respond()  # nodes may still be unknown: that is no manual change
    site.slurm.until(lambda: site.node("node-00008").state.value != "unknown", "known")
    for _ in range(3):
        site.respond()
    machine = site.node("node-00008")
    assert machine.action == 1
    assert site.states() in ([ActionState.HOLDING], [ActionState.DRAINED])


def test_lost_answer_is_no_failure(site: Site) -> None:
    site.configure(timeout="2s")
    site.report("node-00009")
    resume = _pause_after_action(site)
    site.capsys.readouterr()
    assert main(["respond", "--once", "--config", site.config]) in (0, 2)
    resume()
    site.configure()
    site.slurm.until(lambda: _answers(site), "controller")
    for _ in range(3):
        site.respond()
    history = [(c.state.value, c.detail) for n in (1, 2) for c in site.ledger.action_states(n)]
    assert site.node("node-00009").action == 1, history
    assert len(site.states()) == 1
    assert site.states()[0] in (ActionState.HOLDING, ActionState.DRAINED)


def _answers(site: Site) -> bool:
    return "UP" in site.slurm.call("scontrol", "ping")


def _pause_after_action(site: Site) -> Callable[[], None]:
    """Stop the controller as soon as an action is recorded; return a function that resumes it."""
    import threading

    recorded = threading.Event()

    def watch() -> None:
        while not recorded.is_set():
            if site.ledger.open_actions():
                site.slurm.send("slurmctld", signal.SIGSTOP)
                return
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()

    def resume() -> None:
        recorded.set()
        thread.join()
        site.slurm.send("slurmctld", signal.SIGCONT)

    return resume


def _write_records(folder: Path) -> None:
    """Write today's records of eight GPUs on each of two nodes."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    path = folder / "records" / f"date={date}" / "0.parquet"
    path.parent.mkdir(parents=True)
    nodes = [f"node-{number:05d}" for number in (10, 11) for _ in range(8)]
    columns = {
        "gpu_serial": [f"{node} gpu {number % 8}" for number, node in enumerate(nodes)],
        "machine_id": nodes,
        "slot": [number % 8 for number in range(16)],
        "timestamp": pa.array([time.time_ns()] * 16, pa.timestamp("ns", "UTC")),
    }
    pq.write_table(pa.table(columns), path)


def test_drains_become_training_labels(site: Site) -> None:
    _write_records(site.folder)
    site.slurm.update("node-00010", "state=drain", "reason=Tom: Xid 79 on GPU 3")
    site.report("node-00011")
    site.respond()
    failures = pq.read_table(site.folder / "records" / "incident_failures.parquet").to_pylist()
    assert [(row["gpu_serial"], row["repaired_at"]) for row in failures] == [
        ("node-00010 gpu 3", None)
    ]
    path = site.folder / "records" / "out_of_service.parquet"
    assert [(row["machine_id"], row["end"]) for row in pq.read_table(path).to_pylist()] == [
        ("node-00010", None),
        ("node-00011", None),
    ]
    site.slurm.update("node-00010", "state=undrain")
    site.slurm.until(lambda: not site.node("node-00010").out, "back")
    site.respond()
    (failure,) = pq.read_table(site.folder / "records" / "incident_failures.parquet").to_pylist()
    assert failure["failed_at"] < failure["repaired_at"]
    first, second = pq.read_table(path).to_pylist()
    assert (first["end"], second["end"]) == (failure["repaired_at"], None)


def test_slurm_restarts_drained_node_once(site: Site) -> None:
    site.configure(extra='check = ["true"]')
    with Path(site.config).open("a") as config:
        config.write("[respond.pools.rest.steps.restart]\nscheduler = true\n")
    before = _restarts(site)
    site.report("node-00006", "xid 79")

    def respond_until(state: ActionState, detail: str = "") -> None:
        def reached() -> bool:
            site.respond()
            details = [change.detail for change in site.ledger.action_states(1)]
            return site.states() == [state] and any(d.startswith(detail) for d in details)

        site.slurm.until(reached, f"{state} {detail}")

    respond_until(ActionState.DRAINED, "restart begun")
    site.slurm.until(lambda: _restarts(site) == before + 1, "restart")
    site.respond()
    site.slurm.restart_node("node-00006")
    respond_until(ActionState.DRAINED, "restart succeeded")
    respond_until(ActionState.RELEASED, "check passed")
    site.slurm.until(lambda: not site.node("node-00006").out, "service")
    assert _restarts(site) == before + 1
    assert [i.state.value for i in site.ledger.incidents()] == ["open"]  # not overridden


def _restarts(site: Site) -> int:
    log = site.slurm.folder / "restarts"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_decision_log_is_that_of_every_scheduler(site: Site) -> None:
    site.configure(extra="fleet_rate = 10\noverrides = 2")
    assert decision_log(site, site.slurm.until) == EXPECTED
