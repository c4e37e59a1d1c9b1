"""A program run with limits: time, output, priority, and no process left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProgramRun", "kill_marked", "run_program"]

_MAX_OUTPUT_BYTES = 1 << 16
_KILL_WAIT_SECONDS = 5.0
_NICENESS = 10
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """What a program did.

    Attributes
    ----------
    code : int or None
        Exit code, negative for a signal; None if it did not end in time.
    output : bytes
        The beginning of its output.
    seconds : float
    """

    code: int | None
    output: bytes
    seconds: float


def run_program(
    command: Sequence[str],
    timeout: float,
    *,
    max_bytes: int = _MAX_OUTPUT_BYTES,
    term_seconds: float = 0.0,
    variables: Mapping[str, str] | None = None,
) -> ProgramRun:
    """Run a program without a shell, at low priority, in a session and process group of its own.

    The group is killed when the program ends or at the timeout. Output beyond `max_bytes` is read
    and dropped, so that the program does not block.

    Parameters
    ----------
    command : sequence of str
    timeout : float
        Seconds.
    max_bytes : int
        Of the output that is kept.
    term_seconds : float
        Time between SIGTERM and SIGKILL at the timeout; 0 omits SIGTERM.
    variables : mapping of str to str, optional
        Added to the environment.

    Raises
    ------
    OSError, ValueError
        If the program cannot be started.
    """
    started = time.monotonic()
    running = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=None if variables is None else {**os.environ, **variables},
    )
    assert running.stdout is not None
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, running.pid, _NICENESS)
    output = bytearray()
    try:
        ended = _read(running, output, started + timeout, max_bytes)
        if not ended and term_seconds > 0.0:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.SIGTERM)
            _read(running, output, time.monotonic() + term_seconds, max_bytes)
    finally:
        _kill_group(running)
        running.stdout.close()
    code = running.returncode if ended else None
    return ProgramRun(code, bytes(output), time.monotonic() - started)


def _read(running: subprocess.Popen[bytes], output: bytearray, end: float, max_bytes: int) -> bool:
    """Read the output until the program ends; return whether it did in time.

    A child that keeps the output open does not delay the result.
    """
    assert running.stdout is not None
    is_open = True
    while (left := end - time.monotonic()) > 0:
        if running.poll() is not None and not (
            is_open and select.select([running.stdout], [], [], 0)[0]
        ):
            return True
        if not is_open:
            with suppress(subprocess.TimeoutExpired):
                running.wait(left)
            continue
        # Short, since a child may keep the output open after the program has ended.
        if select.select([running.stdout], [], [], min(left, _POLL_SECONDS))[0]:
            part = os.read(running.stdout.fileno(), _MAX_OUTPUT_BYTES)
            output += part[: max_bytes - len(output)]
            is_open = bool(part)
    return False


def _kill_group(running: subprocess.Popen[bytes]) -> None:
    """Kill the program and its children; leave one that hangs in the kernel."""
    code = running.poll()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(running.pid, signal.SIGKILL)
    if code is None:
        with suppress(subprocess.TimeoutExpired):
            running.wait(_KILL_WAIT_SECONDS)


def kill_marked(variable: str) -> int:
    """Kill all processes of Linux that were started with a variable; return how many.

    It reaches children that left their process group.

    Parameters
    ----------
    variable : str
        `NAME=value`, or the beginning of it.
    """
    marker, count = variable.encode(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile, or of another user
            if int(folder.name) == os.getpid():
                continue
            variables = (folder / "environ").read_bytes().split(b"\0")
            if any(text.startswith(marker) for text in variables):
                os.kill(int(folder.name), signal.SIGKILL)
                count += 1
    return count
