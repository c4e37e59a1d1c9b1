"""Files that receive the output of a process, directly or through the readers of its pipes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from forewarn.pipelines.agent.jobs.pipe_readers import PipeReaders
from forewarn.pipelines.agent.jobs.process_descriptors import (
    Descriptor,
    command_name,
    container_names,
    descriptors,
)
from forewarn.pipelines.agent.jobs.reader_files import (
    Inode,
    OutputFile,
    is_text,
    reader_files,
    reader_pipes,
)
from forewarn.pipelines.agent.jobs.training_processes import JobProcess, read_environment

__all__ = ["Output", "OutputFinder"]

_MAX_PIPES = 8  # one after another, and readers of one
_STDERR = 2
_NULL_DEVICE = (1, 3)


@dataclass(frozen=True, slots=True)
class Output:
    """Where a stream of a process goes.

    Attributes
    ----------
    kind : str
        `file`, `pipe`, `terminal`, `socket`, `device`, `null`, `closed`, or empty if the process
        has ended.
    files : tuple of OutputFile
    reason : str
        Why no file can be read; continues "stdout is ...". Empty if there is a file.
    """

    kind: str
    files: tuple[OutputFile, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class OutputFinder:
    """Search for the files behind standard output and standard error.

    Parameters
    ----------
    proc : Path
    """

    proc: Path = Path("/proc")
    _readers: PipeReaders = field(init=False)
    _traced: dict[tuple[str, int, frozenset[str], bool], Output] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._readers = PipeReaders(self.proc)

    def start_pass(self) -> None:
        """Forget what was seen in the last pass."""
        self._readers.start_pass()
        self._traced.clear()

    def find(self, process: JobProcess, number: int) -> Output:
        """Return where a file descriptor of a process goes."""
        folder = self.proc / str(process.pid)
        opened = folder / "fd" / str(number)
        try:
            target, status = os.readlink(opened), opened.stat()
        except FileNotFoundError:
            is_closed = (folder / "fd").is_dir()
            return Output("closed", reason="closed") if is_closed else Output("")
        except OSError as error:
            return Output("file", reason=f"hidden from this process ({_why(error)})")
        kind = _kind(status, target)
        if kind == "file":
            file = OutputFile.from_status(opened, target, status)
            failure = _failure(file)
            return Output(kind, reason=failure) if failure else Output(kind, (file,))
        if kind != "pipe":
            return Output(kind, reason=_reason(kind, target))
        containers = container_names(folder)
        # A launcher forwards errors to its own standard error; elsewhere a reader's is its own.
        is_stderr = number == _STDERR and target != _target(folder / "fd" / "1")
        key = target, process.uid, containers, is_stderr
        if key not in self._traced:
            self._traced[key] = self._trace(process, target, containers, is_stderr=is_stderr)
        return self._traced[key]

    def _trace(
        self, process: JobProcess, pipe: str, containers: frozenset[str], *, is_stderr: bool
    ) -> Output:
        """Follow a pipe to the files of its readers, and to the pipes that they write."""
        pipes, readers, files, failures = [pipe], dict[int, None](), dict[Inode, OutputFile](), []
        for target in pipes:  # grows while it is read
            for pid in self._next_processes(process, target)[:_MAX_PIPES]:
                if pid in readers:
                    continue
                readers[pid] = None
                written = self._written(pid, is_stderr=is_stderr)
                for file in self._files(pid, written, process, containers):
                    failure = _failure(file)
                    if failure:
                        failures.append(failure)
                    elif is_text(file):
                        files.setdefault(file.inode, file)
                new = set(reader_pipes(written)).difference(pipes)
                pipes.extend(sorted(new)[: max(0, _MAX_PIPES - len(pipes))])
        if files:
            return Output("pipe", tuple(files.values()))
        return Output("pipe", reason=_pipe_reason(self._names(list(readers)), failures))

    def _written(self, reader: int, *, is_stderr: bool) -> list[Descriptor]:
        """Return what a reader may write output to."""
        return [
            item
            for item in descriptors(self.proc / str(reader))
            if item.is_written and (is_stderr or item.opened.name != str(_STDERR))
        ]

    def _files(
        self,
        reader: int,
        written: Sequence[Descriptor],
        process: JobProcess,
        containers: frozenset[str],
    ) -> list[OutputFile]:
        """Return the files of a reader without those of slurmd, whose log slurmstepd writes."""
        is_outside = bool(containers) and not containers & container_names(self.proc / str(reader))
        names = containers if is_outside else frozenset[str]()
        files = reader_files(written, process.uid, names)
        if self._names([reader]) != ["slurmstepd"]:
            return files
        daemons = [self.proc / str(pid) for pid in self._readers.slurm_processes("slurmd")]
        logs = [
            file for daemon in daemons for file in reader_files(descriptors(daemon), process.uid)
        ]
        return [file for file in files if file.inode not in {log.inode for log in logs}]

    def _next_processes(self, process: JobProcess, pipe: str) -> list[int]:
        """Return the readers of a pipe; srun too, to which slurmstepd sends what it reads."""
        readers = self._readers.find(pipe)
        if "slurmstepd" in self._names(readers):
            return [*readers, *self._own_srun(process)]
        return readers

    def _own_srun(self, process: JobProcess) -> Iterator[int]:
        with suppress(OSError):
            job = read_environment(self.proc / str(process.pid)).get("SLURM_JOB_ID")
            for pid in self._readers.slurm_processes("srun"):
                folder = self.proc / str(pid)
                is_own = folder.stat().st_uid == process.uid
                if is_own and job and read_environment(folder).get("SLURM_JOB_ID") == job:
                    yield pid

    def _names(self, pids: Sequence[int]) -> list[str]:
        names = (command_name(self.proc / str(pid)) for pid in pids)
        return list(dict.fromkeys(name for name in names if name))


def _target(opened: Path) -> str:
    with suppress(OSError):
        return os.readlink(opened)
    return ""


def _kind(status: os.stat_result, target: str) -> str:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISFIFO(mode):
        return "pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    if stat.S_ISCHR(mode):
        if (os.major(status.st_rdev), os.minor(status.st_rdev)) == _NULL_DEVICE:
            return "null"
        return "terminal" if target.startswith(("/dev/pts/", "/dev/tty")) else "device"
    return "device"


def _reason(kind: str, target: str) -> str:
    reasons = {"null": "/dev/null", "terminal": "a terminal", "socket": "a socket"}
    return reasons.get(kind, f"the device {_printable(target)}")


def _pipe_reason(readers: Sequence[str], failures: Sequence[str]) -> str:
    if not readers:
        return "a pipe that no visible process reads"
    why = f"whose file is {failures[0]}" if failures else "which writes to no file of the job"
    return f"a pipe read by {', then '.join(readers)}, {why}"


def _failure(file: OutputFile) -> str:
    """Return why a regular file cannot be read, or an empty string."""
    try:
        os.close(os.open(file.opened, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return f"{_printable(str(file.path))}, which cannot be read ({_why(error)})"
    return ""


def _why(error: OSError) -> str:
    return os.strerror(error.errno or 0)


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
