"""Ranks that launchers and coordinators mean without their number."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.pipelines.diagnosis.loaded_job import read_job

KILLED = (
    " ERROR    failed (exitcode: -{signal}) local_rank: {local} (pid: 4{local}) of  agent.py:67\n"
)
STOPPED = " WARNING  Sending process 5{n} closing signal SIGTERM   agent.py:69\n"


def judged(files: dict[str, str]) -> Diagnosis:
    """Return the verdict on a job with these logs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, "job", "logs", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        _, verdict = read_job(Path(folder, "job")).judge(None)[:2]
    return verdict


def named(files: dict[str, str]) -> set[Any]:
    """Return the culprits of a job with these logs."""
    return {culprit.rank for culprit in judged(files).culprits}


@settings(deadline=None, max_examples=12)
@given(local=st.integers(0, 7), signal=st.sampled_from([7, 9, 11]), listed=st.booleans())
def test_local_rank_of_one_machine(local: int, signal: int, listed: bool) -> None:
    """The numbers of a launcher are ranks where there is no other machine."""
    text = "".join(STOPPED.format(n=n) for n in range(7)) if listed else ""
    assert named({"job.log": text + KILLED.format(local=local, signal=signal)}) == {local}


@pytest.mark.parametrize(
    "more",
    [
        {"job.log": "launching with --nnodes=2 --node_rank 0\n"},
        {"job.log": "num_machines: 4\n"},
        {"job.log": "machine_rank: 1\n"},
        {"job.log": "world_size=16 ready\n"},
        {"job.log": "", "other.log": "starting\n"},
    ],
)
def test_local_rank_of_several_machines(more: dict[str, str]) -> None:
    files = more | {"job.log": more["job.log"] + KILLED.format(local=3, signal=9)}
    assert named(files) == set()


@pytest.mark.parametrize("others", [("-15",), ("-15", "-15", "-15"), ("-15", "0")])
@pytest.mark.parametrize("rank", [0, 1])
def test_rank_that_failed_while_a_launcher_ended_the_others(
    rank: int, others: tuple[str, ...]
) -> None:
    """Its exit code names it, and an error that no rank signed is its own."""
    codes = [*others[:rank], "1", *others[rank:]]
    text = "".join(
        f"Global rank {n} (PID {70 + n}) exited with code {code}\n" for n, code in enumerate(codes)
    )
    trace = 'Traceback (most recent call last):\n  File "t.py", line 9, in main\n'
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    for more in ("", trace + error):
        verdict = judged({"job.log": text + more})
        assert [culprit.rank for culprit in verdict.culprits] == [rank]
        [fault] = [culprit.fault for culprit in verdict.culprits]
        assert fault is not None
        assert fault.needs_repair == bool(more)


@pytest.mark.parametrize("codes", [("1", "1", "-15"), ("1", "0", "0")])
def test_exit_code_of_one_of_several_names_no_rank(codes: tuple[str, ...]) -> None:
    text = "".join(
        f"Global rank {n} (PID {70 + n}) exited with code {code}\n" for n, code in enumerate(codes)
    )
    assert named({"job.log": text}) == set()


def test_machine_that_a_launcher_names_with_the_rank() -> None:
    text = "mpirun noticed that process rank 6 with PID 24 on node gpu-12 exited on\nsignal 11\n"
    [culprit] = judged({"job.log": text}).culprits
    assert (culprit.rank, culprit.machine) == (6, "gpu-12")


WRAPPERS = (
    "ray.train.base_trainer.TrainingFailedError: The Ray Train run failed. Please inspect the "
    "previous error messages for a cause.",
    "submitit.core.utils.FailedJobError: Job (task=3) failed during processing with trace:",
    "subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' returned non-zero "
    "exit status 1.",
)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("is_last", [False, True])
def test_exception_of_the_starting_program_hides_no_cause(wrapper: str, is_last: bool) -> None:
    trace = 'Traceback (most recent call last):\n  File "t.py", line 9, in main\n'
    error = "ValueError: the vocabulary has no token 7"
    pair = (error, wrapper) if is_last else (wrapper, error)
    cause = judged({"job.log": "".join(f"{trace}{line}\n" for line in pair)}).cause
    assert cause is not None
    assert error in cause


@pytest.mark.parametrize("steps", [0, 6])
def test_refused_connection_alone_is_told_but_is_no_crash(steps: int) -> None:
    refused = "[rank3] WatchTasksAsync failed: UNAVAILABLE: failed to connect to all addresses\n"
    later = "".join(f"2026-03-01 04:00:{n:02d},000 INFO step {n} loss 2.5\n" for n in range(steps))
    verdict = judged({"job.log": refused + later})
    assert verdict.kind == ("none" if steps else "unknown")
    assert bool(verdict.cause and "failed to connect" in verdict.cause) == (not steps)


def test_aborted_process_is_not_named() -> None:
    assert named({"job.log": KILLED.format(local=3, signal=6)}) == set()


@settings(deadline=None, max_examples=12)
@given(world=st.integers(2, 9), data=st.data())
def test_ranks_that_never_came(world: int, data: st.DataObject) -> None:
    """A rank that is not in the list of those that came is missing, also above its highest."""
    missing = data.draw(st.integers(0, world - 1))
    ready = ", ".join(str(rank) for rank in range(world) if rank != missing)
    stalled = f"world_size={world}\nStalled ops:\nHorovodAllreduce_w_1 [ready ranks: {ready}],\n"
    assert named({"job.log": stalled}) == {missing}
    only = f"world size: {world}\nthe barrier failed: only ranks {ready} arrived\n"
    assert named({"job.log": only}) == {missing}


def test_rank_that_came_alone_accuses_none() -> None:
    assert named({"job.log": "world_size=4\nStalled ops:\nw_1 [ready ranks: 2]\n"}) == set()


@settings(deadline=None, max_examples=8)
@given(rank=st.integers(0, 7))
def test_rank_alone_with_an_own_exception(rank: int) -> None:
    waits = "".join(
        f"[E a.cpp:7] [Rank {n}] failed\n  what():  [Rank {n}] the wait timed out\n"
        for n in range(8)
        if n != rank
    )
    own = f"[E a.cpp:9] [Rank {rank}] ended\n  what():  [Rank {rank}] the frame store is torn\n"
    assert named({"job.log": waits + own}) == {rank}
