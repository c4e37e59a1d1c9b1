from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.incidents.sources.verdict_findings import verdict_findings
from forewarn.pipelines.incidents.sources.verdict_lines import VerdictsError
from forewarn.response.state.finding import FindingKind

START = Nanoseconds(0)


def _verdict(**changes: Any) -> dict[str, Any]:
    named = {"metric": "power_draw", "score": 3.5, "since": "1970-01-01T00:56:00Z"}
    return {
        "task": "job-1",
        "machine": "m1",
        **named,
        "detected_at": "1970-01-01T01:00:00Z",
        "also": [{"machine": "m2", **named}],
        "blind": ["m9"],
        "kind": "fault",
        "observe_only": False,
    } | changes


def _written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_one_finding_per_machine_valid_one_hour(tmp_path: Path) -> None:
    path = _written(tmp_path / "verdicts.jsonl", _verdict())
    first, second = verdict_findings(path, since=START)
    assert (first.machine, second.machine) == ("m1", "m2")
    assert (first.kind, first.cause, first.job) == (FindingKind.VERDICT, "verdict", "job-1")
    assert (first.at, first.valid_until) == (HOUR, 2 * HOUR)
    assert first.id != second.id
    assert first.evidence["metric"] == "power_draw"


def test_repeated_read_gives_same_finding(tmp_path: Path) -> None:
    path = _written(tmp_path / "verdicts.jsonl", _verdict(), _verdict(score=9.0))
    ids = [finding.id for finding in verdict_findings(path, since=START)]
    assert ids[:2] == ids[2:]


def test_observe_only_verdict_is_report(tmp_path: Path) -> None:
    path = _written(tmp_path / "verdicts.jsonl", _verdict(observe_only=True, also=[]))
    (finding,) = verdict_findings(path, since=START)
    assert finding.kind is FindingKind.REPORT
    assert finding.evidence["observe_only"] is True


@pytest.mark.parametrize(("helped", "read"), [(False, ["metrics"]), (True, ["metrics", "list"])])
def test_verdict_names_what_it_has_read(tmp_path: Path, helped: bool, read: list[str]) -> None:
    verdict = _verdict(also=[], helped_by_list=helped)
    (finding,) = verdict_findings(_written(tmp_path / "verdicts.jsonl", verdict), since=START)
    assert finding.evidence["evidence_from"] == read


def test_verdict_without_machine_is_no_finding(tmp_path: Path) -> None:
    path = _written(tmp_path / "verdicts.jsonl", _verdict(machine=None, detected_at=None))
    assert verdict_findings(path, since=START) == []


def test_older_verdicts_are_skipped(tmp_path: Path) -> None:
    path = _written(tmp_path / "verdicts.jsonl", _verdict())
    assert verdict_findings(path, since=Nanoseconds(HOUR + 1)) == []


def test_partial_line_waits_and_invalid_line_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "verdicts.jsonl"
    whole = json.dumps(_verdict(also=[]))
    path.write_text(f'{whole}\n{{"task": 1}}\n{"[" * 100_000}\n{whole[:40]}')
    assert len(verdict_findings(path, since=START)) == 1
    assert "2 of 3 lines skipped" in capsys.readouterr().err


def test_missing_file_has_no_verdicts(tmp_path: Path) -> None:
    assert verdict_findings(tmp_path / "verdicts.jsonl", since=START) == []


def test_file_without_verdicts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_text("hello\n")
    with pytest.raises(
        VerdictsError, match=r"verdicts\.jsonl: contains no verdict, expected lines"
    ):
        verdict_findings(path, since=START)
    with pytest.raises(VerdictsError, match="not a regular file"):
        verdict_findings(tmp_path, since=START)
