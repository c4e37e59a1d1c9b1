"""Output of ranks through real pipes, terminals, deleted files and devices."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.diagnosis.unseen_outputs import UnseenOutput
from forewarn.pipelines.agent.jobs.job_tables import write_unseen
from forewarn.pipelines.agent.jobs.log_copier import CopiedOutput, LogCopier
from forewarn.pipelines.agent.jobs.output_files import Output, OutputFinder
from forewarn.pipelines.agent.jobs.process_descriptors import descriptors
from forewarn.pipelines.agent.jobs.reader_files import reader_files
from forewarn.pipelines.agent.jobs.training_processes import JobProcess, find_processes

TRAIN = (
    "import sys\n"
    "print(f'[rank{sys.argv[1]}]: step 1', flush=True)\n"
    "open(sys.argv[2], 'w').close()\n"
    "sys.stdin.read()\n"
)
CONTAINER = "0123456789abcdef" * 4
Start = Callable[..., JobProcess]


class Processes:
    """Processes that end with the test, the ranks first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, list[subprocess.Popen[bytes]]()

    def run(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, **{"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL, **options}
        )
        self.started.append(process)
        return process

    def train(self, rank: int, stdout: Any, stderr: Any = subprocess.STDOUT, **env: str) -> None:
        mark = self.folder / f"wrote-{rank}"
        variables = {**os.environ, "RANK": str(rank), "FOREWARN_JOB": self.job, **env}
        command = [sys.executable, "-c", TRAIN, str(rank), str(mark)]
        process = self.run(command, stdout=stdout, stderr=stderr, env=variables)
        wait(lambda: mark.exists() or process.poll() is not None)
        assert process.poll() is None

    @property
    def job(self) -> str:
        return f"out-{os.getpid()}-{self.folder.name}"

    def ranks(self) -> list[JobProcess]:
        return [process for process in find_processes() if process.job == self.job]

    def stop(self) -> None:
        for process in reversed(self.started):
            process.communicate()


def wait(is_done: Callable[[], bool]) -> None:
    for _ in range(2000):
        if is_done():
            return
        time.sleep(0.01)
    raise AssertionError("nothing happened in 20 s")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    running = Processes(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def pipeline(processes: Processes) -> Callable[..., int]:
    """Start programs that read from one another, and return the pipe of the first one."""

    def start(*commands: list[str], stdout: Any = subprocess.DEVNULL, **options: Any) -> int:
        for command in reversed(commands):
            read, write = os.pipe()
            processes.run(command, stdin=read, stdout=stdout, **options)
            os.close(read)
            if stdout != subprocess.DEVNULL:
                os.close(stdout)
            stdout = write
        return int(stdout)

    return start


def open_ends(kind: str) -> list[int]:
    """Return descriptors, the last of which is for a rank to write to."""
    if kind == "pty":
        return list(pty.openpty())
    if kind == "socket":
        return [end.detach() for end in socket.socketpair()]
    return [os.open(f"/dev/{kind}", os.O_WRONLY)]


def copied(processes: Processes, folder: Path) -> tuple[CopiedOutput, dict[str, str]]:
    result = LogCopier("node-1", 10_000).copy(processes.ranks(), folder)
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.log")}
    return result, files


def train_into(processes: Processes, pipe: int, *ranks: int, **env: str) -> None:
    for rank in ranks:
        processes.train(rank, pipe, **env)
    os.close(pipe)


def test_file_of_tee_is_copied_as_console(
    processes: Processes, pipeline: Callable[..., int], tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    train_into(processes, pipeline(["tee", str(log)]), 0, 1)
    wait(lambda: log.exists() and log.read_text().count("\n") == 2)
    result, files = copied(processes, tmp_path / "logs")
    assert files == {"node-1/train.log": "[rank0]: step 1\n[rank1]: step 1\n"}
    assert result.unseen == ()
    assert result.last_write == pytest.approx(log.stat().st_mtime)


@pytest.mark.parametrize("length", [1, 3])
def test_chain_of_pipes_is_followed(
    processes: Processes, pipeline: Callable[..., int], tmp_path: Path, length: int
) -> None:
    log = tmp_path / "train.log"
    train_into(processes, pipeline(*[["cat"]] * length, ["tee", str(log)]), 4)
    wait(lambda: log.exists() and bool(log.read_text()))
    assert copied(processes, tmp_path / "logs")[1] == {"node-1/train.log": "[rank4]: step 1\n"}


def test_named_pipe_between_readers_is_followed(
    processes: Processes, pipeline: Callable[..., int], tmp_path: Path
) -> None:
    fifo, log = tmp_path / "init-stdout", tmp_path / "train.log"
    os.mkfifo(fifo)
    processes.run(["sh", "-c", f"exec tee {log} < {fifo} > /dev/null"])
    train_into(processes, pipeline(["sh", "-c", f"exec tee {fifo}"]), 2)
    wait(lambda: log.exists() and bool(log.read_text()))
    assert set(copied(processes, tmp_path / "logs")[1]) == {"node-1/train.log"}


def test_reader_without_file_is_named(
    processes: Processes, pipeline: Callable[..., int], tmp_path: Path
) -> None:
    train_into(processes, pipeline(["cat"]), 3)
    result, files = copied(processes, tmp_path / "logs")
    why = "a pipe read by cat, which writes to no file of the job"
    assert not files
    assert result.unseen == tuple(
        UnseenOutput(3, stream, "pipe", why) for stream in ("stdout", "stderr")
    )


def test_errors_of_a_reader_are_no_output(
    processes: Processes, pipeline: Callable[..., int], tmp_path: Path
) -> None:
    with (tmp_path / "errors.log").open("w") as errors:
        train_into(processes, pipeline(["cat"], stderr=errors), 3)
    result, files = copied(processes, tmp_path / "logs")
    assert not files
    assert {output.goes_to for output in result.unseen} == {"pipe"}


def test_launcher_forwards_errors_to_its_own(
    processes: Processes, pipeline: Callable[..., int], tmp_path: Path
) -> None:
    with (tmp_path / "errors.log").open("w") as errors:
        script = "while read line; do echo $line >&2; done"
        stdout, stderr = pipeline(["cat"]), pipeline(["sh", "-c", script], stderr=errors)
    processes.train(3, stdout, stderr)
    os.close(stdout)
    os.close(stderr)
    result, files = copied(processes, tmp_path / "logs")
    assert set(files) == {"node-1/errors.log"}
    assert [output.stream for output in result.unseen] == ["stdout"]


def test_checkpoint_of_reader_is_no_log(
    processes: Processes, pipeline: Callable[..., int], tmp_path: Path
) -> None:
    state = tmp_path / "state.bin"
    state.write_bytes(b"\0\1" * 100)
    train_into(processes, pipeline(["sh", "-c", f"exec 5>>{state}; exec cat"]), 0)
    assert not copied(processes, tmp_path / "logs")[1]


def test_srun_console_of_slurmstepd(
    processes: Processes, pipeline: Callable[..., int], tmp_path: Path
) -> None:
    console, foreign = tmp_path / "slurm-7.out", tmp_path / "slurm-8.out"
    console.write_text("0: step 1\n")
    for name in ("srun", "slurmstepd"):
        (tmp_path / name).write_text("#!/bin/sh\nread line\n[ $? = 0 ] && read line\nexit 0\n")
        (tmp_path / name).chmod(0o755)
    for path, number in ((console, "7"), (foreign, "8")):
        with path.open("a") as out:
            env = {**os.environ, "SLURM_JOB_ID": number}
            processes.run([str(tmp_path / "srun")], stdout=out, env=env)
    train_into(processes, pipeline([str(tmp_path / "slurmstepd")]), 0, SLURM_JOB_ID="7")
    wait(lambda: len(copied(processes, tmp_path / "logs")[1]) > 0)
    assert copied(processes, tmp_path / "logs")[1] == {"node-1/slurm-7.log": "0: step 1\n"}


def test_deleted_file_is_copied(processes: Processes, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("w") as out:
        processes.train(5, out)
    log.unlink()
    result, files = copied(processes, tmp_path / "logs")
    assert files == {"stdout_5.log": "[rank5]: step 1\n"}
    assert result.unseen == ()


@pytest.mark.parametrize(
    ("stdout", "goes_to", "reason", "is_silent"),
    [
        ("pty", "terminal", "a terminal", None),
        ("socket", "socket", "a socket", None),
        ("null", "null", "/dev/null", True),
        ("zero", "device", "the device /dev/zero", None),
    ],
)
def test_unseen_stdout_is_reported(
    processes: Processes,
    tmp_path: Path,
    stdout: str,
    goes_to: str,
    reason: str,
    is_silent: bool | None,
) -> None:
    ends = open_ends(stdout)
    with (tmp_path / "err.log").open("w") as stderr:
        processes.train(1, ends[-1], stderr)
    result, files = copied(processes, tmp_path / "logs")
    for end in ends:
        os.close(end)
    assert list(files) == ["stderr_1.log"]
    assert result.unseen == (UnseenOutput(1, "stdout", goes_to, reason),)
    assert result.last_write is not None
    assert result.is_silent(result.last_write + 9, 10) is False
    assert result.is_silent(result.last_write + 10, 10) is is_silent


def test_closed_stream_is_reported(processes: Processes, tmp_path: Path) -> None:
    with (tmp_path / "a.log").open("w") as out:
        processes.train(0, out)
    (process,) = processes.ranks()
    assert OutputFinder().find(process, 77) == Output("closed", reason="closed")


def test_unreadable_file_is_reported(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    with log.open("w") as out:
        processes.train(0, out)
    (process,) = processes.ranks()

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    output = OutputFinder().find(process, 1)
    assert output.reason == f"{log}, which cannot be read (Permission denied)"


def test_ended_process_is_not_unseen(tmp_path: Path) -> None:
    output = OutputFinder(tmp_path).find(JobProcess(5, 1, 0, "job", 0, None, None), 1)
    assert output.files == ()
    assert output.reason == ""


def test_files_of_other_users_are_not_taken(processes: Processes, tmp_path: Path) -> None:
    with (tmp_path / "a.log").open("w") as out:
        reader = processes.run(["cat"], stdout=out)
    opened = list(descriptors(Path("/proc") / str(reader.pid)))
    assert len(reader_files(opened, os.getuid())) == 1
    assert reader_files(opened, os.getuid() + 1) == []


def test_runtime_files_name_the_container(processes: Processes, tmp_path: Path) -> None:
    other = "f" * 64
    paths = [tmp_path / name / f"{name}-json.log" for name in (CONTAINER, other)]
    for path in paths:
        path.parent.mkdir()
    script = f"exec 5>{paths[0]} 6>{paths[1]}; exec cat"
    reader = processes.run(["sh", "-c", script], stdout=subprocess.DEVNULL)
    wait(paths[1].exists)
    opened = descriptors(Path("/proc") / str(reader.pid))
    files = reader_files(opened, os.getuid() + 1, frozenset({CONTAINER}))
    assert [file.path for file in files] == [paths[0]]


def test_rotated_log_is_copied_whole(tmp_path: Path) -> None:
    log, proc = tmp_path / "a.log", tmp_path / "proc"
    log.write_text("old\n")
    (proc / "11" / "fd").mkdir(parents=True)
    (proc / "11" / "fd" / "1").symlink_to(log)
    rank = [JobProcess(11, 1, 0, "job", 0, None, None)]
    copies = LogCopier("node-1", 10_000, proc)
    copies.copy(rank, tmp_path / "logs")
    log.rename(tmp_path / "a.log.1")
    log.write_text("new and longer\n")
    copies.copy(rank, tmp_path / "logs")
    assert (tmp_path / "logs/stdout_0.log").read_text() == "old\nnew and longer\n"


def test_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    proc, ranks = tmp_path / "proc", []
    for number in range(4):
        log = tmp_path / str(number // 2) / "out.log"
        log.parent.mkdir(exist_ok=True)
        log.write_text(f"console {number // 2}\n")
        (proc / str(number) / "fd").mkdir(parents=True)
        (proc / str(number) / "fd" / "1").symlink_to(log)
        ranks.append(JobProcess(number, 1, 0, "job", number, None, None))
    copies = LogCopier("node-1", 1000, proc)
    for _ in range(2):
        copies.copy(ranks, tmp_path / "logs")
        texts = sorted(path.read_text() for path in (tmp_path / "logs/node-1").iterdir())
        assert texts == ["console 0\n", "console 1\n"]


def test_table_keeps_ranks_that_ended(tmp_path: Path) -> None:
    path = tmp_path / "unseen" / "node-1.csv"
    rows = [UnseenOutput(rank, "stdout", "terminal", "a terminal") for rank in (0, 1)]
    ranks = [JobProcess(rank, 1, 0, "job", rank, None, None) for rank in (0, 1)]
    write_unseen(path, rows, ranks)
    write_unseen(path, [], ranks[1:])
    assert path.read_text() == "rank,stream,goes_to,reason\n0,stdout,terminal,a terminal\n"
