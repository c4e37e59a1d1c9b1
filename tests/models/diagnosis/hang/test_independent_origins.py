"""Several faulty ranks of a generated job: all of them are culprits, and no other rank is."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given, note
from hypothesis import strategies as st
from tests.models.diagnosis.hang.stopped_job import BEGIN, Fault, StoppedJob, programs

from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.time_units import HOUR
from forewarn.models.diagnosis.hang.stalls import find_stalls
from forewarn.models.diagnosis.hang.wait_graph import wait_finding
from forewarn.models.diagnosis.probes.collective_probe import collective_probe
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.models.diagnosis.verdict_fusion import fuse_findings


@st.composite
def stopped_jobs(draw: st.DrawFn, max_faults: int = 3) -> StoppedJob:
    """Draw a job with a few faulty ranks."""
    sizes = draw(
        st.sampled_from([(1, 1, 8), (2, 1, 4), (1, 4, 3), (2, 2, 2), (4, 2, 3), (2, 4, 4)])
    )
    steps = programs(*sizes)
    ranks = draw(st.lists(st.sampled_from(sorted(steps)), max_size=max_faults, unique=True))
    faults = {
        rank: Fault(draw(st.integers(0, len(steps[rank]) - 1)), draw(st.booleans()))
        for rank in ranks
    }
    return StoppedJob(sizes, faults, draw(st.sampled_from([1, 2, 4, 100])), draw(st.booleans()))


def diagnosis(job: StoppedJob, without: Collection[int] = ()) -> Diagnosis:
    ranks = Ranks({rank: Rank(rank) for rank in job.programs}, listed=False)
    operations, at = job.operations(without), BEGIN + HOUR
    finding = wait_finding(find_stalls(operations, ranks), len(without))
    probe = collective_probe(operations, at)
    return fuse_findings([finding] if finding else [], [probe], (), ranks=ranks, at=at)


@given(stopped_jobs())
def test_culprits_are_stopped_ranks(job: StoppedJob) -> None:
    note(repr(job))
    verdict, stopped = diagnosis(job), job.stopped()
    culprits = {culprit.rank for culprit in verdict.culprits}
    assert culprits <= job.at_fault()
    assert not verdict.cause or "deadlock" not in verdict.cause
    if job.is_clear():
        assert culprits == stopped
    assert verdict.rank == (next(iter(culprits)) if len(culprits) == 1 else None)


@given(stopped_jobs(max_faults=1), st.data())
def test_missing_dumps_name_no_healthy_rank(job: StoppedJob, data: st.DataObject) -> None:
    ranks = sorted(job.programs)
    without = data.draw(st.lists(st.sampled_from(ranks), min_size=1, max_size=4, unique=True))
    culprits = {culprit.rank for culprit in diagnosis(job, without).culprits}
    assert culprits <= job.at_fault()
