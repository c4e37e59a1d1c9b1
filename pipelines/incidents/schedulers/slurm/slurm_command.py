"""Calls of Slurm's programs, with a time limit and errors of one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass

from forewarn.pipelines.incidents.schedulers.driver import DriverError, DriverTimeoutError
from forewarn.pipelines.runtime.terminal import escape_text

__all__ = ["SlurmCommand"]

_MAX_ERROR_LENGTH = 200  # characters of an error
_KILL_WAIT_SECONDS = 1.0  # for a killed program to end
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# After these errors it is unknown whether the controller took the request, or still will.
_NO_ANSWER = re.compile(
    r"contact slurm controller|timed out|zero bytes|communication|connect|socket|unexpected m",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SlurmCommand:
    """Configuration for calling Slurm's programs.

    Attributes
    ----------
    conf : str
        Path of `slurm.conf`; empty for the default of the programs.
    timeout : float
        Time limit of a call in seconds. Slurm itself gives up after its `MessageTimeout` of 10
        seconds.
    before_changes : tuple of str
        Prefix of commands that change something, such as `("sudo", "-n")`.
    path : str
        Folders of the programs, separated by colons; empty for those of the environment.
    """

    conf: str = ""
    timeout: float = 15.0
    before_changes: tuple[str, ...] = ()
    path: str = ""

    def ask(self, *command: str) -> str:
        """Return the output of a read-only command.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If the program is not installed or its exit code is not 0.
        """
        return self._run(command, command)

    def change(self, *command: str) -> str:
        """Run a command that changes something; return its output.

        Raises
        ------
        DriverTimeoutError
            If there was no answer: the change may have been made, or may be made later.
        DriverError
            As in `ask`.
        """
        return self._run((*self.before_changes, *command), command)

    def _run(self, command: tuple[str, ...], shown: tuple[str, ...]) -> str:
        name = " ".join(shown[:3])
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise DriverError(f"{command[0]}: {error.strerror}") from None
        try:
            output, errors = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise DriverTimeoutError(f"{name}: no answer in {self.timeout:g} s") from None
        if process.returncode == 0:
            return output.decode(errors="replace")
        text = (errors.strip() or output.strip()).decode(errors="replace")
        reason = (
            escape_text(" ".join(text.split())[:_MAX_ERROR_LENGTH])
            or f"exit code {process.returncode}"
        )
        kind = DriverTimeoutError if _NO_ANSWER.search(text) else DriverError
        raise kind(escape_text(f"{name}: {reason}"))

    def _environment(self) -> dict[str, str]:
        """Return the programs' environment, without forewarn's secrets; times are in UTC."""
        path = self.path or os.environ.get("PATH", _PATH)
        environment = {"PATH": path, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
        return environment | ({"SLURM_CONF": self.conf} if self.conf else {})


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and its children; skip processes of another user, as with sudo."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_WAIT_SECONDS)
