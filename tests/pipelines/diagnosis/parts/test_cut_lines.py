"""Logs in which a line of an innocent rank breaks off: by a kill, a terminal, or another writer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.pipelines.diagnosis.loaded_job import read_job

WAITS = {
    "watchdog": "[rank{r}]:[E424 01:11:21.16083273{r} ProcessGroupNCCL.cpp:629] [Rank {r}] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, "
    "NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 180001{r} milliseconds.",
    "exception": "[rank{r}]: torch.distributed.DistBackendError: NCCL error in: "
    "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there was "
    "a network error, NCCL version 2.21.5",
    "srun": "{r}: [E424 01:11:21.16083273{r} ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, Timeout(ms)=600000)",
    "elastic": "[default{r}]:[rank{r}]:[E ProcessGroupNCCL.cpp:684] [Rank {r}] failure detected "
    "by watchdog at work sequence id: 167 PG status: last enqueued work: 167, last completed: 166",
}
SHORTEST = 56  # characters that are left of a line: more than its labels and a name


def culprits(files: dict[str, list[str]]) -> set[int | None]:
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in files.items():
            path = Path(folder, "job", "logs", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n")
        _, verdict = read_job(Path(folder, "job")).judge(None)[:2]
    return {culprit.rank for culprit in verdict.culprits}


def cut(lines: list[str], at: int, how: str) -> list[list[str]]:
    """Return the lines of each rank; that of rank 3 is cut, or the next one is written into it."""
    parts = [[line] for line in lines]
    head, tail = lines[3][:at], lines[3][at:]
    match how:
        case "killed":
            parts[3] = [head]
        case "wrapped":
            parts[3] = [head, tail]
        case "mixed":
            parts[3], parts[4] = [head + lines[4]], [tail]
        case "rotated":
            parts[3] = [tail]
    return parts


@pytest.mark.parametrize("form", WAITS)
@pytest.mark.parametrize("how", ["killed", "wrapped", "mixed"])
@settings(max_examples=12)
@given(data=st.data())
def test_cut_line_in_console_accuses_no_rank(form: str, how: str, data: st.DataObject) -> None:
    lines = [WAITS[form].format(r=rank) for rank in range(8)]
    at = data.draw(st.integers(SHORTEST, len(lines[3]) - 1))
    parts = cut(lines, at, how)
    assert culprits({"console.log": [line for part in parts for line in part]}) == set()


@pytest.mark.parametrize("form", WAITS)
@pytest.mark.parametrize("how", ["killed", "wrapped", "rotated"])
@settings(max_examples=12)
@given(data=st.data())
def test_cut_line_in_own_file_accuses_no_rank(form: str, how: str, data: st.DataObject) -> None:
    lines = [WAITS[form].format(r=rank) for rank in range(8)]
    at = data.draw(st.integers(SHORTEST, len(lines[3]) - SHORTEST))
    parts = cut(lines, at, how)
    files = {f"rank{rank}.log": part for rank, part in enumerate(parts)}
    assert culprits(files) == set()


@pytest.mark.parametrize(
    "own",
    [
        ["step 3 loss 1.2"],
        ["RuntimeError: CUDA error: an illegal memory access was encountered"],
        ["RuntimeError:", "the shard of step 3 is empty"],
    ],
)
def test_rank_with_whole_lines_is_still_accused(own: list[str]) -> None:
    files = {f"rank{rank}.log": [WAITS["watchdog"].format(r=rank)] for rank in range(8)}
    files["rank3.log"] = own
    assert culprits(files) == {3}
