"""Three real jobs under torchrun with gloo; `make test` skips them (see .ci/run)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import skip_or_fail
from tests.gloo_jobs.job import Plan, run_job
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.runtime.timestamps import parse_moment

pytestmark = pytest.mark.gloo
NINE_MINUTES = 9 * MINUTE


@pytest.fixture
def programs() -> Path:
    folder = torch_programs()
    if folder is None:
        skip_or_fail("no environment with torch: make it by .ci/setup_torch")
    return folder


def test_stuck_loader_is_culprit_during_hang(programs: Path, tmp_path: Path) -> None:
    plan, job = Plan.drawn("loader_stuck", 0), tmp_path / "job"
    run_job(plan, job, programs, to_the_end=False)
    (look,) = (job / "stacks").iterdir()
    verdict = diagnose(job, at=parse_moment(look.name) + NINE_MINUTES).diagnosis
    assert (verdict.kind, verdict.rank) == ("hang", plan.rank)
    assert "get (queue.py" in _says(verdict, "stacks")


def test_exception_is_root_cause(programs: Path, tmp_path: Path) -> None:
    plan, job = Plan.drawn("exception", 0), tmp_path / "job"
    run_job(plan, job, programs)
    verdict = diagnose(job).diagnosis
    assert (verdict.kind, verdict.rank) == ("crash", plan.rank)
    assert f"label {plan.step} is out of range" in str(verdict.cause)


def test_slow_rank_by_a_tenth_of_second(programs: Path, tmp_path: Path) -> None:
    plan, job = Plan.drawn("slow", 0), tmp_path / "job"
    run_job(plan, job, programs)
    verdict = diagnose(job).diagnosis
    assert (verdict.kind, verdict.rank) == ("slow", 5)


def _says(verdict: Diagnosis, part: str) -> str:
    return " ".join(item.says for item in verdict.evidence if item.part == part)
