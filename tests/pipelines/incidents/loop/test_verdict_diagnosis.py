"""A detector's verdict starts a diagnosis of its job, within limits."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from tests.pipelines.incidents.loop.test_responder import FixedClock

from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.loop import verdict_diagnosis
from forewarn.pipelines.incidents.loop.diagnosis_process import DiagnosisJob, is_diagnosing
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.incidents.sources.diagnosis_verdicts import read_diagnoses
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.sandbox.simulate_job import simulate_job_to
from forewarn.response.state.finding import FindingKind

POLICY = load_policy()
NOW = Nanoseconds(time.time_ns())
PATIENCE_SECONDS = 120.0
CONFIG = """
[respond]
verdicts = "verdicts.jsonl"
job_folder = "jobs/{task}"
"""


def verdict(task: str, at: int = NOW - MINUTE, **changes: Any) -> dict[str, Any]:
    named = {"machine": "node-0000", "metric": "cpu_usage", "score": 3.5, "since": format_iso(at)}
    rest = {"also": [], "kind": "fault", "observe_only": False, "detected_at": format_iso(at)}
    return {"task": task} | named | rest | changes


def site_with(folder: Path, *verdicts: dict[str, Any], config: str = CONFIG) -> ResponseSite:
    folder.mkdir(exist_ok=True)
    (folder / "my.toml").write_text(config)
    (folder / "verdicts.jsonl").write_text("".join(f"{json.dumps(v)}\n" for v in verdicts))
    return ResponseSite.from_config(folder / "my.toml")


def one_round(site: ResponseSite, now: Nanoseconds = NOW) -> set[tuple[FindingKind, str]]:
    """Run a round; return kind and machine of each open finding."""
    with site.ledger() as ledger:
        Responder(site, ledger, POLICY, None, FixedClock(now)).once()
        findings = [f for incident in ledger.open_incidents() for f in incident.findings]
    return {(finding.kind, finding.machine) for finding in findings if finding.valid(now)}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[DiagnosisJob]:
    """Return the diagnoses that would be started."""
    jobs = list[DiagnosisJob]()
    monkeypatch.setattr(verdict_diagnosis, "start_diagnosis", jobs.append)
    return jobs


def make_folder(site: ResponseSite, *tasks: str) -> None:
    for task in tasks:
        (site.folder / "jobs" / task).mkdir(parents=True)


def finished(result: Path) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not result.exists() or is_diagnosing(result.parent):
        assert time.monotonic() < end, "no result"
        time.sleep(0.1)


def test_verdict_leads_to_diagnosis_of_its_job(tmp_path: Path) -> None:
    site = site_with(tmp_path, verdict("t1"))
    job = tmp_path / "jobs" / "t1"
    simulate_job_to(job, 8, "sigstop", 1, "plain", "files")
    one_round(site)
    result = tmp_path / "respond.diagnoses" / "t1.json"
    finished(result)
    (diagnosis,) = read_diagnoses(result)
    assert (diagnosis.subject, len(diagnosis.culprits)) == ("t1", 1)
    line = json.loads(result.read_text())
    line |= {"at": format_iso(NOW), "detected_at": format_iso(NOW)}  # simulated jobs are old
    result.write_text(f"{json.dumps(line)}\n")
    (culprit,) = diagnosis.culprits
    assert (FindingKind.DIAGNOSIS, culprit) in one_round(site)


def test_failed_diagnosis_is_recorded_as_unknown(tmp_path: Path) -> None:
    site = site_with(tmp_path, verdict("t1"))
    make_folder(site, "t1")
    one_round(site)
    result = tmp_path / "respond.diagnoses" / "t1.json"
    finished(result)
    line = json.loads(result.read_text())
    assert (line["kind"], line["culprits"]) == ("unknown", [])
    assert f"{tmp_path}/jobs/t1: contains no" in line["cause"]


def test_diagnosis_beyond_time_limit_is_unknown(tmp_path: Path) -> None:
    config = f'{CONFIG}diagnosis_timeout = "1ms"\n'
    site = site_with(tmp_path, verdict("t1"), config=config)
    make_folder(site, "t1")
    one_round(site)
    result = tmp_path / "respond.diagnoses" / "t1.json"
    finished(result)
    assert json.loads(result.read_text())["cause"] == "the diagnosis had no result within 0.001 s"


def test_one_diagnosis_at_a_time(tmp_path: Path, started: list[DiagnosisJob]) -> None:
    site = site_with(tmp_path, verdict("t1", NOW - 2 * MINUTE), verdict("t2"))
    make_folder(site, "t1", "t2")
    one_round(site)
    assert [Path(job.folder).name for job in started] == ["t1"]
    with FileLock(site.own_diagnoses / ".lock"):
        one_round(site)
    assert len(started) == 1


@pytest.mark.parametrize(
    ("verdict_at", "round_at", "n_diagnoses"), [(-1, 6, 1), (2, 3, 1), (2, 6, 2)]
)
def test_job_is_diagnosed_again_after_new_verdict(
    tmp_path: Path,
    started: list[DiagnosisJob],
    verdict_at: int,
    round_at: int,
    n_diagnoses: int,
) -> None:
    site = site_with(tmp_path, verdict("t1"))
    make_folder(site, "t1")
    one_round(site)
    result = tmp_path / "respond.diagnoses" / "t1.json"
    result.touch()
    os.utime(result, ns=(NOW, NOW))
    site_with(tmp_path, verdict("t1"), verdict("t1", NOW + verdict_at * MINUTE))
    one_round(site, Nanoseconds(NOW + round_at * MINUTE))
    assert len(started) == n_diagnoses


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("t2", {}),  # without a folder
        ("../t1", {}),
        ("..", {}),
        ("jobs/../t1", {}),
        ("t1", {"observe_only": True}),
        ("t1", {"machine": None, "detected_at": None}),
        ("t1", {"detected_at": format_iso(NOW - 2 * HOUR)}),
    ],
)
def test_other_verdicts_start_nothing(
    tmp_path: Path, started: list[DiagnosisJob], task: str, changes: dict[str, Any]
) -> None:
    site = site_with(tmp_path, verdict(task, **changes))
    make_folder(site, "t1", "../t1")
    one_round(site)
    assert started == []


def test_without_folder_of_jobs_nothing_starts(tmp_path: Path, started: list[DiagnosisJob]) -> None:
    site = site_with(tmp_path, verdict("t1"), config='[respond]\nverdicts = "verdicts.jsonl"\n')
    make_folder(site, "t1")
    one_round(site)
    assert started == []


def test_list_is_prior_of_diagnosis(tmp_path: Path, started: list[DiagnosisJob]) -> None:
    site = site_with(tmp_path, verdict("t1"))
    make_folder(site, "t1")
    (site.lists / "date=2025-03-01").mkdir(parents=True)
    (site.lists / "date=2025-03-01" / "at_risk.parquet").touch()
    one_round(site)
    assert started[0].options == ("--at-risk", str(site.lists))
