"""NCCL RAS in a job's folder: who is behind counts in a hang, and nowhere else."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.pipelines.diagnosis.conftest import OPEN, PutDump
from tests.pipelines.diagnosis.monitors.conftest import (
    HUNG_AT,
    MOVING_AT,
    SIZE,
    Diagnose,
    PutLogs,
    names,
)
from tests.pipelines.diagnosis.monitors.ras_answers import Answer

FORMS = ("text", "json")
EVERY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=8,
    phases=(Phase.explicit, Phase.generate),
)


def put_answer(folder: Path, answer: Answer, form: str, name: str = "status") -> None:
    (folder / name).write_text(answer.text() if form == "text" else answer.json())


@EVERY
@given(rank=st.integers(0, SIZE - 1), lag=st.integers(1, 4), form=st.sampled_from(FORMS))
def test_rank_behind_in_hang_is_named(
    put_logs: PutLogs, diagnose: Diagnose, rank: int, lag: int, form: str
) -> None:
    folder = put_logs()
    put_answer(folder, Answer([80 - lag * (r == rank) for r in range(SIZE)], time=""), form)
    verdict = diagnose(folder, HUNG_AT)
    assert (verdict["kind"], verdict["rank"]) == ("hang", rank)
    assert verdict["evidence_from"] == ["dump"]
    read_as = {row["path"]: row["read_as"] for row in verdict["files"]}
    assert read_as["status"] == "status of communicators by NCCL RAS"


@EVERY
@given(rank=st.integers(0, SIZE - 1), is_dead=st.booleans(), form=st.sampled_from(FORMS))
def test_lost_rank_in_hang_is_named(
    put_logs: PutLogs, diagnose: Diagnose, rank: int, is_dead: bool, form: str
) -> None:
    folder = put_logs()
    other = (rank + 5) % SIZE  # behind, because it waits for the lost one elsewhere
    counts = [80 - (r == other) for r in range(SIZE)]
    lost = {"dead": [rank]} if is_dead else {"unresponsive": [rank]}
    put_answer(folder, Answer(counts, time="", **lost), form)  # type: ignore[arg-type]
    verdict = diagnose(folder, HUNG_AT)
    assert (verdict["kind"], verdict["rank"]) == ("hang", rank)


@EVERY
@given(
    behind=st.dictionaries(st.integers(0, SIZE - 1), st.integers(1, 3), max_size=6),
    lost=st.sets(st.integers(0, SIZE - 1), max_size=1),
    form=st.sampled_from(FORMS),
)
def test_snapshot_of_moving_job_accuses_none(
    put_logs: PutLogs, diagnose: Diagnose, behind: dict[int, int], lost: set[int], form: str
) -> None:
    folder = put_logs()
    put_answer(folder, Answer([90 - behind.get(r, 0) for r in range(SIZE)], lost), form)
    verdict = diagnose(folder, MOVING_AT)
    assert (verdict["kind"], names(verdict), verdict["also"]) == ("none", set(), [])


@pytest.mark.parametrize("form", FORMS)
def test_healthy_snapshot_accuses_none(put_logs: PutLogs, diagnose: Diagnose, form: str) -> None:
    folder = put_logs()
    put_answer(folder, Answer([90] * SIZE, time=""), form)
    verdict = diagnose(folder, HUNG_AT)
    assert (verdict["kind"], names(verdict), verdict["also"]) == ("hang", set(), [])


@pytest.mark.parametrize("form", FORMS)
def test_single_snapshot_alone_is_unknown(tmp_path: Path, diagnose: Diagnose, form: str) -> None:
    put_answer(tmp_path, Answer([90] * 15 + [89]), form)
    verdict = diagnose(tmp_path)
    assert (verdict["kind"], names(verdict)) == ("unknown", set())
    assert [candidate["rank"] for candidate in verdict["also"]] == [15]
    assert "a later status" in verdict["cause"]


def test_equal_snapshots_minutes_apart_show_hang(tmp_path: Path, diagnose: Diagnose) -> None:
    counts = [90] * 12 + [88] + [90] * 3
    for minute in (30, 36):
        put_answer(tmp_path, Answer(counts, time=f"2026-05-02 09:{minute}:00"), "json", f"{minute}")
    verdict = diagnose(tmp_path)
    assert (verdict["kind"], verdict["rank"], verdict["machine"]) == ("hang", 12, "10.1.0.4")


def test_wait_for_rank_0_may_be_intended(tmp_path: Path, diagnose: Diagnose) -> None:
    for minute in (30, 36):  # such as while it saves
        answer = Answer([89] + [90] * 15, time=f"2026-05-02 09:{minute}:00")
        put_answer(tmp_path, answer, "json", f"{minute}")
    verdict = diagnose(tmp_path)
    assert (verdict["kind"], names(verdict)) == ("unknown", set())


def test_loop_in_a_shell_shows_hang(tmp_path: Path, diagnose: Diagnose) -> None:
    text = Answer([90] * 6 + [89] + [90] * 9).text()
    dates = [f"Sat May  2 09:{minute}:00 UTC 2026" for minute in (30, 35, 40)]
    (tmp_path / "ras.log").write_text("".join(f"{date}\n{text}" for date in dates))
    verdict = diagnose(tmp_path)
    assert (verdict["kind"], verdict["rank"]) == ("hang", 6)


def test_snapshots_that_move_say_nothing(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    for count in (50, 60):
        put_answer(folder, Answer([count] * 15 + [count - 1], time=""), "text", f"ras.{count}")
    verdict = diagnose(folder, HUNG_AT)
    assert (verdict["kind"], verdict["also"]) == ("hang", [])


def test_snapshot_before_stall_says_nothing(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    put_answer(folder, Answer([40] * 15 + [39], time="2026-05-02 09:02:00"), "json")
    verdict = diagnose(folder, HUNG_AT)
    assert (verdict["kind"], verdict["also"]) == ("hang", [])


@pytest.mark.parametrize("is_listed", [True, False])
def test_dead_node_is_the_machine(put_logs: PutLogs, diagnose: Diagnose, is_listed: bool) -> None:
    folder = put_logs(is_listed)
    put_answer(folder, Answer([70] * SIZE, dead=range(4, 8), time=""), "text")
    verdict = diagnose(folder, HUNG_AT)
    assert (verdict["kind"], verdict["machine"]) == ("hang", "trn-1" if is_listed else "10.1.0.2")


def test_majority_behind_is_no_culprit(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    put_answer(folder, Answer([70] * 14 + [71] * 2, time=""), "text")  # two ranks are ahead
    assert names(diagnose(folder, HUNG_AT)) == set()


def test_different_orders_accuse_none(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    answer = json.loads(Answer([70] * SIZE, time="").json())
    rows = answer["communicators"][0]["ranks"]
    rows[3]["collective_counts"] = {"AllReduce": 71, "Reduce": 0}
    rows[9]["collective_counts"] = {"AllReduce": 70, "Reduce": 1}
    rows[12]["collective_counts"] = {"AllReduce": 69, "Reduce": 1}
    rows[13]["collective_counts"] = {"AllReduce": 70, "Reduce": 0}
    (folder / "status.json").write_text(json.dumps(answer))
    assert names(diagnose(folder, HUNG_AT)) == set()


def test_smaller_communicator_is_mapped_by_process(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs(is_listed=False)
    answer = json.loads(Answer([70] * SIZE, time="").json())
    whole = answer["communicators"][0]
    part = [dict(row, rank=n) for n, row in enumerate(whole["ranks"][2::4])]
    part[2] |= {"collective_counts": {"AllReduce": 4, "Reduce": 0}}
    answer["communicators"].append({"hash": "0xb", "size": 4, "ranks": part, "missing_ranks": []})
    (folder / "status.json").write_text(json.dumps(answer))
    assert diagnose(folder, HUNG_AT)["rank"] == 10


def test_broken_answer_is_one_note(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    (folder / "a.txt").write_text(Answer([70] * 15 + [69]).text().partition("Warnings")[0])
    (folder / "b.json").write_text(Answer([70] * 15 + [69]).json()[:900])
    verdict = diagnose(folder, HUNG_AT)
    assert len([line for line in verdict["blind"] if line.startswith("ras: ")]) == 2
    assert [row["read_as"] for row in verdict["files"] if row["path"] in "a.txt b.json"] == [
        None
    ] * 2


def test_archive_with_answer_is_read(put_logs: PutLogs, diagnose: Diagnose, tmp_path: Path) -> None:
    folder = put_logs()
    put_answer(folder / "logs", Answer([70] * 7 + [69] + [70] * 8, time=""), "text", "ras.out")
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        for name in ("logs", "ranks.csv"):
            archive.add(folder / name, f"job/{name}")
    assert diagnose(tmp_path / "job.tar.gz", HUNG_AT)["rank"] == 7


def test_time_out_leads_to_the_dead_rank(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    line = (
        "[rank{0}]:[E502 09:34:50.000000000 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=64, "
        "NumelOut=64, Timeout(ms)=1800000) ran for 1800012 milliseconds before timing out.\n"
    )
    for rank in {*range(SIZE)} - {5}:
        with (folder / "logs" / f"{rank}.log").open("a") as stream:
            stream.write(line.format(rank))
    put_answer(folder, Answer([31] * SIZE, dead=[5], time=""), "text")
    verdict = diagnose(folder)
    assert (verdict["kind"], verdict["rank"]) == ("crash", 5)


def test_error_of_another_rank_comes_first(put_logs: PutLogs, diagnose: Diagnose) -> None:
    folder = put_logs()
    with (folder / "logs" / "9.log").open("a") as stream:
        stream.write(
            "2026-05-02 09:04:58,000 - ERROR - torch.OutOfMemoryError: CUDA out of memory.\n"
        )
    put_answer(folder, Answer([30 - (r == 2) for r in range(SIZE)], time=""), "text")
    verdict = diagnose(folder)
    assert (verdict["kind"], verdict["rank"]) == ("crash", 9)


def test_dumps_outweigh_the_status(put_dump: PutDump, diagnose: Diagnose) -> None:
    for rank in range(4):
        rows = [("dp0", seq, seq * 2.0) for seq in range(4)]
        folder = put_dump(rank, rows if rank == 2 else [*rows, ("dp0", 4, 8.0, OPEN)])
    put_answer(folder, Answer([5, 4, 5, 5], time=""), "json")
    verdict = diagnose(folder, "2026-11-22T02:00:00Z")
    assert (verdict["kind"], verdict["rank"]) == ("hang", 2)
    assert verdict["also"] == []  # rank 1 waits in its dump
