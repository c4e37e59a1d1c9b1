"""The site's own check of a machine, run before it goes back to service."""

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
_MAX_OUTPUT_CHARS = 4000  # characters of what a check prints, the last
_KILL_WAIT_SECONDS = 1.0  # seconds for a killed check to be gone


class CheckState(IntEnum):
    """What a check says, by its exit code, as the checks of Nagios and of gcm do.

    A check that runs too long, cannot be started, is killed or ends with any other code has said
    nothing: `UNKNOWN`.
    """

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check has said.

    Attributes
    ----------
    state : CheckState
    detail : str
        Its last line, or why there is none.
    output : str
        The last 4,000 characters of all that it printed.
    """

    state: CheckState
    detail: str
    output: str = ""

    @property
    def passed(self) -> bool:
        """Tell whether the machine may go back; a warning is for people and holds nothing back."""
        return self.state <= CheckState.WARNING


@dataclass(frozen=True, slots=True)
class SiteCheck:
    """How a site checks a machine.

    Attributes
    ----------
    command : tuple of str
        Program and arguments, for no shell; `{machine}`, `{action}` and `{reservation}` are filled
        in: `("srun", "-w", "{machine}", "--reservation={reservation}", "/opt/check")`.
    timeout : float
        Seconds.
    """

    command: tuple[str, ...]
    timeout: float = 600.0

    def __post_init__(self) -> None:
        """Check the command.

        Raises
        ------
        InputError
            If it is empty or names a field that is not filled in.
        """
        if not self.command or not self.command[0]:
            raise InputError("`check` names no program, expected a list of program and arguments.")
        names = {name for part in self.command for name in _FIELD.findall(part)}
        if names - _FIELDS:
            raise InputError(
                f"`check` has {{{min(names - _FIELDS)}}}, expected {{machine}}, {{action}} or "
                "{reservation}."
            )

    def run(self, machine: str, *, action: int, reservation: str = "") -> CheckResult:
        """Check one machine, and wait for the result.

        Raises
        ------
        InputError
            If the machine's name could be read as an option or is no name.
        """
        if not _MACHINE.fullmatch(machine):
            raise InputError(f"{machine[:100]!r} is no name of a machine.")
        values = {"machine": machine, "action": str(action), "reservation": reservation}
        command = [_FIELD.sub(lambda field: values[field[1]], part) for part in self.command]
        # A file, not a pipe: what a check leaves running must not keep us waiting for its end.
        with tempfile.TemporaryFile() as output:
            try:
                code = self._code(command, output)
            except OSError as error:
                return CheckResult(CheckState.UNKNOWN, f"{command[0]}: {error.strerror}")
            text = _tail(output)
        if code is None:
            return CheckResult(CheckState.UNKNOWN, f"no result in {self.timeout:g} s", text)
        lines = [line for line in text.splitlines() if line.strip()]
        detail = lines[-1].strip() if lines else f"exit code {code}"
        state = CheckState(code) if 0 <= code <= CheckState.UNKNOWN else CheckState.UNKNOWN
        return CheckResult(state, detail, text)

    def _code(self, command: list[str], output: IO[bytes]) -> int | None:
        """Return the exit code; None if it had none in time."""
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if not k.startswith("FOREWARN_")},
            start_new_session=True,
        )
        try:
            return running.wait(self.timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                running.wait(_KILL_WAIT_SECONDS)
            return None


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - 4 * _MAX_OUTPUT_CHARS))
    return output.read().decode(errors="replace")[-_MAX_OUTPUT_CHARS:]
