"""Commands of a site about one machine: fields replaced, no shell, a time limit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from forewarn.features.errors import InputError

__all__ = ["CommandResult", "command_fields", "run_site_command"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_FIELD = re.compile(r"\{(\w*)\}")
_MAX_OUTPUT_CHARS = 4000  # last characters of the output
_KILL_WAIT_SECONDS = 1.0  # for a killed command to end


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command.

    Attributes
    ----------
    code : int or None
        Exit code, negative if a signal ended it; None if it did not start or took too long.
    detail : str
        Last line of the output, or the reason why there is none.
    output : str
        Last 4,000 characters of the output.
    started : bool
    """

    code: int | None
    detail: str
    output: str = ""
    started: bool = True


def command_fields(command: Sequence[str]) -> set[str]:
    """Return the names of the fields of a command, such as `machine` for `{machine}`."""
    return {name for part in command for name in _FIELD.findall(part)}


def run_site_command(
    command: Sequence[str], values: Mapping[str, str], *, timeout: float
) -> CommandResult:
    """Run a command and wait for it, at most `timeout` seconds.

    Parameters
    ----------
    command : sequence of str
        Program and arguments, run without a shell.
    values : mapping of str to str
        Replace `{machine}` and other fields.
    timeout : float
        Seconds after which the command and its children are killed.

    Raises
    ------
    InputError
        If the machine or serial is no valid name, or could be read as an option.
    """
    if not _NAME.fullmatch(values["machine"]):
        raise InputError(f"{values['machine'][:100]!r} is not a valid machine name.")
    serial = values.get("gpu_serial", "")
    if serial and not _NAME.fullmatch(serial):
        raise InputError(f"{serial[:100]!r} is not a valid serial of a GPU.")
    filled = [_FIELD.sub(lambda field: values[field[1]], part) for part in command]
    # A file instead of a pipe: a process that the command leaves behind must not block us.
    with tempfile.TemporaryFile() as output:
        try:
            code = _exit_code(filled, output, timeout)
        except OSError as error:
            return CommandResult(None, f"{filled[0]}: {error.strerror}", started=False)
        text = _tail(output)
    if code is None:
        return CommandResult(None, f"no result within {timeout:g} s", text)
    lines = [line for line in text.splitlines() if line.strip()]
    return CommandResult(code, lines[-1].strip() if lines else f"exit code {code}", text)


def _exit_code(command: list[str], output: IO[bytes], timeout: float) -> int | None:
    """Return the exit code; None after the time limit."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={k: v for k, v in os.environ.items() if not k.startswith("FOREWARN_")},
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_WAIT_SECONDS)
        return None


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - 4 * _MAX_OUTPUT_CHARS))
    return output.read().decode(errors="replace")[-_MAX_OUTPUT_CHARS:]
