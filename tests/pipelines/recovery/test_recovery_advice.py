"""`forewarn advise recovery`: plans of jobs whose life is known, and records in the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.time_units import DAY, MINUTE, Nanoseconds
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import CulpritCandidate, Diagnosis
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.recovery_log import read_events
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.recovery.crash_evidence import crash_by_verdict
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.recovery.job_crash import FaultOrigin
from forewarn.response.recovery.recovery_state import RungBegun
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.rung import Rung

HEADER = "JobIDRaw|JobName|Submit|Start|End|State|AllocTRES|NodeList"
CRASH = "[rank3]: RuntimeError: unexpected end of the input"
Advise = Callable[..., dict[str, Any]]


def _log(*steps: tuple[str, int], crash: str = CRASH) -> str:
    """Return a log with steps at times of one day, and an error a minute after the last one."""
    lines = [f"2026-03-01 {time},000 INFO step {number} loss 2.5" for time, number in steps]
    hour, minute, second = steps[-1][0].split(":")
    return "\n".join([*lines, f"2026-03-01 {hour}:{int(minute) + 1:02}:{second},000 ERROR {crash}"])


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "train"
    (folder / "logs").mkdir(parents=True)
    steps = [(f"10:{minute:02}:00", minute) for minute in range(10)]
    (folder / "logs" / "job.log").write_text(_log(*steps) + "\n")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.txt"
    times = "2026-03-01T09:00:00|2026-03-01T09:55:00|2026-03-01T10:10:00"
    path.write_text(f"{HEADER}\n42|train|{times}|FAILED|billing=1,gres/gpu=16|n[1-2]\n")
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "forewarn.toml"
    path.write_text('[respond.recovery]\nrungs = ["replace", "restart", "requeue"]\n')
    return path


@pytest.fixture
def advise(job: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> Advise:
    def call(*arguments: object, at: str = "2026-03-01T10:11") -> dict[str, Any]:
        fixed = ("advise", "recovery", "--json", "--job", job, "--runs", runs, "--at", at)
        assert main([*map(str, (*fixed, *arguments))]) == 0
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    return call


def test_job_whose_allocation_has_ended_is_requeued(advise: Advise) -> None:
    line = advise()
    assert (line["state"], line["rung"], line["next_rung"]) == ("begin", "requeue", "resubmit")
    assert (line["block"], line["retries_left"], line["recorded"]) == ("none", 3, False)
    assert (line["until"], line["skipped"]) == ("2026-03-01T10:41:00Z", ["restart"])


def test_events_after_the_time_are_ignored(advise: Advise) -> None:
    assert advise(at="2026-03-01T10:05")["state"] == "training"


def test_restart_that_is_seen_in_the_log_climbs(advise: Advise, runs: Path) -> None:
    """It was requeued, made no step and failed again."""
    times = "2026-03-01T10:10:00|2026-03-01T10:20:00|2026-03-01T10:30:00"
    with runs.open("a") as file:
        file.write(f"42|train|{times}|FAILED|billing=1,gres/gpu=16|n[1-2]\n")
    line = advise(at="2026-03-01T10:31")
    assert (line["rung"], line["tried"], line["retries_left"]) == ("resubmit", ["requeue"], 2)


def _record(config: Path, *findings: Finding) -> None:
    with ResponseSite.from_config(config).ledger() as ledger:
        ledger.record_findings(list(findings), now=findings[0].at)


def _xid(minutes: float, code: int = 79) -> Finding:
    at = Nanoseconds(parse_moment("2026-03-01T10:10:00Z") + round(minutes * MINUTE))
    until = Nanoseconds(at + DAY)
    return Finding("records", f"{code}", FindingKind.XID, f"xid {code}", "n2", at, until)


@pytest.mark.parametrize(
    ("minutes", "origin"),
    [(-10, "explicit"), (5, "explicit"), (-10.1, "not_one"), (5.1, "not_one")],
)
def test_finding_of_the_ledger_names_the_machine(
    advise: Advise, config: Path, minutes: float, origin: str
) -> None:
    _record(config, _xid(minutes))
    line = advise("--config", config)
    assert line["origin"] == origin
    if origin == "explicit":
        assert (line["rung"], line["machine"], line["block"]) == ("requeue", "n2", "cluster")
        assert line["skipped"] == ["replace", "restart"]
        assert line["cause"] == "xid 79 (GPU fell off the bus)"


def test_application_error_names_no_machine(advise: Advise, config: Path) -> None:
    _record(config, _xid(0, 31))
    assert advise("--config", config)["origin"] == "not_one"


def test_begin_is_recorded_once(advise: Advise, config: Path) -> None:
    options = ("--config", config, "--begin")
    first = advise(*options)
    assert (first["state"], first["rung"], first["recorded"]) == ("begin", "requeue", True)
    again = advise(*options, at="2026-03-01T10:12")
    assert (again["state"], again["rung"], again["recorded"]) == ("under_way", "requeue", False)
    assert (again["until"], again["retries_left"]) == (first["until"], 2)
    late = advise(*options, at="2026-03-01T10:41")
    assert (late["state"], late["rung"], late["recorded"]) == ("begin", "resubmit", False)
    with ResponseSite.from_config(config).ledger() as ledger:
        begun = [event for event in read_events(ledger, ["42"]) if isinstance(event, RungBegun)]
    assert [event.rung for event in begun] == [Rung.REQUEUE]


def test_job_without_a_retry_stops_and_tells_a_person_once(
    advise: Advise, job: Path, runs: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.parent / "site.toml").write_text("[ladder]\nretries = 0\n")
    config.write_text('[respond]\npolicy = ["site.toml"]\n')
    words = "no retry is left: 0 restarts saved no step beyond 0"
    for _ in range(2):
        line = advise("--config", config, "--begin")
        assert (line["state"], line["rung"], line["reason"]) == ("stop", None, words)
        assert not line["recorded"]
    with ResponseSite.from_config(config).ledger() as ledger:
        subject = "recovery of job 42"
        last = ledger.last_notes("alert", [subject, "another"])
        assert last == {subject: f"job 42 stops: {words}"}
        assert [note.act for note in ledger.notes()].count("alert") == 1
    options = ("--config", str(config), "--at", "2026-03-01T11:00")
    assert main(["advise", "recovery", "--job", str(job), "--runs", str(runs), *options]) == 0
    assert f"Stop it, and look into the cause: {words}." in capsys.readouterr().out


@pytest.fixture(scope="module")
def suspect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a job in which one rank was killed; its log is all that is known of its allocation."""
    folder = tmp_path_factory.mktemp("jobs") / "42"
    form = ("--launcher", "files", "--trainer", "plain")
    fault = ("--ranks", "8", "--fault", "sigkill", "--seed", "1")
    assert main(["simulate", "job", "--out", str(folder), *fault, *form]) == 0
    return folder


def test_waiting_for_a_spare_begins_nothing(
    suspect: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["advise", "recovery", "--json", "--job", str(suspect), "--config", str(config)]
    choices = []
    for spares in ("0", "1"):
        assert main([*command, "--begin", "--spares", spares]) == 0
        line = json.loads(capsys.readouterr().out)
        choices.append((line["rung"], line["without_spare"], line["recorded"]))
    assert choices == [("replace", "wait", False), ("replace", None, True)]


@pytest.mark.parametrize("killed_in", ["add_block", "decide_once"])
def test_killed_call_is_repeated(
    suspect: Path,
    config: Path,
    killed_in: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A suspected machine is blocked for its job alone, whenever the call is killed."""
    machine = json.loads((suspect / "truth.json").read_text())["machine"]
    command = ["advise", "recovery", "--json", "--job", str(suspect), "--config", str(config)]
    with monkeypatch.context() as patch:
        target = {
            "add_block": "forewarn.pipelines.incidents.ledger.ledger.Ledger.add_block",
            "decide_once": "forewarn.pipelines.incidents.ledger.recovery_log.decide_once",
        }[killed_in]
        patch.setattr(target, _kill)
        assert main([*command, "--begin"]) == 130
    capsys.readouterr()
    lines = []
    for _ in range(2):
        assert main([*command, "--begin"]) == 0
        lines.append(json.loads(capsys.readouterr().out))
    assert [line["recorded"] for line in lines] == [True, False]
    assert [lines[0][key] for key in ("origin", "rung", "block")] == ["implicit", "replace", "job"]
    with ResponseSite.from_config(config).ledger() as ledger:
        blocks = [(block.job, block.machine, block.owner) for block in ledger.blocks()]
    assert blocks == [("42", machine, "recovery")]


def _kill(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_measured_restarts_give_the_time_limit(advise: Advise, tmp_path: Path) -> None:
    row = {"rung": "requeue", "seconds": {"schedule": 10.0, "initialise": 50.0}}
    path = tmp_path / "lost.json"
    path.write_text(json.dumps({"interruptions": [row] * 5}))
    assert advise("--lost", path)["until"] == "2026-03-01T10:14:00Z"
    path.write_text(json.dumps({"interruptions": [row] * 4}))
    assert advise("--lost", path)["until"] == "2026-03-01T10:41:00Z"


def test_text_says_what_to_do(job: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--runs", str(runs), "--at", "2026-03-01T11:00")
    assert main(["advise", "recovery", "--job", str(job), *options]) == 0
    text = capsys.readouterr().out
    assert "Requeue the job: no single machine is the cause." in text
    assert "The job cannot do milder ones: a restart in place." in text
    assert "After that: a new submission by a person." in text
    assert "Retries left for unknown causes: 3." in text


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("graceful = true\nrungs = ['process']", "`graceful` and the rung process exclude"),
        ("rungs = ['gone']", "found 'gone', expected 'step_retry', 'process'"),
        ("without_spare = []", "respond.recovery.without_spare"),
    ],
)
def test_wrong_configuration_is_refused(
    job: Path, config: Path, table: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(f"[respond.recovery]\n{table}\n")
    assert main(["advise", "recovery", "--job", str(job), "--config", str(config)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_wrong_options_are_refused(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "recovery", "--job", str(job), "--begin"]) == 2
    assert "--begin needs --config" in capsys.readouterr().err
    path = tmp_path / "lost.json"
    path.write_text("{}")
    assert main(["advise", "recovery", "--job", str(job), "--gpus", "8", "--lost", str(path)]) == 2
    assert "has no `interruptions`" in capsys.readouterr().err


POLICY = load_policy()


@pytest.mark.parametrize(
    ("kind", "culprits", "expected"),
    [
        ("crash", [("n1", Fault("gpu", "replace it", needs_repair=True))], FaultOrigin.EXPLICIT),
        ("crash", [("n1", Fault("gpu", "look", "NVRM: Xid (PCI:0000:3b:00): 79, x"))],
         FaultOrigin.EXPLICIT),
        ("crash", [("n1", Fault("application", "look", "NVRM: Xid (PCI:0000:3b:00): 31, x"))],
         FaultOrigin.NOT_ONE),
        ("crash", [("n1", Fault("fabric", "look"))], FaultOrigin.NOT_ONE),
        ("crash", [("n1", None)], FaultOrigin.IMPLICIT),
        ("hang", [("n1", None), ("n1", None)], FaultOrigin.IMPLICIT),
        ("hang", [("n1", None), ("n2", None)], FaultOrigin.NOT_ONE),
        ("slow", [("n1", None)], FaultOrigin.IMPLICIT),
        ("hang", [], FaultOrigin.NOT_ONE),
    ],
)  # fmt: skip
def test_verdict_gives_the_origin(
    kind: Any, culprits: list[tuple[str, Fault | None]], expected: FaultOrigin
) -> None:
    candidates = tuple(
        CulpritCandidate(None, "why", 1.0, machine=machine, fault=fault)
        for machine, fault in culprits
    )
    crash = crash_by_verdict(_verdict(kind, candidates), Nanoseconds(0), leader="n1", policy=POLICY)
    assert crash is not None
    assert (crash.origin, crash.machine) == (
        expected,
        None if expected is FaultOrigin.NOT_ONE else "n1",
    )
    assert crash.hits_rank_zero == (expected is not FaultOrigin.NOT_ONE)


def test_application_xid_begins_with_its_processes() -> None:
    fault = Fault("application", "look", "NVRM: Xid (PCI:0000:3b:00): 31, pid=7")
    verdict = _verdict("crash", (CulpritCandidate(3, "why", 1.0, machine="n1", fault=fault),))
    crash = crash_by_verdict(verdict, Nanoseconds(0), policy=POLICY)
    assert crash is not None
    assert crash.rung is Rung.PROCESS


def _verdict(kind: Any, culprits: tuple[CulpritCandidate, ...]) -> Diagnosis:
    nothing: tuple[()] = ()
    return Diagnosis(
        *(kind, None, None, culprits, nothing, None, None, "hang", nothing, nothing, nothing),
        blind=(),
    )


def test_verdict_on_a_healthy_job_is_no_interruption() -> None:
    assert crash_by_verdict(_verdict("none", ()), Nanoseconds(0)) is None


def test_ledger_returns_damaged_rows_as_missing(config: Path, advise: Advise) -> None:
    advise("--config", config, "--begin")
    with ResponseSite.from_config(config).ledger() as ledger:
        _damage(ledger)
        assert [type(event).__name__ for event in read_events(ledger, ["42"])] == ["JobCrash"]


def _damage(ledger: Ledger) -> None:
    from sqlalchemy import text

    with ledger.database.writing() as connection:
        connection.execute(text("UPDATE recovery_events SET value = '{' WHERE kind = 'begun'"))
