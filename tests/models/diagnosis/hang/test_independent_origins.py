"""Several faulty ranks of a generated job: all of them are culprits, and no other rank is."""

from __future__ import annotations

from hypothesis import given
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
def stopped_jobs(draw: st.DrawFn) -> StoppedJob:
    """Draw a job with up to three faulty ranks."""
    sizes = draw(
        st.sampled_from([(1, 1, 8), (2, 1, 4), (1, 4, 3), (2, 2, 2), (4, 2, 3), (2, 4, 4)])
    )
    steps = programs(*sizes)
    ranks = draw(st.lists(st.sampled_from(sorted(steps)), max_size=3, unique=True))
    faults = {
        rank: Fault(draw(st.integers(0, len(steps[rank]) - 1)), draw(st.booleans()))
        for rank in ranks
    }
    return StoppedJob(sizes, faults, draw(st.sampled_from([1, 2, 4, 100])), draw(st.booleans()))


def diagnosis(job: StoppedJob) -> Diagnosis:
    ranks = Ranks({rank: Rank(rank) for rank in job.programs}, listed=False)
    operations, at = job.operations(), BEGIN + HOUR
    finding = wait_finding(find_stalls(operations, ranks))
    probe = collective_probe(operations, at)
    return fuse_findings([finding] if finding else [], [probe], (), ranks=ranks, at=at)


@given(stopped_jobs())
def test_culprits_are_stopped_ranks(job: StoppedJob) -> None:
    verdict, stopped = diagnosis(job), job.stopped()
    culprits = {culprit.rank for culprit in verdict.culprits}
    assert culprits <= job.at_fault()
    assert not verdict.cause or "deadlock" not in verdict.cause
    if job.is_clear():
        assert culprits == stopped
    assert verdict.rank == (next(iter(culprits)) if len(culprits) == 1 else None)
