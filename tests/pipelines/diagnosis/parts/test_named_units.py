"""Ranks and machines that launchers and components name in words, whatever the product."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.pipelines.diagnosis.loaded_job import read_job


def verdict(files: dict[str, str]) -> Diagnosis:
    """Return the verdict on a job with these logs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, "job", "logs", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_job(Path(folder, "job")).judge(None)[1]


def named(files: dict[str, str]) -> set[Any]:
    """Return the ranks, or else the machines, of the culprits."""
    culprits = verdict(files).culprits
    return {c.machine if c.rank is None else c.rank for c in culprits}


AWAITED = "2026-03-01 04:0{n}:00.1: I master.cc:9] Create still waiting for response from worker: "
TASK = "/job:worker/replica:0/task:{task}\n"


@settings(deadline=None, max_examples=10)
@given(world=st.integers(5, 9), missing=st.sets(st.integers(0, 4), min_size=1, max_size=2))
def test_tasks_that_all_wait_for(world: int, missing: set[int]) -> None:
    """A line for each missing task; those that wait for the same ones agree."""
    lines = "".join(
        AWAITED.format(n=n) + TASK.format(task=task) for n in range(4) for task in sorted(missing)
    )
    files = {f"w-{n}.log": lines for n in range(world) if n not in missing}
    files |= {f"w-{n}.log": "2026-03-01 04:00:00.1: I server.cc:3] begun\n" for n in missing}
    assert named(files) == missing


def test_wait_that_was_over_names_none() -> None:
    """A rank that came late was awaited for a while."""
    wait = "[2026-03-01 04:00:10] store: still waiting for rank 3\n"
    steps = "".join(f"[2026-03-01 04:{n:02}:00] step {n} loss 2.{n}\n" for n in range(2, 30))
    assert verdict({"job.log": wait + steps}).kind == "none"


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("ssh: connect to host cn-7 port 22: No route to host", {"cn-7"}),
        ("ssh: Could not resolve hostname cn-7: Name or service not known", {"cn-7"}),
        ("the node(s) 'cn-7_881_0' have been removed from the rendezvous 'a' since they had "
         "no heartbeat.", {"cn-7"}),
        ("Detected that rank 6 has died", {6}),
        ("barrier: no heartbeat from rank 6", {6}),
        ("worker process of rank 6 exited with code 3", {6}),
        ("worker process of rank 6 exited with code 0", set()),
    ],
)  # fmt: skip
def test_launcher_names_unit(line: str, who: set[Any]) -> None:
    assert named({"job.log": f"starting 8 processes\n{line}\n"}) == who


LIMIT = "RuntimeError: can't start new thread\n"
LOST = (
    "(raylet) A worker died or was killed while executing a task. Worker IP address: 10.0.0.6 "
    "Worker port: 7 Worker PID: 4 Worker exit type: SYSTEM_ERROR\n"
)


@pytest.mark.parametrize(("text", "who"), [(LOST, {"10.0.0.6"}), (LIMIT + LOST, set())])
def test_stated_cause_outweighs_launcher(text: str, who: set[Any]) -> None:
    """A launcher names the process that it missed first, not the one that states a cause."""
    assert named({"job.log": text}) == who


STEPS = "".join(f"[2026-03-01 04:00:{n:02}] step {n} loss 2.{n}\n" for n in range(8))
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 7, in f\n    {call}\n{error}\n'
FILE = TRACE.format(call="open(p)", error="FileExistsError: [Errno 17] File exists: 'a.jsonl'")
DEVICE = "RuntimeError: synchronizeDevice: error code 7"


def consoles(text: str) -> dict[str, str]:
    """Return a file with the lines of three machines, of which the second one has more."""
    lines = [f"cn-{n}: {line}" for line in STEPS.splitlines() for n in range(3)]
    return {"job.log": "\n".join([*lines, *(f"cn-1: {t}" for t in text.splitlines())]) + "\n"}


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (FILE, {"cn-1"}),
        (TRACE.format(call="dist.barrier()", error=DEVICE), set()),
        (TRACE.format(call="self.put(x)", error=DEVICE), {"cn-1"}),
        ("RuntimeError: NCCL error: unhandled system error\n", set()),
        ("NCCL WARN Connect to cn-2<4711> failed : Connection refused\n" + FILE, set()),
    ],
)
def test_error_on_one_machine_only(text: str, who: set[Any]) -> None:
    """An error raised in a wait, or after a peer was lost, has its origin elsewhere."""
    assert named(consoles(text)) == who


def test_line_without_time_is_late() -> None:
    """The next line with a time says how late it was, so that no step came after it."""
    start = "cn-1: [2026-03-01 03:00:00] begun\ncn-0: [2026-03-01 03:00:00] begun\n"
    text = "".join(f"cn-0: [2026-03-01 04:{n:02}:00] step {n} loss 2.{n}\n" for n in range(20))
    error = "".join(f"cn-1: {line}\n" for line in FILE.splitlines())
    after = "cn-1: [2026-03-01 04:19:07] [INFO] closing\n"
    assert named({"job.log": start + text + error + after}) == {"cn-1"}


@settings(deadline=None, max_examples=10)
@given(size=st.integers(4, 9), data=st.data(), cleaned=st.sampled_from([137, -9, -15]))
def test_one_code_among_those_of_clean_up(size: int, data: st.DataObject, cleaned: int) -> None:
    failed = data.draw(st.integers(0, size - 1))
    codes = [1 if n == failed else cleaned for n in range(size)]
    assert named({"job.log": f"the job failed with return code list: {codes}\n"}) == {failed}
    both = [1 if n in (failed, (failed + 1) % size) else cleaned for n in range(size)]
    assert named({"job.log": f"the job failed with return code list: {both}\n"}) == set()


SRUN = "srun: error: cn-{host}: tasks {tasks}: Exited with exit code 1\n"


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (SRUN.format(host=3, tasks="8-11"), {"cn-3"}),
        (SRUN.format(host=0, tasks="0-3"), set()),
        (SRUN.format(host=3, tasks="8-11") + SRUN.format(host=4, tasks="12-15"), set()),
        ("RuntimeError: Socket timed out while waiting for rank\n"
         + SRUN.format(host=3, tasks="8-11"), set()),
    ],
)  # fmt: skip
def test_tasks_of_one_machine_exited(text: str, who: set[Any]) -> None:
    assert named({"slurm-123456.out": "preparing\n" + text}) == who


@settings(deadline=None, max_examples=10)
@given(silent=st.sets(st.integers(1, 14), max_size=3))
def test_silent_tasks_keep_labels(silent: set[int]) -> None:
    """A task that wrote nothing leaves a gap in the numbers of the labels."""
    lines = "".join(f"{task:2}: ready\n" for task in range(16) if task not in silent)
    error = "".join(f"15: {line}\n" for line in FILE.splitlines())
    assert named({"job.out": lines + error}) == {15}


def test_warning_of_libfabric_is_an_error() -> None:
    lost = "libfabric:8:1772337600::efa:cq:handle_error():7<warn> err: 5, message: Bad address"
    assert verdict({"job.log": STEPS + 3 * f"{lost}\n"}).kind != "none"


@pytest.mark.parametrize(
    ("error", "who"),
    [("OSError: [Errno 116] Stale file handle", {"node-b"}), ("ValueError: bad shard", set())],
)
def test_same_error_of_all_ranks_there(error: str, who: set[Any]) -> None:
    """Four ranks of one machine meet it, and none of the other machine."""
    init = (
        "node-{m}:7{r}:9 [{l}] NCCL INFO comm 0x1 rank {r} nranks 8 cudaDev {l} - Init COMPLETE\n"
    )
    raised = TRACE.format(call="read(x)", error=error)
    files = {
        f"rank{r}.log": init.format(m="ab"[r // 4], r=r, l=r % 4) + (raised if r > 3 else STEPS)
        for r in range(8)
    }
    assert {c.machine for c in verdict(files).culprits} == who


TERMINATED = "srun: error: cn-1: tasks 0-7: Terminated\n"


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (TRACE.format(call="step(x)", error="ValueError: bad") + "{exit}" + TERMINATED, {"cn-2"}),
        (TRACE.format(call="step(x)", error="ValueError: bad") + "{exit}", set()),
        (TRACE.format(call="_wait_for_peers(d)", error="OSError: no") + "{exit}" + TERMINATED,
         set()),
    ],
)  # fmt: skip
def test_only_task_that_was_not_terminated(text: str, who: set[Any]) -> None:
    """Slurm ends the others after the first that failed, which may be a witness."""
    failed = "srun: error: cn-2: task 9: Exited with exit code 1\n"
    assert named({"slurm-123456.out": STEPS + text.format(exit=failed)}) == who


UNRESOLVED = (
    "[W301 04:00:00 socket.cpp:697] [c10d] The client socket has failed to connect to "
    "[main-0]:29500 (errno: {error}).\nDistNetworkError: The client socket has timed out after "
    "60000ms while trying to connect to (main-0, 29500).\n"
)


@pytest.mark.parametrize(
    ("error", "who"),
    [("-2 - Name or service not known", set()), ("111 - Connection refused", {"main-0"})],
)
def test_name_without_address_is_not_accused(error: str, who: set[Any]) -> None:
    files = {f"node-{n}.log": UNRESOLVED.format(error=error) for n in range(1, 4)}
    assert named(files) == who


def test_disk_of_one_machine_that_others_lost() -> None:
    """The others lose a peer; the machine has the only error of its own."""
    raised = TRACE.format(call="save(s, p)", error="OSError: [Errno 28] No space left on device")
    lost = "[rank8]:[E301 04:06:01.1 x.cpp:6] [Rank 8] NCCL error: remote process exited\n"
    assert named({"node-0.log": STEPS + raised, "node-1.log": STEPS + lost}) == {"node-0"}


STOPPING = "[2026-03-01 04:00:01,1] agent: [WARNING] Sending process 10{n} closing signal SIGTERM\n"
EXITED = (
    "[2026-03-01 04:00:02,1] agent: [ERROR] failed (exitcode: 1) local_rank: {n} (pid: 10{n})\n"
)


@settings(deadline=None, max_examples=10)
@given(world=st.integers(2, 8), first=st.integers(0, 1))
def test_exit_while_all_others_lived(world: int, first: int) -> None:
    """The agent of the only machine stops the processes that are alive."""
    stopped = "".join(STOPPING.format(n=n) for n in range(world) if n != first)
    assert named({"train.log": stopped + EXITED.format(n=first)}) == {first}
    lost = "RuntimeError: NCCL error: remote process exited or there was a network error\n"
    assert named({"train.log": lost + stopped + EXITED.format(n=first)}) == set()
    assert named({"train.log": EXITED.format(n=first)}) == set()


def test_interrupt_of_finished_program_names_none() -> None:
    text = "INFO | train | done training in 174.6 seconds\n^CTraceback (most recent call last):\n"
    found = verdict({"train.log": f'{text}  File "runpy.py", line 193, in _run\n'})
    assert (found.kind, found.culprits) == ("ended", ())


def test_exit_for_want_of_gpus_names_none() -> None:
    error = "RuntimeError: CUDA error: invalid device ordinal\n"
    stopped = "".join(STOPPING.format(n=n) for n in range(7))
    assert named({"train.log": error + stopped + EXITED.format(n=7)}) == set()


SIGNAL = "[tower:{pid}] Signal: Segmentation fault (11)\n"


@given(failed=st.integers(2, 8))
@settings(deadline=None, max_examples=5)
def test_only_machine_of_several_failed_names_none(failed: int) -> None:
    lines = "".join(SIGNAL.format(pid=4200 + n) for n in range(failed))
    assert named({"mpirun.log": lines}) == set()
    assert named({"mpirun.log": SIGNAL.format(pid=4200)}) == {"tower"}


def test_other_ranks_with_cut_traces_acquit() -> None:
    """Consoles break off while several ranks print their exceptions."""
    trace = (
        '[rank{n}]: Traceback (most recent call last):\n[rank{n}]:   File "a.py", line 3, in f\n'
    )
    first = trace.format(n=2) + "[rank2]: ValueError: shapes differ on the processes\n"
    assert named({"console.log": first + trace.format(n=1)}) == set()
    assert named({"console.log": first + "[rank1]: step 3\n"}) == {2}


SUMMARY = """  host      : box-3.cluster
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 6127)
  error_file: <N/A>
"""


@pytest.mark.parametrize(
    "error",
    [
        "subprocess.CalledProcessError: Command '['torchrun', 'a.py']' returned exit status 1.",
        "ValueError: cannot gather",
    ],
)
def test_error_is_not_given_to_one_of_several(error: str) -> None:
    """Only the machine of the rank that the launcher reports is known."""
    memory = "[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    trace = "Traceback (most recent call last):\n"
    assert named({"eval.log": f"{memory}{SUMMARY}{trace}{error}\n"}) <= {7}
