"""Verdicts of `forewarn diagnose` become findings with an end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipelines.incidents.loop.test_responder import FixedClock

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.incidents.sources.diagnosis_findings import (
    diagnosis_ends,
    diagnosis_findings,
)
from forewarn.pipelines.incidents.sources.diagnosis_verdicts import DiagnosisVerdict, read_diagnoses
from forewarn.pipelines.incidents.sources.verdict_lines import VerdictsError
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.sandbox.simulate_job import simulate_job_to
from forewarn.response.state.finding import Finding, FindingKind

NOW = Nanoseconds(1000 * DAY)
POLICY = load_policy()
MACHINES = ("m1", "m2", "m3")


def line(minute: int, kind: str = "hang", *machines: str | None, **changes: Any) -> dict[str, Any]:
    at = format_iso(NOW + minute * MINUTE)
    culprits = [{"rank": 3, "machine": machine, "why": "missing"} for machine in machines]
    verdict = {"job": "4711", "kind": kind, "culprits": culprits, "since": at, "detected_at": at}
    rest = {"cause": None, "machines": list(MACHINES), "evidence_from": ["dump"], "at": at}
    return verdict | rest | {"also": [], "probes": probes("active", "blind")} | changes


def probes(*states: str) -> dict[str, Any]:
    return {str(number): {"state": state} for number, state in enumerate(states)}


def nodes(**states: str) -> dict[str, Any]:
    return {"nodes": [{"node": n, "state": s, "factor": None} for n, s in states.items()]}


def written(path: Path, *lines: object, at: int = NOW) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    os.utime(path, ns=(at, at))
    return path


def open_findings(folder: Path, *rounds: Iterable[object], minutes: int = 0) -> list[Finding]:
    """Return the valid findings after rounds that each read more lines, ten minutes apart."""
    folder.mkdir(exist_ok=True)
    (folder / "my.toml").write_text('[respond]\ndiagnoses = ["said", "run.json"]\n')
    site = ResponseSite.from_config(folder / "my.toml")
    clock, known = FixedClock(NOW), list[object]()
    with site.ledger() as ledger:
        responder = Responder(site, ledger, POLICY, None, clock)
        for lines in rounds:
            known += lines
            written(folder / "said" / "watch.jsonl", *known, at=clock.at)
            responder.once()
            clock.at = Nanoseconds(clock.at + 10 * MINUTE)
        clock.at = Nanoseconds(clock.at + (minutes - 10) * MINUTE)
        responder.once()
        findings = [f for incident in ledger.open_incidents() for f in incident.findings]
        return [finding for finding in findings if finding.valid(clock.at)]


def named(findings: Iterable[Finding]) -> list[str]:
    return [finding.machine for finding in findings]


def test_each_culprit_is_finding_with_evidence(tmp_path: Path) -> None:
    first, second = open_findings(
        tmp_path, [line(-1, "hang", "m1", "m2", next=["Look.", "Restart."])]
    )
    assert (first.machine, second.machine) == ("m1", "m2")
    assert (first.source, first.kind, first.job) == ("diagnose", FindingKind.DIAGNOSIS, "4711")
    assert first.evidence["evidence_from"] == ["dump"]
    assert first.evidence["why"] == "missing"
    assert first.evidence["next"] == "Look."
    assert first.valid_until == NOW - MINUTE + HOUR


@pytest.mark.parametrize("kind", ["none", "unknown", "ended", "hang", "crash"])
def test_verdict_without_machine_is_no_finding(tmp_path: Path, kind: str) -> None:
    assert open_findings(tmp_path, [line(-2, kind), line(-1, kind, None)]) == []


def test_repeated_read_adds_nothing(tmp_path: Path) -> None:
    (finding,) = open_findings(tmp_path, [line(-1, "hang", "m1")], [], [])
    assert finding.count == 1


def test_finding_expires(tmp_path: Path) -> None:
    verdict = [line(-1, "hang", "m1")]
    assert named(open_findings(tmp_path / "a", verdict, minutes=58)) == ["m1"]
    assert open_findings(tmp_path / "b", verdict, minutes=59) == []


@pytest.mark.parametrize(
    ("later", "remaining"),
    [
        (line(5, "none"), []),
        (line(5, "hang", "m2"), ["m2"]),
        (line(5, "slow", "m2"), ["m2"]),
        (line(5, "hang", "m1", "m2"), ["m1", "m1", "m2"]),
        (line(5, "unknown"), ["m1"]),
        (line(5, "ended"), ["m1"]),
        (line(5, "hang"), []),
        (line(5, "hang", also=[{"machine": "m1"}, {"machine": "m2"}]), ["m1"]),
        (line(5, "hang", machines=["m2"]), ["m1"]),
        (line(5, "slow"), ["m1"]),
        (line(5, "none", machines=["m2", "m3"]), ["m1"]),  # the job was restarted elsewhere
        (line(5, "hang", "m2", machines=["m2", "m3"]), ["m1", "m2"]),
        (line(5, "none", job="4712"), ["m1"]),
        (line(5, "none", probes=probes("active", "idle")), ["m1"]),  # it is being killed
        (line(5, "none", probes=probes("blind")), ["m1"]),
        (line(5, "none", probes={}), ["m1"]),
        (line(-5, "none"), ["m1"]),
    ],
)
def test_later_verdict_ends_what_it_disproves(
    tmp_path: Path, later: dict[str, Any], remaining: list[str]
) -> None:
    rounds = ([line(-1, "hang", "m1")], [later])
    assert sorted(named(open_findings(tmp_path / "two rounds", *rounds))) == remaining
    at_once = open_findings(tmp_path / "one", [*rounds[0], *rounds[1]], minutes=10)
    assert sorted(named(at_once)) == remaining


def test_progress_does_not_end_crash(tmp_path: Path) -> None:
    crash = line(-1, "crash", "m1")
    assert named(open_findings(tmp_path / "a", [crash], [line(5, "none")])) == ["m1"]
    assert named(open_findings(tmp_path / "b", [crash], [line(5, "hang", "m2")])) == ["m1", "m2"]
    assert named(open_findings(tmp_path / "c", [crash], [line(5, "crash", "m2")])) == ["m2"]
    assert named(open_findings(tmp_path / "d", [crash], [line(5, "crash")])) == []


def test_problem_that_returns_is_finding_again(tmp_path: Path) -> None:
    rounds = [line(-1, "hang", "m1")], [line(5, "none")], [line(15, "hang", "m1")]
    (finding,) = open_findings(tmp_path, *rounds)
    assert finding.at == NOW + 15 * MINUTE


def test_nodes_are_findings_at_file_time(tmp_path: Path) -> None:
    path = written(tmp_path / "run.json", nodes(m1="ok", m2="failed", m3="slow", m4="unproven"))
    findings = open_findings(tmp_path, [])
    assert named(findings) == ["m2", "m3"]
    assert {(f.source, f.cause, f.at) for f in findings} == {("nodes", "node check", NOW)}
    assert [f.evidence["evidence_from"] for f in findings] == [["check"]] * 2
    written(path, nodes(m1="ok", m2="ok", m3="unproven"), at=NOW + 5 * MINUTE)
    assert named(open_findings(tmp_path, [], [])) == ["m3"]


def test_only_last_check_of_file_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "n.jsonl", nodes(m1="failed"), nodes(m1="ok", m2="slow"))
    (verdict,) = read_diagnoses(path)
    assert list(verdict.culprits) == ["m2"]


def test_verdicts_from_future_wait(tmp_path: Path) -> None:
    assert open_findings(tmp_path, [line(20, "hang", "m1")]) == []


def test_other_lines_are_skipped_with_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line(-1, "hang", "m1"), {"job": 1}, {"nodes": 3}, [], line(-1, "x", at=3)]
    path = written(tmp_path / "n.jsonl", *lines)
    assert len(read_diagnoses(path)) == 2
    assert "3 of 5 lines skipped" in capsys.readouterr().err
    with pytest.raises(VerdictsError, match=r"n\.jsonl: contains no verdict, expected lines of"):
        read_diagnoses(written(path, {"task": "t"}))


verdicts = st.builds(
    lambda minute, kind, culprits, seen: DiagnosisVerdict(
        *("diagnose", "4711", kind, Nanoseconds(NOW + minute * MINUTE)),
        culprits={machine: {} for machine in culprits},
        seen=frozenset(seen) | frozenset(culprits),
        is_conclusive=bool(culprits) or kind == "none",
    ),
    st.integers(0, 30),
    st.sampled_from(["hang", "slow", "crash", "none"]),
    st.frozensets(st.sampled_from(MACHINES)),
    st.frozensets(st.sampled_from(MACHINES)),
)


@given(st.lists(verdicts, max_size=8, unique_by=lambda verdict: verdict.at))
def test_only_verdict_that_saw_machine_ends_finding(some: list[DiagnosisVerdict]) -> None:
    findings = diagnosis_findings(some, POLICY)
    ends = diagnosis_ends(findings, some)
    assert {end.key for end in ends} <= {finding.key for finding in findings}
    for end in ends:
        (later,) = [verdict for verdict in some if verdict.at == end.valid_until]
        assert end.machine in later.seen - later.culprits.keys()


def test_printed_verdicts_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job"
    simulate_job_to(job, 8, "sigstop", 1, "plain", "files")
    (tmp_path / "results.csv").write_text(
        "round,nodes,passed,seconds\n1,a b,true,9\n1,c d,false,\n2,a c,true,9\n2,b d,false,\n"
    )
    capsys.readouterr()
    assert main(["diagnose", "run", "--job", str(job), "--json"]) == 0
    assert main(["diagnose", "nodes", "--results", str(tmp_path / "results.csv"), "--json"]) == 0
    path = tmp_path / "verdicts.jsonl"
    path.write_text(capsys.readouterr().out)
    of_job, of_nodes = read_diagnoses(path)
    assert len(of_job.culprits) == 1
    assert of_job.culprits.keys() <= of_job.seen
    assert "dump" in of_job.read
    assert ([*of_nodes.culprits], sorted(of_nodes.seen)) == (["d"], ["a", "b", "c"])
