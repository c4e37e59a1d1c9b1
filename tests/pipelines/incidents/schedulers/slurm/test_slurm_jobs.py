"""Nodes that jobs of a real Slurm exclude."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

from forewarn.pipelines.incidents.schedulers.driver import DriverError, JobExclusions

USER = getpass.getuser()


def submit_held(slurm: Any, *options: str) -> str:
    command = ["sbatch", "--parsable", "--hold", "-o", "/dev/null", *options, "--wrap", "sleep 999"]
    job: str = slurm.call(*command).strip()
    assert job.isdigit(), job
    return job


def excluded(slurm: Any, job: str) -> frozenset[str]:
    exclusions = slurm.driver.exclusions(job)
    assert exclusions is not None
    machines: frozenset[str] = exclusions.machines
    return machines


def test_exclusions_of_others_stay(slurm: Any) -> None:
    job = submit_held(slurm, "-x", "node-[00003-00004]", "-N", "2")
    slurm.driver.exclude(job, "node-00001")
    slurm.driver.exclude(job, "node-00001")
    assert excluded(slurm, job) == {"node-00001", "node-00003", "node-00004"}
    slurm.driver.include(job, "node-00001")
    assert slurm.driver.exclusions(job) == JobExclusions(
        True, frozenset({"node-00003", "node-00004"}), USER
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-p", "large", "-N", "4"), "needs 4 nodes, and 3 would be left"),
        (("-w", "node-00001"), "requires node-00001"),
        (("-C", "rack=r0", "-N", "4"), "needs 4 nodes, and 3 would be left"),
        (("-C", "rack=r0|rack=r1"), "expected names joined by `&`"),
    ],
)
def test_job_that_would_never_fit_is_unchanged(
    slurm: Any, options: tuple[str, ...], words: str
) -> None:
    job = submit_held(slurm, *options)
    with pytest.raises(DriverError, match=words):
        slurm.driver.exclude(job, "node-00001")
    assert excluded(slurm, job) == frozenset()


def test_block_outlives_a_requeue(slurm: Any) -> None:
    job = submit_held(slurm, "--requeue")
    slurm.driver.exclude(job, "node-00001")
    slurm.call("scontrol", "release", job)
    slurm.until(lambda: slurm.jobs().get(job) == "R", "the job runs")
    assert slurm.driver.exclusions(job) == JobExclusions(False, frozenset({"node-00001"}), USER)
    slurm.call("scontrol", "requeue", job)
    slurm.until(lambda: slurm.jobs().get(job) == "PD", "the job waits")
    assert slurm.driver.exclusions(job) == JobExclusions(True, frozenset({"node-00001"}), USER)
    slurm.call("scancel", job)
    slurm.until(lambda: slurm.driver.exclusions(job) is None, "the job has ended")


def test_unknown_and_invalid_jobs(slurm: Any) -> None:
    assert slurm.driver.exclusions("999999") is None
    with pytest.raises(DriverError, match="not a valid job number"):
        slurm.driver.exclusions("12;reboot")
    job = submit_held(slurm, "--array=0-2")
    with pytest.raises(DriverError, match="expected one such as"):
        slurm.driver.exclusions(job)
