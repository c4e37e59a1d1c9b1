"""Culprits in archived jobs of torch 2.13 with gloo, one run each (`capture.py`)."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gloo_jobs.job import CRASHES, HANGS, Plan

from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.runtime.timestamps import parse_moment

CAPTURES = Path(__file__).with_name("captures")
SEED = 1
NINE_MINUTES = 9 * MINUTE
Unpack = Callable[[str], Path]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    def unpacked(fault: str) -> Path:
        with tarfile.open(CAPTURES / f"{fault}.tar.xz") as archive:
            archive.extractall(tmp_path / fault, filter="data")
        return tmp_path / fault

    return unpacked


def hung(job: Path) -> Diagnosis:
    """Diagnose the data taken during the hang, without the logs and exits completed later."""
    (look,) = (job / "stacks").iterdir()
    at = parse_moment(look.name) + NINE_MINUTES
    return diagnose(job, at=at, without=("logs", "exits")).diagnosis


@pytest.mark.parametrize("fault", HANGS)
def test_hang_culprit_during_and_after_hang(fault: str, unpack: Unpack) -> None:
    job, truth = unpack(fault), Plan.drawn(fault, SEED).truth
    before, after = hung(job), diagnose(job).diagnosis
    assert (before.kind, before.rank) == ("hang", truth)
    assert (after.kind, after.rank) == ("crash", truth)
    assert (after.machine is None) == (truth is None)


@pytest.mark.parametrize("fault", CRASHES)
def test_crash_root_cause(fault: str, unpack: Unpack) -> None:
    verdict = diagnose(unpack(fault)).diagnosis
    assert (verdict.kind, verdict.rank) == ("crash", Plan.drawn(fault, SEED).truth)


def test_slow_rank_by_a_tenth_of_second(
    unpack: Unpack,
) -> None:
    job, truth = unpack("slow"), Plan.drawn("slow", SEED).truth
    verdict = diagnose(job).diagnosis
    assert (verdict.kind, verdict.rank) == ("slow", truth)
    assert "would gain 0.1" in str(verdict.cause)


def test_stopped_rank_is_not_blamed_for_sigkill(unpack: Unpack) -> None:
    verdict = diagnose(unpack("sigstop")).diagnosis
    assert "SIGKILL" not in str(verdict.cause)
    assert "is stopped (SIGSTOP or debugger)" in str(verdict.cause)


@pytest.mark.parametrize("part", ["flight", "exits"])
def test_missing_part_names_no_other_rank(part: str, unpack: Unpack) -> None:
    for fault in ("loader_stuck", "sigkill"):
        verdict = diagnose(unpack(fault), without=(part,)).diagnosis
        assert verdict.kind == "crash"
        assert verdict.rank in (None, Plan.drawn(fault, SEED).truth)
