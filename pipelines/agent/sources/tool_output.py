"""Output of a vendor's program, within a time limit."""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

from forewarn.pipelines.agent.sources.gpu_source import HangError, NoSourceError

__all__ = ["ToolOutput", "run_tool"]

_KILL_WAIT_SECONDS = 0.5
_MAX_SHOWN_CHARS = 200
_MAX_OUTPUT_BYTES, _CHUNK_BYTES = 4 << 20, 1 << 16  # the XML of sixteen GPUs is half a MiB


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output and exit code of a program.

    Attributes
    ----------
    text : str
        What it printed on both streams.
    code : int
        Negative: the signal that killed it.
    """

    text: str
    code: int

    def end(self) -> str:
        """Describe how the program ended."""
        if self.code < 0:
            return f"was killed by signal {-self.code}"
        return f"ended with exit code {self.code}"

    def first_line(self) -> str:
        """Return the first line with text."""
        lines = (line.strip() for line in self.text.splitlines())
        return next((line[:_MAX_SHOWN_CHARS] for line in lines if line), "no output")


def run_tool(program: str, *arguments: str, timeout: float) -> ToolOutput:
    """Return the output whatever the exit code, which is an error if any GPU fails.

    Parameters
    ----------
    program : str
    *arguments : str
    timeout : float
        Seconds.

    Raises
    ------
    HangError
        If the program does not end in time.
    NoSourceError
        If it cannot be started, or prints without end.
    """
    end = time.monotonic() + timeout
    try:
        running = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise NoSourceError(f"{program}: {error.strerror}") from None
    try:
        printed = _read_until(running, end)
        if len(printed) <= _MAX_OUTPUT_BYTES:
            running.wait(max(0.0, end - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        _abandon(running)
        raise HangError(f"{program} did not respond within {timeout:g} s") from None
    if len(printed) > _MAX_OUTPUT_BYTES:
        _abandon(running)
        raise NoSourceError(f"{program} printed more than {_MAX_OUTPUT_BYTES >> 20} MiB")
    return ToolOutput(printed.decode(errors="replace"), running.returncode)


def _read_until(running: subprocess.Popen[bytes], end: float) -> bytes:
    """Return the output of a program, truncated shortly after `_MAX_OUTPUT_BYTES`."""
    assert running.stdout is not None
    parts, size = [], 0
    while size <= _MAX_OUTPUT_BYTES:
        ready, _, _ = select.select([running.stdout], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise TimeoutError
        part = os.read(running.stdout.fileno(), _CHUNK_BYTES)
        if not part:
            running.stdout.close()
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _abandon(running: subprocess.Popen[bytes]) -> None:
    """Kill a program; leave it if it hangs in the driver and cannot be killed."""
    running.kill()
    if running.stdout is not None:
        running.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        running.wait(_KILL_WAIT_SECONDS)
