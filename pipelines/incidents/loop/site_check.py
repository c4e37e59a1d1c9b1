"""Site check of a machine, run before it returns to service."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import IO

from forewarn.features.errors import InputError

__all__ = ["CheckResult", "CheckState", "SiteCheck"]

_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_FIELD = re.compile(r"\{(\w*)\}")
_FIELDS = frozenset({"machine", "action", "reservation"})
_MAX_OUTPUT_CHARS = 4000  # last characters of the output
_KILL_WAIT_SECONDS = 1.0  # for a killed check to end


class CheckState(IntEnum):
    """Result of a check, by exit code as in Nagios and gcm.

    A check that times out, cannot be started, is killed or ends with another code is `UNKNOWN`.
    """

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check.

    Attributes
    ----------
    state : CheckState
    detail : str
        Last line of the output, or the reason why there is none.
    output : str
        Last 4,000 characters of the output.
    """

    state: CheckState
    detail: str
    output: str = ""

    @property
    def passed(self) -> bool:
        """Tell whether the machine may return to service; a warning does not prevent it."""
        return self.state <= CheckState.WARNING


@dataclass(frozen=True, slots=True)
class SiteCheck:
    """Command by which a site checks a machine.

    Attributes
    ----------
    command : tuple of str
        Program and arguments, run without a shell. `{machine}`, `{action}` and `{reservation}` are
        replaced: `("srun", "-w", "{machine}", "--reservation={reservation}", "/opt/check")`.
    timeout : float
        Seconds.
    """

    command: tuple[str, ...]
    timeout: float = 600.0

    def __post_init__(self) -> None:
        """Validate the command.

        Raises
        ------
        InputError
            If it is empty or names an unknown field.
        """
        if not self.command or not self.command[0]:
            raise InputError("`check` is empty, expected a list of program and arguments.")
        names = {name for part in self.command for name in _FIELD.findall(part)}
        if names - _FIELDS:
            raise InputError(
                f"`check` has {{{min(names - _FIELDS)}}}, expected {{machine}}, {{action}} or "
                "{reservation}."
            )

    def run(self, machine: str, *, action: int, reservation: str = "") -> CheckResult:
        """Check one machine and wait for the result.

        Raises
        ------
        InputError
            If the name is not a hostname, or could be read as an option.
        """
        if not _MACHINE.fullmatch(machine):
            raise InputError(f"{machine[:100]!r} is not a valid machine name.")
        values = {"machine": machine, "action": str(action), "reservation": reservation}
        command = [_FIELD.sub(lambda field: values[field[1]], part) for part in self.command]
        # A file instead of a pipe: a process that the check leaves behind must not block us.
        with tempfile.TemporaryFile() as output:
            try:
                code = self._code(command, output)
            except OSError as error:
                return CheckResult(CheckState.UNKNOWN, f"{command[0]}: {error.strerror}")
            text = _tail(output)
        if code is None:
            return CheckResult(CheckState.UNKNOWN, f"no result within {self.timeout:g} s", text)
        lines = [line for line in text.splitlines() if line.strip()]
        detail = lines[-1].strip() if lines else f"exit code {code}"
        state = CheckState(code) if 0 <= code <= CheckState.UNKNOWN else CheckState.UNKNOWN
        return CheckResult(state, detail, text)

    def _code(self, command: list[str], output: IO[bytes]) -> int | None:
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
            return process.wait(self.timeout)
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
