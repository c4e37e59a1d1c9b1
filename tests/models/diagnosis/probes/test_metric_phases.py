"""Training steps inferred from metrics."""

from __future__ import annotations

import numpy as np

from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.probes.metric_phases import work_phases


def samples(moving: list[bool], busy: list[bool], n_ranks: int = 4) -> RankSamples:
    """Return a sample every 15 s; each flag covers one minute and all ranks."""
    time = np.arange(4 * len(moving) + 1) * 15 * SECOND
    flags = np.repeat([moving, busy], 4, axis=1)
    counter = np.concatenate([[0.0], np.cumsum(flags[0] * 1e9)])
    gpu = np.concatenate([[0.0], flags[1] * 90.0])
    ranks = np.repeat(np.arange(n_ranks) * 1000, len(time))
    values = {"rdma_tx_bytes": np.tile(counter, n_ranks), "gpu_utilization": np.tile(gpu, n_ranks)}
    return RankSamples.from_columns(ranks, np.tile(time, n_ranks), values)


def ends(moving: list[bool], busy: list[bool], **of: int) -> list[float]:
    phases = work_phases(samples(moving, busy, **of), 4)
    assert all(phase.begin == phase.end and phase.kind == "first step" for phase in phases)
    return [phase.begin / MINUTE for phase in phases]


def test_three_minutes_of_work_end_first_step() -> None:
    work = [False, False, True, True, True, True, False, True, True, True, False]
    assert ends(work, work) == [5.0, 10.0]


def test_loading_compiling_and_tuning_are_not_steps() -> None:
    on, off = [True] * 6, [False] * 6
    assert ends(on, off) == []  # loading a data set
    assert ends(off, off) == []
    assert ends(off, on) == []  # tuning kernels


def test_two_minutes_or_half_of_ranks_insufficient() -> None:
    assert ends([True, True, False] * 2, [True] * 6) == []
    assert ends([True] * 6, [True] * 6, n_ranks=2) == []


def test_missing_utilization_gives_no_phase() -> None:
    known = samples([True] * 6, [True] * 6)
    del known.values["gpu_utilization"]  # type: ignore[attr-defined]
    assert work_phases(known, 4) == []
