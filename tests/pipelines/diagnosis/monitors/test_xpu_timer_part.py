"""XPUTimer in a job's folder: ranks in no kernel while others hang, and slow GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.pipelines.diagnosis.monitors.conftest import (
    HUNG_AT,
    MOVING_AT,
    SIZE,
    Diagnose,
    PutLogs,
    names,
)

PER_POD = 4
EVERY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=8,
    phases=(Phase.explicit, Phase.generate),
)


def scrape(
    ranks: Collection[int],
    hung: Collection[int] = (),
    flops: Mapping[int, float] | None = None,
    saving: str = "12",
) -> str:
    """Return the metrics of a pod; stacks of ranks that hang were saved in `saving` seconds."""
    lines = ["# TYPE exposer_scrapes_total counter", "exposer_scrapes_total 812"]
    for level in (7, 9):
        lines.append("# TYPE XPU_TIMER_MM_KERNEL_FLOPS gauge")
        for rank in ranks:
            speed = (flops or {}).get(rank, 400.0 + rank % 3) * (1.0 if level == 9 else 0.8)
            labels = label(rank, f'dtype="bf16",level="{level}",operation="Matmul",')
            lines.append(f"XPU_TIMER_MM_KERNEL_FLOPS{{{labels}}} {speed}")
    for name, value in (("HANG", "1"), ("START_DUMP", "1"), ("END_DUMP", saving)):
        lines.append(f"# TYPE XPU_TIMER_COMMON_{name} gauge")
        lines += [
            f"XPU_TIMER_COMMON_{name}{{{label(rank)}}} {value if rank in hung else 0}"
            for rank in ranks
        ]
    return "\n".join(lines) + "\n"


def label(rank: int, more: str = "") -> str:
    pod = f'ip="10.2.0.{rank // PER_POD}",job_name="j",pod_name="worker-{rank // PER_POD}"'
    return f'{more}{pod},local_rank="{rank % PER_POD}",rank="{rank}"'


def put_scrapes(
    folder: Path, hung: Collection[int], flops: Mapping[int, float] | None = None, **more: str
) -> None:
    for pod in range(SIZE // PER_POD):
        ranks = range(PER_POD * pod, PER_POD * (pod + 1))
        (folder / f"metrics-{pod}.prom").write_text(scrape(ranks, hung, flops, **more))


@EVERY
@given(rank=st.integers(1, SIZE - 1), is_alone=st.booleans())
def test_rank_without_kernel_is_named(
    put_logs: PutLogs, diagnose: Diagnose, tmp_path: Path, rank: int, is_alone: bool
) -> None:
    folder = tmp_path / "alone" if is_alone else put_logs()
    folder.mkdir(exist_ok=True)
    put_scrapes(folder, {*range(SIZE)} - {rank})
    verdict = diagnose(folder, "" if is_alone else HUNG_AT)
    assert (verdict["kind"], verdict["rank"]) == ("hang", rank)
    assert verdict["evidence_from"] == ["metrics"]
    if is_alone:
        assert verdict["machine"] == f"worker-{rank // PER_POD}"
    row = next(row for row in verdict["files"] if row["path"] == "metrics-1.prom")
    assert row["read_as"] == "XPUTimer metrics of ranks 4, 5, 6, 7"


@EVERY
@given(hung=st.sets(st.integers(0, SIZE - 1), max_size=SIZE // 2 - 1))
def test_few_ranks_that_hang_accuse_none(
    put_logs: PutLogs, diagnose: Diagnose, hung: set[int]
) -> None:
    folder = put_logs()
    put_scrapes(folder, hung)
    verdict = diagnose(folder, MOVING_AT)
    assert (verdict["kind"], names(verdict), verdict["also"]) == ("none", set(), [])


def test_rank_0_without_kernel_may_save(tmp_path: Path, diagnose: Diagnose) -> None:
    put_scrapes(tmp_path, range(1, SIZE))
    verdict = diagnose(tmp_path)
    assert (verdict["kind"], names(verdict)) == ("unknown", set())
    assert [candidate["rank"] for candidate in verdict["also"]] == [0]


def test_all_ranks_in_kernel_hang_without_culprit(tmp_path: Path, diagnose: Diagnose) -> None:
    put_scrapes(tmp_path, range(SIZE))
    verdict = diagnose(tmp_path)
    assert (verdict["kind"], names(verdict)) == ("hang", set())
    assert verdict["evidence"][0]["says"] == "16 ranks are in a kernel for minutes"


def test_pod_of_another_time_accuses_none(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    put_scrapes(folder, range(4, SIZE))  # the first pod was asked before the stall
    verdict = diagnose(folder, HUNG_AT)
    assert (verdict["kind"], names(verdict), verdict["also"]) == ("hang", set(), [])


@pytest.mark.parametrize("missing", ["a pod", "the end of saving stacks"])
def test_incomplete_metrics_name_no_rank(
    put_logs: PutLogs, diagnose: Diagnose, missing: str
) -> None:
    folder = put_logs()
    put_scrapes(folder, {*range(SIZE)} - {5}, saving="12" if missing == "a pod" else "0")
    if missing == "a pod":
        (folder / "metrics-3.prom").unlink()
    verdict = diagnose(folder, HUNG_AT)
    assert (verdict["kind"], names(verdict)) == ("hang", set())
    assert [candidate["rank"] for candidate in verdict["also"]] == [5]


@pytest.mark.parametrize("has_coordinates", [True, False])
def test_slow_gpu_is_named_among_peers(
    put_logs: PutLogs, diagnose: Diagnose, has_coordinates: bool
) -> None:
    folder = put_logs()
    if has_coordinates:
        rows = [f"{r},trn-{r // 4},{r % 2},{r // 8},{r // 2 % 4}" for r in range(SIZE)]
        (folder / "ranks.csv").write_text("\n".join(["rank,machine,tp,pp,dp", *rows]) + "\n")
    stages = {rank: 300.0 if rank < 8 else 410.0 for rank in range(SIZE)}
    put_scrapes(folder, (), stages | {11: 240.0})
    verdict = diagnose(folder, MOVING_AT)
    assert (verdict["kind"], verdict["rank"]) == (
        ("slow", 11) if has_coordinates else ("none", None)
    )
    put_scrapes(folder, (), stages)
    assert diagnose(folder, MOVING_AT)["kind"] == "none"


def test_broken_metrics_are_one_note(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    (folder / "cut.prom").write_text('XPU_TIMER_COMMON_HANG{ip="10.2.0.1",rank="3"')
    (folder / "odd.prom").write_text('XPU_TIMER_COMMON_HANG{rank="x"} 1\nXPU_TIMER_A{rank="1"} z\n')
    verdict = diagnose(folder, MOVING_AT)
    assert sum(line.startswith("xpu_timer: ") for line in verdict["blind"]) == 2
    assert verdict["kind"] == "none"
