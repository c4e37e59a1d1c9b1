from __future__ import annotations

import textwrap
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.launcher_forms import LAUNCHER_FORMS
from forewarn.features.diagnosis.log_lines.launcher_reports import (
    LaunchReport,
    parse_launcher_reports,
)
from forewarn.features.time_units import SECOND

DEFAULTS = {field.name: field.default for field in fields(LaunchReport)}
TORCHRUN = """
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 1970-01-01_00:00:09
  host      : node-2
  rank      : 12 (local_rank: 4)
  exitcode  : 1 (pid: 78)
  error_file: <N/A>
  traceback : To enable traceback see: https://example.org
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 1970-01-01_00:00:07
  host      : node-1.cluster
  rank      : 5 (local_rank: 5)
  exitcode  : -9 (pid: 4242)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4242
"""
DESCRIBED = """
Name:             llm-worker-1
Namespace:        training
Node:             node-7/10.0.0.7
Containers:
  pytorch:
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       Error
      Exit Code:    139
      Started:      Thu, 01 Jan 1970 00:00:01 +0000
      Finished:     Thu, 01 Jan 1970 00:00:05 +0000
"""
PODS = """
NAMESPACE  NAME           READY   STATUS      RESTARTS      AGE   IP          NODE
training   llm-worker-0   1/1     Running     0             12m   10.0.0.4    node-1
training   llm-worker-1   0/1     OOMKilled   1 (3m ago)    12m   10.0.0.5    node-2
training   llm-worker-2   0/1     Error       0             12m   <none>      node-3
training   llm-worker-3   0/1     Completed   0             12m   10.0.0.6    node-4
training   llm-worker-4   0/1     CrashLoopBackOff   6 (2m ago)   12m   10.0.0.7   node-5
"""
ACTOR = """
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict
\tactor_id: 00ff
\tpid: 4242
\tname: aB3xWorkerDict_1:6
\tnamespace: 0a0b
\tip: 10.0.0.9
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR
"""
JAX_BARRIER = """
DEADLINE_EXCEEDED: Barrier timed out. Id: save. # of tasks that reached the barrier: 6/8.
The first task at the barrier: /job:jax_worker/replica:0/task:4. Some timed out task names:
/job:jax_worker/replica:0/task:2
/job:jax_worker/replica:0/task:7

RPC: /tensorflow.CoordinationService/Barrier
"""
RAYLET = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. "
    "Worker ID: 0a Node ID: 4d Worker IP address: 10.0.0.8 Worker port: 10046 Worker PID: 4242 "
    "Worker exit type: SYSTEM_ERROR Worker exit detail: "
)

CASES: list[tuple[str, list[dict[str, Any]]]] = [
    (
        TORCHRUN,
        [
            {"rank": 12, "local_rank": 4, "host": "node-2", "pid": 78, "exit_code": 1}
            | {"time": 9 * SECOND},
            {"rank": 5, "local_rank": 5, "host": "node-1.cluster", "pid": 4242, "exit_code": -9}
            | {"time": 7 * SECOND, "is_first": True},
        ],
    ),
    (
        "E0101 api.py:833] failed (exitcode: -11) local_rank: 2 (pid: 77) of binary: /bin/python",
        [{"local_rank": 2, "pid": 77, "exit_code": -11}],
    ),
    (
        "W0101 api.py:858] Sending process 44 closing signal SIGTERM",
        [{"pid": 44, "exit_code": -15, "by_launcher": True}],
    ),
    (
        "Unable to shutdown process 44 via Signals.SIGTERM, forcefully exiting via SIGKILL",
        [{"pid": 44, "exit_code": -9, "by_launcher": True}],
    ),
    ("ProcessExitedException: process 3 terminated with signal SIGSEGV",
     [{"local_rank": 3, "exit_code": -11}]),
    ("ProcessExitedException: process 3 terminated with exit code 2",
     [{"local_rank": 3, "exit_code": 2}]),
    ("ProcessRaisedException: -- Process 1 terminated with the following error:", []),
    ("subprocess.CalledProcessError: Command '['/bin/python', 'a.py']' returned non-zero exit "
     "status 3.", [{"exit_code": 3}]),
    ("subprocess.CalledProcessError: Command '['/bin/python']' died with <Signals.SIGKILL: 9>.",
     [{"exit_code": -9}]),
    ("subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
     []),
    ("[launch.py:319:sigkill_handler] Killing subprocess 4802",
     [{"pid": 4802, "by_launcher": True}]),
    ("[launch.py:325:sigkill_handler] ['python', '--local_rank=7'] exits with return code = -9",
     [{"exit_code": -9}]),
    ("ERROR:composer.cli.launcher:Rank 3 crashed with exit code -6.",
     [{"rank": 3, "exit_code": -6}]),
    ("Global rank 5 (PID 312) exited with code 1", [{"rank": 5, "pid": 312, "exit_code": 1}]),
    ("[rank: 0] Child process with PID 312 terminated with code -9. Forcefully terminating",
     [{"pid": 312, "exit_code": -9}]),
    ("srun: error: node-1: task 3: Exited with exit code 1",
     [{"task": 3, "host": "node-1", "exit_code": 1}]),
    ("srun: error: node-1: task 3: Exited with exit code 137",
     [{"task": 3, "host": "node-1", "exit_code": -9}]),
    ("srun: error: node-[1-2]: tasks 0-1,7: Segmentation fault (core dumped)",
     [{"task": task, "exit_code": -11} for task in (0, 1, 7)]),
    ("srun: error: node-4: task 4: Out Of Memory",
     [{"task": 4, "host": "node-4", "exit_code": -9}]),
    ("srun: error: Node failure on node-3", [{"host": "node-3"}]),
    ("srun: error: Node failure on node-[3-4]", [{"host": "node-3"}, {"host": "node-4"}]),
    ("srun: error: Node failure on node-[3-", [{}]),
    ("The node 3-llm-worker-3 has not sent a heartbeat for over 600 seconds, last heartbeat: 7",
     [{"pod": "llm-worker-3"}]),
    ("5: slurmstepd: error: Detected 2 oom_kill events in StepId=77.0. Some of the step tasks",
     [{"task": 5, "exit_code": -9}]),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in step 77.batch cgroup.",
     [{"exit_code": -9}]),
    ("slurmstepd-node-9: error: Detected 1 oom_kill event in StepId=77.0.",
     [{"host": "node-9", "exit_code": -9}]),
    ("mpirun noticed that process rank 5 with PID 0 on node node-1 exited on signal 9 (Killed).",
     [{"rank": 5, "host": "node-1", "exit_code": -9, "is_first": True}]),
    ("prterun noticed that process rank 2 with PID 31 on node node-1 exited on signal 6 (Aborted).",
     [{"rank": 2, "pid": 31, "host": "node-1", "exit_code": -6, "is_first": True}]),
    ("  Process name: [[29973,1],5]\n  Exit code:    2",
     [{"rank": 5, "exit_code": 2, "is_first": True}]),
    ("  Process name: [prterun-node-1-77@1,6]\n  Exit code:    2",
     [{"rank": 6, "exit_code": 2, "is_first": True}]),
    ("Process name: 4\nExit code: 250", [{"rank": 4, "exit_code": 250, "is_first": True}]),
    ("Process name: node-2[1]\nExit code: 1",
     [{"host": "node-2", "local_rank": 1, "exit_code": 1, "is_first": True}]),
    ("Terminating remaining workers after failure of Process 6.", [{"rank": 6, "is_first": True}]),
    ("Process 6 exit with status code 1.", [{"rank": 6, "exit_code": 1}]),
    ("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
     "=   RANK 3 PID 55 RUNNING AT node-2\n=   KILLED BY SIGNAL: 11 (Segmentation fault)",
     [{"rank": 3, "pid": 55, "host": "node-2", "exit_code": -11}]),
    ("=   PID 55 RUNNING AT node-2\n=   EXIT CODE: 9\n",
     [{"pid": 55, "host": "node-2", "exit_code": -9}]),
    ("=   PID 55 RUNNING AT node-2\n=   EXIT CODE: 256\n",
     [{"pid": 55, "host": "node-2", "exit_code": 1}]),
    ("=   PID 55 RUNNING AT node-2\n=   EXIT CODE: 139\n",
     [{"pid": 55, "host": "node-2", "exit_code": -11}]),
    ("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.",
     [{"rank": 3, "exit_code": 1}]),
    ("application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3", [{"rank": 3, "exit_code": 1}]),
    ("ERROR:  One or more process (first noticed rank 3) terminated with signal 9",
     [{"rank": 3, "exit_code": -9, "is_first": True}]),
    ("[1,12]<stderr>:[node-6:2601] Signal: Segmentation fault (11)",
     [{"host": "node-6", "pid": 2601, "exit_code": -11}]),
    ("(raylet) node_manager.cc:7: 2 Workers (tasks / actors) killed due to memory pressure (OOM), "
     "0 Workers crashed at node (ID: 0a, IP: 10.0.0.8)", [{"host": "10.0.0.8", "exit_code": -9}]),
    ("ERROR [executor.py:1] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.",
     [{"rank": 1, "is_first": True}]),
    ("node-6: rank 12 died from signal 9", [{"rank": 12, "host": "node-6", "exit_code": -9}]),
    ("ERROR: rank 12 exited with code 1", [{"rank": 12, "exit_code": 1}]),
    ("node-6: rank 12 exited with code 1", [{"rank": 12, "host": "node-6", "exit_code": 1}]),
    (RAYLET + "Worker unexpectedly exits with a connection error code 2. End of file.",
     [{"host": "10.0.0.8", "pid": 4242}]),
    (RAYLET + "Worker exits with an exit code 1.",
     [{"host": "10.0.0.8", "pid": 4242, "exit_code": 1}]),
    (RAYLET.replace("SYSTEM_ERROR", "INTENDED_USER_EXIT"), []),
    (ACTOR, [{"local_rank": 6, "pid": 4242, "host": "10.0.0.9"}]),
    ("The node with node id: 0a1b and address: 10.0.0.7 and node name: 10.0.0.7 has been marked "
     "dead because the detector has missed too many heartbeats", [{"host": "10.0.0.7"}]),
    ("The node with node id: 8f20 and ip: 10.0.0.8 has been marked dead because the detector has "
     "missed too many heartbeats from it.", [{"host": "10.0.0.8"}]),
    (DESCRIBED, [{"pod": "llm-worker-1", "host": "node-7", "exit_code": -11, "time": 5 * SECOND}]),
    ("Last State: Terminated Reason: OOMKilled Exit Code: 137", [{"exit_code": -9}]),
    ("    State:   Terminated\n      Reason:   Completed\n      Exit Code:   0\n", []),
    (PODS, [{"pod": "llm-worker-1", "host": "node-2", "exit_code": -9},
            {"pod": "llm-worker-2", "host": "node-3"},
            {"pod": "llm-worker-4", "host": "node-5"}]),
    ("pdsh@master: worker-2: ssh exited with exit code 249",
     [{"host": "worker-2", "exit_code": 249}]),
    ("ERROR: Job 7 failed with return code list: [137, 2]",
     [{"task": 0, "exit_code": -9}, {"task": 1, "exit_code": 2}]),
    ("saw exit codes: [0,-11]", [{"task": 0, "exit_code": 0}, {"task": 1, "exit_code": -11}]),
    ("Pod: training.llm-worker-1 exited with code 137", [{"pod": "llm-worker-1", "exit_code": -9}]),
    ("UNAVAILABLE: Task /job:jax_worker/replica:0/task:3 heartbeat timeout. This indicates",
     [{"task": 3}]),
    (JAX_BARRIER, [{"task": 2}, {"task": 7}]),
    ("The following tasks are unhealthy (stopped sending heartbeats):\n"
     "/job:jax_worker/replica:0/task:3\n", [{"task": 3}]),
    ("./train.sh: line 12:  4242 Killed                  python train.py",
     [{"pid": 4242, "exit_code": -9}]),
]  # fmt: skip


def shown(report: LaunchReport) -> dict[str, Any]:
    """Return the fields that a report sets, without its text."""
    values = {name: getattr(report, name) for name in DEFAULTS if name not in ("line", "offset")}
    return {name: value for name, value in values.items() if value != DEFAULTS[name]}


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_known_forms(text: str, expected: list[dict[str, Any]]) -> None:
    assert [shown(report) for report in parse_launcher_reports(text.encode(), None)] == expected


FAILURE = ("failed", "(exitcode:", "-7)", "local_rank:", "6", "(pid:", "91)", "of", "binary:")
REORDERED = ("local_rank:", "6", "(pid:", "91)", "failed", "(exitcode:", "-7)", "of", "binary:")
PID_BETWEEN = (*FAILURE[:3], *FAILURE[5:7], *FAILURE[3:5])


@pytest.mark.parametrize("words", [FAILURE, REORDERED, FAILURE[:5], PID_BETWEEN])
@given(width=st.integers(18, 90), is_left=st.booleans())
def test_console_columns_wrap_a_report(words: tuple[str, ...], width: int, is_left: bool) -> None:
    """A console wraps the message at any word, with a column for the source at one side."""
    rows = textwrap.wrap(" ".join(words), width)
    texts = ["ERROR".ljust(9) + rows[0], *(" " * 9 + row for row in rows[1:])]
    source = ["agent.py:673", *[""] * (len(texts) - 1)]
    sides = [(s, t) if is_left else (t, s) for t, s in zip(texts, source, strict=True)]
    wide = max(map(len, (*texts, *source))) + 2
    text = "".join(f"{one.ljust(wide)}{other}\n" for one, other in sides)
    reports = parse_launcher_reports(text.encode(), None)
    assert {(report.local_rank, report.exit_code) for report in reports} == {(6, -7)}
    assert {report.pid for report in reports} == ({91} if "(pid:" in words else {None})


def test_neighbouring_reports_stay_apart() -> None:
    lines = [f"failed (exitcode: {-n}) local_rank: {n} (pid: {n}) of binary: x" for n in (7, 9)]
    reports = parse_launcher_reports("\n".join(lines).encode(), None)
    assert [(r.local_rank, r.exit_code, r.pid) for r in reports] == [(7, -7, 7), (9, -9, 9)]


@pytest.mark.parametrize("prefix", ["[default3]:", "3: ", "[1,3]<stderr>:", "\x1b[0m "])
def test_prefixed_lines(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in TORCHRUN.splitlines())
    reports = parse_launcher_reports(text.encode(), None)
    assert [(report.rank, report.exit_code, report.is_first) for report in reports] == [
        (12, 1, False),
        (5, -9, True),
    ]


def test_every_form_has_a_case() -> None:
    lines = [line for text, expected in CASES if expected for line in text.splitlines()]
    assert [form.hint for form in LAUNCHER_FORMS if not any(form.hint in x for x in lines)] == []


def test_ordinary_lines_are_no_reports() -> None:
    text = b"""
[2025-03-01 04:00:00,123] [INFO] step 9: task 3: evaluation is Terminated by the user's request
INFO the process 4 terminated with success
exit code of the check: 0
node-1: task list is empty
"""
    assert parse_launcher_reports(text, None) == []


def test_report_in_a_very_long_line() -> None:
    """Commands that launchers quote may be long; each part of a text is searched once."""
    line = "command python " * 50_000 + "exits with return code = -9"
    [report] = parse_launcher_reports(f"a\n{line}".encode(), None)
    assert (report.exit_code, report.offset) == (-9, 2)
    assert report.line.endswith("return code = -9")


def test_time_of_nearest_earlier_line() -> None:
    text = b"[1970-01-01 00:00:03] step\nsrun: error: node-1: task 3: Killed\n"
    [report] = parse_launcher_reports(text, None)
    assert (report.time, report.offset) == (3 * SECOND, 27)


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 3)), min_size=1, max_size=6))
def test_task_lists(parts: list[tuple[int, int]]) -> None:
    """A list names each of its tasks, whatever the form of its parts."""
    texts = [f"{first}-{first + more}" if more else str(first) for first, more in parts]
    line = f"srun: error: node-1: tasks {','.join(texts)}: Killed"
    tasks = {report.task for report in parse_launcher_reports(line.encode(), None)}
    assert tasks == {n for first, more in parts for n in range(first, first + more + 1)}


@given(st.integers(1, 64), st.integers(0, 9999), st.binary(max_size=200))
def test_noise_changes_no_report(signal: int, rank: int, noise: bytes) -> None:
    """Other lines, whatever their bytes, neither hide a report nor move its offset."""
    line = f"mpirun noticed that process rank {rank} with PID 7 on node a exited on signal {signal}"
    text = noise.replace(b"\r", b"") + b"\n" + line.encode() + b"\n" + noise
    reports = parse_launcher_reports(text, None)
    assert [(report.rank, report.exit_code) for report in reports] == [(rank, -signal)]
    assert text[reports[0].offset :].startswith(line.encode())
