"""Processes of one attempt of a launched job: its launcher on each host, below a guard."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from forewarn.features.diagnosis.log_lines.dlrover_rounds import completed_rounds
from forewarn.features.time_units import SECOND
from forewarn.pipelines.recovery import host_guard
from forewarn.pipelines.recovery.launch_record import notices_folder
from forewarn.pipelines.recovery.launch_table import LaunchTable, host_command
from forewarn.pipelines.recovery.launcher_commands import (
    MASTER_LOG,
    agent_variables,
    agent_words,
    master_words,
    torchrun_words,
)

__all__ = ["HostEnd", "LaunchedAttempt"]

_LOG = "torchrun.log"
_MARGIN_SECONDS = 30.0  # for a guard to answer after its processes are gone


class HostEnd(NamedTuple):
    """End of the processes of a host.

    Attributes
    ----------
    host : str
    code : int or None
        Of the launcher, negative if a signal ended it; None if the host or the connection was lost.
    is_begun : bool
        Whether the launcher was started.
    """

    host: str
    code: int | None
    is_begun: bool


@dataclass(slots=True)
class LaunchedAttempt:
    """Processes of one attempt.

    Attributes
    ----------
    table : LaunchTable
    folder : Path
        Of the attempt.
    number : int
    """

    table: LaunchTable
    folder: Path
    number: int
    _guards: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    _master: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _nodes: list[str] = field(default_factory=list, init=False)

    def start(self, machines: Sequence[str]) -> None:
        """Start the launcher on each machine, with the ranks of the machines fixed.

        Raises
        ------
        OSError
            If the command for a host cannot be started; those begun before are ended.
        """
        self._write_ranks(machines)
        try:
            if self.table.launcher == "dlrover":
                words = master_words(self.table, self.name, len(machines))
                self._master = self._guarded("", words, {}, self.folder / MASTER_LOG)
            for rank in range(len(machines)):
                self._start(rank, machines)
        except OSError:
            self.end()
            raise

    def replace(self, lost: str, machines: Sequence[str]) -> None:
        """Start an agent on the machine that has the rank of one whose agent is lost.

        Raises
        ------
        OSError
            If the command for the host cannot be started.
        """
        guard = self._guards.pop(lost)
        _close_input(guard)
        self._write_ranks(machines)
        [rank] = [rank for rank, host in enumerate(machines) if host not in self._guards]
        self._start(rank, machines)

    def _write_ranks(self, machines: Sequence[str]) -> None:
        count = self.table.processes
        rows = [
            f"{node * count + local},{host},{local}\n"
            for node, host in enumerate(machines)
            for local in range(count)
        ]
        for host in machines:
            (self.folder / "logs" / host).mkdir(parents=True, exist_ok=True)
        (self.folder / "ranks.csv").write_text("rank,machine,local_rank\n" + "".join(rows))

    def _start(self, rank: int, machines: Sequence[str]) -> None:
        table, host = self.table, machines[rank]
        logs = (self.folder / "logs" / host).resolve()
        variables = {
            **table.environment,
            "FOREWARN_JOB": self.name,
            "FOREWARN_ATTEMPT": str(self.number),
            "FOREWARN_NOTICES": str(notices_folder(table.folder.resolve())),
        }
        if table.launcher == "dlrover":
            node = len(self._nodes)
            self._nodes.append(host)  # by the number that the master knows it by
            variables |= agent_variables(table, self.name, rank, node, host)
            words = agent_words(table, logs)
        else:
            words = torchrun_words(table, self.name, rank, machines, logs)
        self._guards[host] = self._guarded(host, words, variables, logs / _LOG)

    def _guarded(
        self, host: str, words: Sequence[str], variables: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a command below a guard: on a host, or on this machine if its name is empty."""
        table = self.table
        source = Path(host_guard.__file__).read_text(encoding="utf-8")
        command = [
            *(table.python, "-c", source),
            f"{table.folder.resolve()}@{host}",
            str(self.number),
            f"{table.grace / SECOND:g}",
            *(f"{name}={value}" for name, value in {**table.environment, **variables}.items()),
            *("--", table.python, *words),
        ]
        with log.open("wb") as file:
            return subprocess.Popen(
                host_command(table.on_host if host else (), host, command),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def has_joined(self, host: str) -> bool:
        """Tell whether DLRover's master has given a host a rank in its latest round."""
        rounds = completed_rounds((self.folder / MASTER_LOG).read_bytes())
        return bool(rounds) and self._nodes.index(host) in rounds[-1].ranks

    def ends(self) -> list[HostEnd]:
        """Return the hosts whose processes have ended, those first that did first."""
        ended = [host for host, guard in self._guards.items() if guard.poll() is not None]
        return sorted((self._end_of(host) for host in ended), key=self._ended_at)

    def _end_of(self, host: str) -> HostEnd:
        lines = self._log(host).read_bytes().splitlines()
        prefix = host_guard.ENDED.encode() + b" "
        codes = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        is_begun = host_guard.BEGUN.encode() in lines
        code = int(codes[-1]) if codes and codes[-1].lstrip(b"-").isdigit() else None
        return HostEnd(host, code, is_begun)

    def _ended_at(self, end: HostEnd) -> int:
        return self._log(end.host).stat().st_mtime_ns

    def _log(self, host: str) -> Path:
        return self.folder / "logs" / host / _LOG

    @property
    def is_ended(self) -> bool:
        """Whether no host has a process any more."""
        return all(guard.poll() is not None for guard in self._guards.values())

    @property
    def is_master_lost(self) -> bool:
        """Whether DLRover's master has ended: then no agent can join or be replaced."""
        return self._master is not None and self._master.poll() is not None

    def evidence(self) -> Path:
        """Return the folder to diagnose: what agents collected of this attempt, else its own."""
        if self.table.evidence is not None:
            collected = self.table.evidence / self.name
            if collected.is_dir():
                return collected
        return self.folder

    @property
    def name(self) -> str:
        """Name by which agents know the attempt."""
        return f"{self.table.folder.name}-{self.number}"

    def last_line_at(self) -> int:
        """Return when any log last grew, in nanoseconds since 1970 UTC."""
        return max((path.stat().st_mtime_ns for path in self._files()), default=0)

    def _files(self) -> Iterator[Path]:
        return (path for path in (self.folder / "logs").rglob("*.log") if path.is_file())

    def end(self) -> None:
        """End all processes: TERM, then KILL.

        The guards do it on their hosts once their input ends. A connection that does not end in
        time is killed.
        """
        limit = time.monotonic() + self.table.grace / SECOND + _MARGIN_SECONDS
        guards = [*self._guards.values(), *([] if self._master is None else [self._master])]
        for guard in guards:
            _close_input(guard)
        for guard in guards:
            try:
                guard.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(guard.pid, signal.SIGKILL)
                guard.wait()


def _close_input(guard: subprocess.Popen[bytes]) -> None:
    """Ask a guard to end its command."""
    if guard.stdin is not None:
        with suppress(BrokenPipeError):
            guard.stdin.close()
