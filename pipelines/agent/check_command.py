"""One run of a custom check: a program whose exit code is its result, as Nagios defines it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from forewarn.features.telemetry.checks.check_result import CheckSeverity

__all__ = ["run_check_command"]

_SEVERITIES: Final[dict[int, CheckSeverity]] = {0: "ok", 1: "warning", 2: "error", 3: "notice"}
_MAX_OUTPUT_BYTES = 1 << 16
_MAX_MESSAGE_CHARS = 500
_KILL_WAIT_SECONDS = 5.0
_NICENESS = 10
_POLL_SECONDS = 0.25


def run_check_command(command: Sequence[str], timeout: float) -> tuple[CheckSeverity, str]:
    """Run a check and return its severity and the first line of its output.

    The program runs without a shell, at low priority and in a process group of its own, which is
    killed when it ends or at the timeout.

    Parameters
    ----------
    command : sequence of str
    timeout : float
        Seconds.

    Returns
    -------
    str
        `ok`, `warning` or `error` for the exit codes 0, 1 and 2; `notice` if the result is
        unknown: exit code 3 or any other, a timeout, or a program that cannot be run.
    str
        Printable, at most 500 characters.
    """
    try:
        running = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return "notice", _message(f"unknown: {command[0]} cannot be run: {error}")
    assert running.stdout is not None
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, running.pid, _NICENESS)
    try:
        output = _read(running, time.monotonic() + timeout)
    finally:
        _kill_group(running)
        running.stdout.close()
    if output is None or running.returncode is None:
        return "notice", f"unknown: no result within {timeout:g} s"
    code, text = running.returncode, _message(output.decode(errors="replace"))
    if code not in _SEVERITIES:
        end = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return "notice", _message(f"unknown: {command[0]} {end}{text and ': '}{text}")
    return _SEVERITIES[code], text or f"exit code {code}, no output"


def _message(text: str) -> str:
    """Return the first line that is not blank, printable and bounded."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = "".join(char if char.isprintable() else " " for char in line)
    return line[:_MAX_MESSAGE_CHARS]


def _read(running: subprocess.Popen[bytes], end: float) -> bytes | None:
    """Return the beginning of the output; None if the program did not end in time.

    More output is read and dropped, so that the program does not block. A child that keeps the
    output open does not delay the result.
    """
    assert running.stdout is not None
    output, is_open = bytearray(), True
    while (left := end - time.monotonic()) > 0:
        if running.poll() is not None and not (
            is_open and select.select([running.stdout], [], [], 0)[0]
        ):
            return bytes(output)
        if not is_open:
            with suppress(subprocess.TimeoutExpired):
                running.wait(left)
            continue
        # Short, since a child may keep the output open after the program has ended.
        if select.select([running.stdout], [], [], min(left, _POLL_SECONDS))[0]:
            part = os.read(running.stdout.fileno(), _MAX_OUTPUT_BYTES)
            output += part[: _MAX_OUTPUT_BYTES - len(output)]
            is_open = bool(part)
    return None


def _kill_group(running: subprocess.Popen[bytes]) -> None:
    """Kill the program and its children; leave one that hangs in the kernel."""
    code = running.poll()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(running.pid, signal.SIGKILL)
    if code is None:
        with suppress(subprocess.TimeoutExpired):
            running.wait(_KILL_WAIT_SECONDS)
