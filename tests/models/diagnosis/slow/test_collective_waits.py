"""Slow rank from times in collectives: planted ones, and healthy jobs with noise of many kinds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.array_types import Float64Array
from forewarn.features.diagnosis.communicators.communicator_state import GpuProcess
from forewarn.features.diagnosis.communicators.inspector_records import RankCollectives
from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.models.diagnosis.slow.collective_waits import collective_wait_findings

NOISE = ("lognormal", "pauses", "offsets", "loader")
STEPS, PER_STEP = 30, 4


def compute_times(rng: np.random.Generator, n_ranks: int, noise: str) -> Float64Array:
    """Return the seconds before each collective, by rank."""
    times = np.full((STEPS * PER_STEP, n_ranks), 0.1)
    if noise == "lognormal":
        times *= rng.lognormal(0, 0.4, times.shape)
    elif noise == "pauses":
        times += (rng.random(times.shape) < 0.01) * rng.exponential(1.0, times.shape)
    elif noise == "offsets":
        times *= 1 + 0.06 * rng.random(n_ranks)
    else:
        times += 0.2 * rng.random((len(times), 1)) + 0.05 * rng.random(times.shape)
    return times


def recorded(rng: np.random.Generator, compute: Float64Array) -> list[RankCollectives]:
    n_operations, n_ranks = compute.shape
    inside, ends = np.zeros(compute.shape), np.zeros(n_operations)
    now = 0.0
    for number in range(n_operations):
        entered = now + compute[number]
        now = float(entered.max()) + rng.uniform(0.01, 0.1)
        inside[number] = (now - entered) * (1 + 0.03 * rng.standard_normal(n_ranks))
        ends[number] = now
    numbers, times = np.arange(n_operations), 1.77e15 + 1e6 * ends
    return [
        RankCollectives(
            "0xa",
            n_ranks,
            rank,
            GpuProcess("m0", 100 + rank),
            "AllReduce",
            np.stack([numbers, 1e6 * inside[:, rank], times], axis=1).astype(np.int64),
        )
        for rank in range(n_ranks)
    ]


def table(n_ranks: int) -> Ranks:
    return Ranks({rank: Rank(rank, f"m{rank // 8}") for rank in range(n_ranks)})


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6), n_ranks=st.sampled_from([4, 8, 32]), noise=st.sampled_from(NOISE)
)
def test_noise_accuses_no_rank(seed: int, n_ranks: int, noise: str) -> None:
    rng = np.random.default_rng(seed)
    records = recorded(rng, compute_times(rng, n_ranks, noise))
    assert collective_wait_findings(records, table(n_ranks)) == []


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6), n_ranks=st.sampled_from([4, 8, 32]), noise=st.sampled_from(NOISE)
)
def test_first_candidate_is_the_late_rank(seed: int, n_ranks: int, noise: str) -> None:
    rng = np.random.default_rng(seed)
    late = int(rng.integers(n_ranks))
    compute = compute_times(rng, n_ranks, noise)
    compute[::PER_STEP, late] += 0.4
    findings = collective_wait_findings(recorded(rng, compute), table(n_ranks))
    assert findings or noise == "pauses"  # of a second, which may hide a delay of 0.4 s
    assert {finding.candidates[0].rank for finding in findings} <= {late}


@pytest.mark.parametrize("size", [2, 3])
def test_few_ranks_are_not_compared(size: int) -> None:
    rng = np.random.default_rng(1)
    compute = compute_times(rng, size, "offsets")
    compute[:, 0] += 0.4
    assert collective_wait_findings(recorded(rng, compute), table(size)) == []
