"""Verdicts on jobs of which some output was not collected."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.features.errors import InputError
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.runtime.timestamps import parse_moment

HEADER = "rank,stream,goes_to,reason\n"
TIMEOUT = (
    "2026-11-22 10:{minute:02}:00 [rank{rank}]:[E] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)


def write_job(folder: Path, *, timed_out: int, unseen: str = "", ranks: int = 4) -> Path:
    """Write a job whose ranks step for 20 minutes, and then wait for one another."""
    (folder / "logs").mkdir(parents=True)
    rows = "".join(f"{rank},node-{rank},0\n" for rank in range(ranks))
    (folder / "ranks.csv").write_text("rank,machine,local_rank\n" + rows)
    for rank in range(ranks):
        lines = [f"2026-11-22 10:{step:02}:00 step {step} loss 1.0\n" for step in range(20)]
        lines += [TIMEOUT.format(rank=rank, minute=30)] if rank < timed_out else []
        (folder / "logs" / f"{rank}.log").write_text("".join(lines))
    if unseen:
        (folder / "unseen_output").mkdir()
        (folder / "unseen_output" / "node-3.csv").write_text(HEADER + unseen)
    return folder


def judge(folder: Path, at: str | None = None) -> Diagnosis:
    return read_job(folder).judge(None if at is None else parse_moment(at))[1]


def test_silent_rank_is_named_only_if_seen(tmp_path: Path) -> None:
    seen = judge(write_job(tmp_path / "seen", timed_out=3))
    assert [culprit.rank for culprit in seen.culprits] == [3]
    unseen = judge(write_job(tmp_path / "unseen", timed_out=3, unseen="3,stderr,pipe,a pipe\n"))
    assert unseen.culprits == ()
    assert [candidate.rank for candidate in unseen.also] == [3]
    assert "the output of this rank was not seen" in unseen.also[0].why
    says = [evidence.says for evidence in unseen.evidence if evidence.rank == 3]
    assert says == ["rank 3: its output was not seen, exit code unknown"]
    assert "logs rank 3: stderr is a pipe" in unseen.blind


def test_silent_machine_is_named_only_if_seen(tmp_path: Path) -> None:
    def job(name: str, unseen: str) -> Diagnosis:
        folder = write_job(tmp_path / name, timed_out=3, unseen=unseen, ranks=5)
        table = folder / "ranks.csv"
        table.write_text(table.read_text().replace("4,node-4,0", "4,node-3,1"))
        return judge(folder)

    assert [culprit.machine for culprit in job("seen", "").culprits] == ["node-3"]
    assert job("unseen", "4,stdout,terminal,a terminal\n").culprits == ()


@pytest.mark.parametrize(
    ("unseen", "kind"),
    [("", "hang"), ("3,stdout,null,/dev/null\n", "hang"), ("3,stdout,pipe,a pipe\n", "unknown")],
)
def test_silence_of_unseen_rank_is_unknown(tmp_path: Path, unseen: str, kind: str) -> None:
    folder = write_job(tmp_path / "job", timed_out=0, unseen=unseen)
    assert judge(folder, "2026-11-22T12:30:00Z").kind == kind


def test_unseen_alone_is_unknown(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "job", timed_out=0, unseen="3,stdout,pipe,a pipe\n")
    for log in (folder / "logs").iterdir():
        log.unlink()
    verdict = judge(folder)
    assert verdict.kind == "unknown"
    assert "logs rank 3: stdout is a pipe" in verdict.blind


@pytest.mark.parametrize(
    ("table", "message"),
    [("rank,stream\n", "column `goes_to` is missing"), (HEADER + "x,,,\n", "column `rank` is 'x'")],
)
def test_broken_table_is_refused(tmp_path: Path, table: str, message: str) -> None:
    folder = write_job(tmp_path / "job", timed_out=0, unseen="3,stdout,pipe,a pipe\n")
    (folder / "unseen_output" / "node-3.csv").write_text(table)
    with pytest.raises(InputError, match=message):
        read_job(folder)
