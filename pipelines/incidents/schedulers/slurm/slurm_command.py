"""Calls of Slurm's own programs: argument lists, an end in any case, errors as words."""

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
_KILL_WAIT_SECONDS = 1.0  # seconds for a killed program to be gone
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# After these nobody knows whether the controller took the request, or will.
_NO_ANSWER = re.compile(
    r"contact slurm controller|timed out|zero bytes|communication|connect|socket|unexpected m",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SlurmCommand:
    """How Slurm's programs are called.

    Attributes
    ----------
    conf : str
        Path of `slurm.conf`; empty for the programs' own.
    timeout : float
        Seconds for one call. Slurm gives up by itself after its `MessageTimeout` of 10 seconds.
    before_changes : tuple of str
        What stands before a program that changes something, such as `("sudo", "-n")`.
    path : str
        Folders of the programs, separated by colons; empty for what the environment says.
    """

    conf: str = ""
    timeout: float = 15.0
    before_changes: tuple[str, ...] = ()
    path: str = ""

    def ask(self, *command: str) -> str:
        """Return what a program prints that changes nothing.

        Raises
        ------
        DriverTimeoutError
            If no answer came.
        DriverError
            If it is not installed or its exit code is not 0.
        """
        return self._run(command, command)

    def change(self, *command: str) -> str:
        """Have something changed; return what is printed.

        Raises
        ------
        DriverTimeoutError
            If no answer came: it may have been done, or be done later.
        DriverError
            As of `ask`.
        """
        return self._run((*self.before_changes, *command), command)

    def _run(self, command: tuple[str, ...], named: tuple[str, ...]) -> str:
        words = " ".join(named[:3])
        try:
            running = subprocess.Popen(
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
            output, complaint = running.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            _abandon(running)
            raise DriverTimeoutError(f"{words}: no answer in {self.timeout:g} s") from None
        if running.returncode == 0:
            return output.decode(errors="replace")
        text = (complaint.strip() or output.strip()).decode(errors="replace")
        reason = (
            escape_text(" ".join(text.split())[:_MAX_ERROR_LENGTH])
            or f"exit code {running.returncode}"
        )
        kind = DriverTimeoutError if _NO_ANSWER.search(text) else DriverError
        raise kind(escape_text(f"{words}: {reason}"))

    def _environment(self) -> dict[str, str]:
        """Return what Slurm's programs need, and no secret of ours; their times are in UTC."""
        path = self.path or os.environ.get("PATH", _PATH)
        environment = {"PATH": path, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
        return environment | ({"SLURM_CONF": self.conf} if self.conf else {})


def _abandon(running: subprocess.Popen[bytes]) -> None:
    """Kill a program and its children; leave one that is another user's, as of sudo."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(running.pid, signal.SIGKILL)
    for stream in (running.stdout, running.stderr):
        if stream is not None:
            stream.close()
    with suppress(subprocess.TimeoutExpired):
        running.wait(_KILL_WAIT_SECONDS)
