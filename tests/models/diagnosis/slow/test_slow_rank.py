"""Slow ranks without recorded sends and receives, and with missing dumps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.slow.lateness import Lateness
from forewarn.models.diagnosis.slow.slow_rank import slow_finding

# Tensor groups of 2 (0 and 1, 2 and 3, ...), 2 stages (the second from rank 8), 4 copies.
RANKS = Ranks({n: Rank(n, f"m{n // 4}", tp=n % 2, dp=n // 2 % 4, pp=n // 8) for n in range(16)})


def lateness(late: Mapping[int, float], without: tuple[int, ...] = ()) -> dict[int, Lateness]:
    """Return 20 steps of 2 s per rank, with some late ranks."""
    begin = np.arange(20, dtype=np.int64) * 2 * SECOND
    noise = np.random.default_rng(1).normal(0.0, 0.002, (16, 20))
    return {
        rank: Lateness(rank, 1.0 + late.get(rank, 0.0) + noise[rank], begin, 2.0)
        for rank in RANKS.table
        if rank not in without
    }


def candidates(
    late: Mapping[int, float],
    without: tuple[int, ...] = (),
    possible_waits: Mapping[int, frozenset[int]] | None = None,
    lacks_p2p: bool = True,
) -> dict[int | None, float]:
    finding = slow_finding(
        lateness(late, without), RANKS, possible_waits=possible_waits, lacks_p2p=lacks_p2p
    )
    return {} if finding is None else {c.rank: c.weight for c in finding.candidates}


STAGES = {3: 0.4, 10: 0.4, 11: 0.41}  # 3 is slow; 10 and 11 wait for its output


def test_waiting_pipeline_stage_is_not_slow() -> None:
    assert candidates(STAGES) == {3: 1.0}
    assert set(candidates(STAGES, lacks_p2p=False)) == {3, 10, 11}


def test_later_rank_than_slow_one_is_slow() -> None:
    assert set(candidates(STAGES | {10: 0.8, 11: 0.8})) == {3, 10, 11}


def test_all_late_partners_make_all_stages_candidates() -> None:
    assert set(candidates(STAGES | {2: 0.4})) == {2, 3, 10, 11}
    assert set(candidates(STAGES, without=(2,))) == {3, 10, 11}


@pytest.mark.parametrize(("partner", "weight"), [(0.0, 1.0), (0.4, 0.5)])
def test_missing_dump_must_delay_all_partners(partner: float, weight: float) -> None:
    """Of four tensor partners, 3 is late and 1 left no dump; 1 would also delay 0 and 2."""
    ranks = Ranks({n: Rank(n, f"m{n // 4}", tp=n % 4, dp=n // 4, pp=0) for n in range(16)})
    measured = lateness({2: partner, 3: 0.4, 0: partner}, without=(1,))
    finding = slow_finding(measured, ranks, possible_waits={3: frozenset({1})})
    assert finding is not None
    assert {c.rank: c.weight for c in finding.candidates}[3] == pytest.approx(weight, rel=0.01)
