"""Findings from judged inspections: bad checks of machines, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.errors import InputError
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.incidents.replay.policy_file import policy_of_site
from forewarn.pipelines.incidents.sources.finding_sources import gather_findings
from forewarn.pipelines.incidents.sources.inspection_findings import inspection_findings
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.policy.policy import Policy
from forewarn.response.state.finding import Severity

AT = Nanoseconds(parse_moment("2025-03-01T06:00:00Z"))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policy_of_site([], Settings())


def report(path: Path, *rows: dict[str, Any]) -> Path:
    usual = {
        **{"machine": "m1", "slot": None, "check": "gemm", "state": "defective"},
        **{"level": "no_new_jobs", "why": "11 % from the fleet", "value": 90.0},
        **{"unit": "TFLOP/s", "compared": "fleet", "category": "gpu"},
    }
    content = {"at": "2025-03-01T06:00:00+00:00", "verdicts": [usual | row for row in rows]}
    path.write_text(json.dumps(content))
    return path


def test_bad_checks_are_findings_by_level(tmp_path: Path, policy: Policy) -> None:
    path = report(
        tmp_path / "judged.json",
        {"slot": "gpu3"},
        {"check": "ecc", "state": "failed", "level": "drain"},
        {"check": "fan", "level": "note"},
        {"check": "disk", "state": "suspect"},
        {"check": "nic", "state": "not_run"},
    )
    first, second = inspection_findings(path, policy)
    assert (first.id, first.cause, first.severity) == ("gemm gpu3", "check gemm", Severity.WARNING)
    assert (second.id, second.machine, second.severity) == ("ecc", "m1", Severity.ERROR)
    assert first.at == AT
    assert first.valid_until > AT


def test_source_is_read_each_round_and_may_be_missing(tmp_path: Path, policy: Policy) -> None:
    def gather(now: Nanoseconds) -> list[str]:
        gathered = gather_findings(
            policy,
            records=tmp_path / "records",
            lists=tmp_path / "lists",
            verdicts=None,
            inspections=tmp_path / "judged.json",
            read=None,
            now=now,
        )
        return [finding.id for finding in gathered.statements]

    assert gather(AT) == []
    report(tmp_path / "judged.json", {})
    assert gather(Nanoseconds(AT + HOUR)) == ["gemm"]
    assert gather(Nanoseconds(AT - HOUR)) == []
    (tmp_path / "judged.json").write_text("{")
    assert gather(Nanoseconds(AT + HOUR)) == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"at": "2025-03-01", "verdicts": [{"level": "drain"}]}', '{"verdicts": 3}'],
)
def test_other_files_are_refused(tmp_path: Path, policy: Policy, text: str) -> None:
    (tmp_path / "judged.json").write_text(text)
    with pytest.raises(InputError, match="no output of `forewarn inspect judge --json`"):
        inspection_findings(tmp_path / "judged.json", policy)


def test_path_as_machine_is_refused(tmp_path: Path, policy: Policy) -> None:
    with pytest.raises(InputError, match="no name of a machine"):
        inspection_findings(report(tmp_path / "judged.json", {"machine": "../m1"}), policy)
