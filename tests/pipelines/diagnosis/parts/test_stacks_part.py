"""Stacks in files of any form and name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

WAIT = [{"name": "all_reduce", "filename": "torch/distributed/distributed_c10d.py", "line": 9}]
LOAD = [
    {"name": "get", "filename": "queue.py", "line": 171},
    {"name": "__next__", "filename": "data/loader.py", "line": 66},
]
SAMPLE = "stacks/20261122T083000Z"
N_RANKS = 5


def json_stack(frames: list[dict[str, Any]], pid: int = 7) -> str:
    return json.dumps([{"pid": pid, "thread_name": "MainThread", "frames": frames}])


def text_stack(frames: list[dict[str, Any]], pid: int = 7, command: str = "python t.py") -> str:
    lines = [f"    {call['name']} ({call['filename']}:{call['line']})" for call in frames]
    header = [f"Process {pid}: {command}", "Python v3.12.1 (/usr/bin/python3)", ""]
    other = [f'Thread {pid + 1} (idle): "pin_memory"', "    wait (threading.py:1)"]
    main = [f'Thread {pid} (active+gil): "MainThread"', *lines]
    return "\n".join([*header, *other, *main, "\n"])


@pytest.fixture
def put(tmp_path: Path) -> Any:
    """Return `put(name, text)`, which writes a file of the job and returns the job's folder."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / "job" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return tmp_path / "job"

    return write


def put_ranks(put: Any, *, pids: bool = False) -> Path:
    rows = [f"{rank},m{rank // 2},{100 + rank if pids else ''}\n" for rank in range(N_RANKS)]
    job: Path = put("ranks.csv", "rank,machine,pid\n" + "".join(rows))
    return job


@pytest.mark.parametrize("name", ["{}.json", "rank_{}.txt", "py-spy-{}-20261122.log", "{}"])
@pytest.mark.parametrize("form", [json_stack, text_stack])
def test_rank_is_in_file_name(put: Any, diagnose: Any, name: str, form: Any) -> None:
    job = put_ranks(put)
    for rank in range(N_RANKS):
        put(f"{SAMPLE}/{name.format(rank)}", form(LOAD if rank == 3 else WAIT))
    verdict = diagnose(job, None)
    assert candidates(verdict) == [3]
    assert not [text for text in verdict["blind"] if text.startswith("stacks")]


def candidates(verdict: dict[str, Any]) -> list[int]:
    return [candidate["rank"] for candidate in verdict["also"]]


def test_one_file_has_several_processes(put: Any, diagnose: Any) -> None:
    job = put_ranks(put, pids=True)
    texts = [text_stack(LOAD if rank == 3 else WAIT, 100 + rank) for rank in range(N_RANKS)]
    helper = text_stack(LOAD, 500, "python -c from multiprocessing.spawn import spawn_main")
    put("debug/console 2026-11-22T08:30:00Z.txt", "".join([*texts, helper]))
    verdict = diagnose(job, None)
    assert candidates(verdict) == [3]
    assert verdict["at"] == "2026-11-22T08:30:00Z"


def test_rank_is_in_command_line(put: Any, diagnose: Any) -> None:
    job = put_ranks(put)
    texts = [
        text_stack(LOAD if rank == 3 else WAIT, 40, f"python t.py --local-rank 0 --rank {rank}")
        for rank in range(N_RANKS)
    ]
    put("stacks/20261122T083000Z.txt", "".join(texts))
    assert candidates(diagnose(job, None)) == [3]


def test_processes_of_unknown_rank_are_listed(put: Any, diagnose: Any) -> None:
    job = put_ranks(put)
    put(f"{SAMPLE}/all.txt", text_stack(WAIT, 1) + text_stack(WAIT, 2))
    put("logs/0.log", "2026-11-22 08:30:00 step 1\n")
    (note,) = [text for text in diagnose(job, None)["blind"] if text.startswith("stacks")]
    assert "all.txt has 2 processes of unknown rank" in note


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#0  0x00007f3a in __poll () from /lib/libc.so.6\n", "stacks of C functions"),
        ("see the ticket\n", "is not the output of py-spy dump"),
        ("[]", "contains no frame"),
        ('[{"frames": 1}]', "is truncated or not a stack"),
    ],
)
def test_other_files_are_listed(put: Any, diagnose: Any, text: str, reason: str) -> None:
    job = put_ranks(put)
    put(f"{SAMPLE}/3.json", text)
    put("logs/0.log", "2026-11-22 08:30:00 step 1\n")
    (note,) = [text for text in diagnose(job, None)["blind"] if text.startswith("stacks")]
    assert reason in note


def test_stacks_without_time_are_candidates(put: Any, diagnose: Any) -> None:
    """They may have been taken before the stall."""
    job = put_ranks(put)
    for rank in range(N_RANKS):
        put(f"py-spy/{rank}.txt", text_stack(LOAD if rank == 3 else WAIT))
        lines = [f"2026-11-22 08:30:{second:02} step {second}\n" for second in range(40)]
        put(f"logs/{rank}.log", "".join(lines))
    verdict = diagnose(job, 42_000.0)
    assert (verdict["kind"], verdict["rank"]) == ("hang", None)
    assert candidates(verdict) == [3]


def test_all_ranks_waiting_for_data_is_cause(put: Any, diagnose: Any) -> None:
    job = put_ranks(put)
    for minute in (30, 33, 36):
        for rank in range(N_RANKS):
            put(f"stacks/20261122T08{minute}00Z/{rank}.json", json_stack(LOAD))
    verdict = diagnose(job, None)
    assert (verdict["kind"], verdict["culprits"]) == ("hang", [])
    assert verdict["cause"] == "all 5 ranks wait for data, such as in __next__ (loader.py:66)"
