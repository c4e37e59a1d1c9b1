"""NCCL inspector in a job's folder: the rank that all others wait for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.pipelines.diagnosis.monitors.conftest import Diagnose, PutLogs, names
from tests.pipelines.diagnosis.monitors.inspector_files import entry_times, put_records

EVERY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=12,
    phases=(Phase.explicit, Phase.generate),
)
N_RANKS = 8


@EVERY
@given(
    seed=st.integers(0, 10**6),
    rank=st.integers(0, N_RANKS - 1),
    per_step=st.sampled_from([1, 4]),
    is_verbose=st.booleans(),
)
def test_late_rank_is_named(
    tmp_path_factory: pytest.TempPathFactory,
    diagnose: Diagnose,
    seed: int,
    rank: int,
    per_step: int,
    is_verbose: bool,
) -> None:
    folder = tmp_path_factory.mktemp("job")
    compute = entry_times(np.random.default_rng(seed), N_RANKS, 60, per_step, 0.5)
    compute[::per_step, rank] += 0.3  # once a step
    put_records(folder, compute, is_verbose=is_verbose)
    verdict = diagnose(folder)
    assert (verdict["kind"], verdict["rank"]) == ("slow", rank)
    assert (verdict["machine"], verdict["evidence_from"]) == (f"trn-{rank // 4}", ["metrics"])
    assert verdict["probes"]["collective"]["state"] == "active"
    read_as = {row["read_as"] for row in verdict["files"]}
    assert read_as == {f"NCCL inspector, {60 * per_step} collectives"}


@EVERY
@given(
    seed=st.integers(0, 10**6),
    spread=st.floats(0.0, 0.3),
    offset=st.floats(0.0, 0.03),
    transfer=st.floats(0.001, 1.0),
)
def test_healthy_ranks_accuse_none(
    tmp_path_factory: pytest.TempPathFactory,
    diagnose: Diagnose,
    seed: int,
    spread: float,
    offset: float,
    transfer: float,
) -> None:
    folder, rng = tmp_path_factory.mktemp("job"), np.random.default_rng(seed)
    compute = entry_times(rng, N_RANKS, 30, 4, 0.5) * (1 + spread * rng.random((120, N_RANKS)))
    compute[:, 0] *= 1 + offset  # rank 0 also writes the log
    put_records(folder, compute, transfer=transfer)
    verdict = diagnose(folder)
    assert (verdict["kind"], names(verdict), verdict["also"]) == ("none", set(), [])


def test_victim_in_other_group_is_not_named(tmp_path: Path, diagnose: Diagnose) -> None:
    """Rank 1 is slow; rank 5 waits for it in one group, and is late in the next one."""
    rng = np.random.default_rng(3)
    whole = entry_times(rng, 16, 60, 1, 0.5)
    put_records(tmp_path, whole, name="0xffff")
    first = entry_times(rng, 4, 60, 1, 0.5)
    first[:, 1] += 0.4
    put_records(tmp_path, first, name="0xa1", members=[0, 1, 2, 5])
    second = entry_times(rng, 4, 60, 1, 0.5)
    second[:, 0] += 0.4
    put_records(tmp_path, second, name="0xb2", members=[5, 9, 10, 11])
    assert diagnose(tmp_path)["rank"] == 1


@pytest.mark.parametrize("cause", ["a rank without a file", "a single dump at the end"])
def test_records_that_tell_too_little(tmp_path: Path, diagnose: Diagnose, cause: str) -> None:
    compute = entry_times(np.random.default_rng(5), N_RANKS, 60, 1, 0.5)
    compute[:, 3] += 0.4
    put_records(tmp_path, compute, is_dumped_at_end=cause == "a single dump at the end")
    if cause == "a rank without a file":
        (tmp_path / "host-pid9005.log").unlink()
    assert names(diagnose(tmp_path)) == set()


def test_last_record_dates_the_stall(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs(n_steps=6)  # logs end at 09:00:50
    put_records(folder, entry_times(np.random.default_rng(7), 16, 90, 1, 0.5))
    verdict = diagnose(folder, "2026-05-02T09:50:00Z")
    probe = verdict["probes"]["collective"]
    assert (verdict["kind"], probe["state"], probe["since"][:16]) == (
        "hang",
        "idle",
        "2026-05-02T09:00",
    )
    assert "AllReduce 189 of communicator 0xa1" in probe["why"]
    assert names(verdict) == set()


def test_cut_record_is_left_out(tmp_path: Path, diagnose: Diagnose) -> None:
    compute = entry_times(np.random.default_rng(9), N_RANKS, 60, 1, 0.5)
    compute[:, 6] += 0.4
    put_records(tmp_path, compute, n_broken=40)
    assert diagnose(tmp_path)["rank"] == 6
    (tmp_path / "cut.log").write_text('{"header": {"id": "0x1"}, "metadata": {}, "coll_perf": {"co')
    verdict = diagnose(tmp_path)
    (note,) = (line for line in verdict["blind"] if line.startswith("inspector: "))
    assert "cut.log contains no whole record" in note


def test_large_files_are_read_from_their_end(
    tmp_path: Path, diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "forewarn.pipelines.diagnosis.monitors.inspector_part._MAX_TOTAL_BYTES", N_RANKS * 40_000
    )
    compute = entry_times(np.random.default_rng(11), N_RANKS, 400, 1, 0.5)
    compute[:200, 2] += 0.4  # repaired since
    compute[200:, 4] += 0.4
    put_records(tmp_path, compute)
    assert diagnose(tmp_path)["rank"] == 4
