"""Collector of job data: saves what `forewarn diagnose` needs before a time-out destroys it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from forewarn.features.diagnosis.unseen_outputs import UnseenOutput, describe_unseen
from forewarn.features.time_units import HOUR, SECOND, SECONDS_PER_MINUTE
from forewarn.pipelines.agent.jobs.folder_retention import prune_folders
from forewarn.pipelines.agent.jobs.job_tables import (
    write_exits,
    write_ranks,
    write_unseen,
)
from forewarn.pipelines.agent.jobs.kernel_samples import KernelSamples
from forewarn.pipelines.agent.jobs.log_copier import LogCopier
from forewarn.pipelines.agent.jobs.process_exits import ExitWatcher, ProcessExit
from forewarn.pipelines.agent.jobs.training_processes import JobProcess, find_processes
from forewarn.pipelines.agent.jobs.worker_servers import (
    ServerError,
    WorkerServers,
    oldest_unfinished,
)
from forewarn.pipelines.config.agent_policy import JobsTable
from forewarn.pipelines.runtime.clock import Clock
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["JobCollector"]

_MAX_OPERATION_AGE = 30 * SECOND  # an older operation is stalled
_MIN_SILENCE_SECONDS = 8 * SECONDS_PER_MINUTE
_MIN_STACK_INTERVAL = 29 * SECOND  # five stack samples in two minutes
_MAX_STACK_SAMPLES = 60  # kept per job
_MAX_PARALLEL_REQUESTS = 8
_EXIT_REWRITE_PERIOD = (
    600 * SECOND
)  # exits are rewritten for this long, in case another host overwrites them
_PRUNE_INTERVAL = HOUR


@dataclass(slots=True)
class _JobState:
    due: int = 0
    sampled: int = 0
    is_idle: bool = False


@dataclass(slots=True)
class JobCollector:
    """Collector for all jobs of a host.

    Parameters
    ----------
    policy : JobsTable
    folder : Path
        Contains one folder per job.
    machine : str
    clock : Clock
    say : callable
        Writes a line to the agent's log.
    proc : Path
    """

    policy: JobsTable
    folder: Path
    machine: str
    clock: Clock
    say: Callable[[str], None]
    proc: Path = Path("/proc")
    _jobs: dict[str, _JobState] = field(default_factory=dict)
    _logged: set[str] = field(default_factory=set)
    _ends: dict[str, list[tuple[int, ProcessExit]]] = field(default_factory=dict)
    _pruned: int = 0
    _exits: ExitWatcher = field(init=False)
    _servers: WorkerServers = field(init=False)
    _logs: LogCopier = field(init=False)
    _samples: KernelSamples = field(init=False)

    def __post_init__(self) -> None:
        timeout = self.policy.timeout / SECOND
        self._servers = WorkerServers(self.policy.worker_port, timeout)
        self._logs = LogCopier(self.machine, self.policy.log_mib << 20, self.proc)
        self._samples = KernelSamples(self.machine, self.proc)
        self._exits = ExitWatcher(self.clock, self.proc)

    def run(self, stop: threading.Event) -> None:
        """Collect periodically until an event is set."""
        threading.Thread(target=self._exits.watch, args=(stop,), name="exits", daemon=True).start()
        while not stop.is_set():
            try:
                self.collect()
            except OSError as error:  # a full disk must not stop the monitoring of GPUs
                self._log_once(f"jobs cannot be collected: {error}")
            self.clock.wait(self.pause(self.clock.now()), stop)

    def pause(self, now: int) -> float:
        """Return the seconds until the next poll, request or sample is due."""
        due = [state.due for state in self._jobs.values()]
        due += [
            state.sampled + _MIN_STACK_INTERVAL for state in self._jobs.values() if state.is_idle
        ]
        ahead = [moment - now for moment in due if moment > now]
        return min([self.policy.every, *ahead]) / SECOND

    def collect(self) -> int:
        """Collect once from all training processes of this host and return their number."""
        processes = find_processes(self.proc)
        for process in processes:
            self._exits.follow(process)
        for job, job_processes in groupby(processes, key=lambda process: process.job):
            self._collect_job(job, list(job_processes))
        self._save_exits()
        self._prune({process.job for process in processes})
        return len(processes)

    def _save_exits(self) -> None:
        """Save the final output and exit codes of processes that have ended."""
        now = self.clock.now()
        for end in self._exits.ended():
            job = end.process.job
            has_error = self._logs.finish(end.process, self.folder / job / "logs")
            code = 1 if end.code is None and has_error else end.code
            if code is not None:
                self._ends.setdefault(job, []).append((code, end))
        for job, ends in list(self._ends.items()):
            rows = [(end.process.rank, code, format_iso(end.time)) for code, end in ends]
            write_exits(self.folder / job / "exits.csv", rows)
            if now - ends[-1][1].time > _EXIT_REWRITE_PERIOD:
                del self._ends[job]

    def _prune(self, busy: set[str]) -> None:
        """Remove folders of jobs that are too old or too large, once an hour."""
        now, policy = self.clock.now(), self.policy
        if now - self._pruned < _PRUNE_INTERVAL:
            return
        self._pruned = now
        if self.folder.is_dir():
            most = policy.most_gib << 30
            for line in prune_folders(self.folder, keep=policy.keep, most=most, busy=busy, now=now):
                self.say(line)

    def _collect_job(self, job: str, processes: Sequence[JobProcess]) -> None:
        folder, now = self.folder / job, self.clock.now()
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        state = self._jobs.setdefault(job, _JobState())
        write_ranks(folder / "ranks.csv", processes, self.machine)
        copied = self._logs.copy(processes, folder / "logs")
        self._report_unseen(folder, copied.unseen, processes)
        is_silent = copied.is_silent(now / SECOND, _MIN_SILENCE_SECONDS)
        for process in processes:
            self._samples.sample(process, now)
        if now >= state.due:
            oldest = self._save_recorders(processes, folder)
            state.is_idle = oldest is not None and now - oldest >= _MAX_OPERATION_AGE
            # Again as soon as the operation would be too old: a time-out may follow soon.
            old = (
                now
                if oldest is None or state.is_idle
                else oldest - self.policy.ask_every + _MAX_OPERATION_AGE
            )
            state.due = self.policy.ask_every + min(now, old)
            self._write_samples(job, folder)
        if (state.is_idle or is_silent) and now - state.sampled >= _MIN_STACK_INTERVAL:
            state.sampled = now
            self._take_stacks(processes, folder, now)

    def _report_unseen(
        self, folder: Path, unseen: Sequence[UnseenOutput], processes: Sequence[JobProcess]
    ) -> None:
        write_unseen(folder / "unseen_output" / f"{self.machine}.csv", unseen, processes)
        for text in describe_unseen(unseen):
            self._log_once(f"{folder.name}: no copy of the output of {text}")

    def _write_samples(self, job: str, folder: Path) -> None:
        try:
            self._samples.write(job, folder / "kernel")
        except ImportError:
            self._log_once('kernel samples require pyarrow: pip install "forewarn[jobs]"')

    def _save_recorders(self, processes: Sequence[JobProcess], folder: Path) -> int | None:
        """Save the flight recorders; return the entry time of the oldest unfinished operation."""
        servers = [process for process in processes if self._servers.has(process)]
        times = []
        for process, dump in self._query_all(servers, self._servers.recorder):
            times.append(oldest_unfinished(dump))
            _write_json(folder / "flight" / f"rank_{process.rank}.json", dump)
        return min((time for time in times if time is not None), default=None)

    def _take_stacks(self, processes: Sequence[JobProcess], folder: Path, now: int) -> None:
        if self.policy.stacks == "off":
            return
        read = self._servers.stacks if self.policy.stacks == "server" else self._run_py_spy
        # All hosts of a job write the samples of the same half minute into one folder.
        name = format_iso(now // (30 * SECOND) * 30 * SECOND)
        for process, threads in self._query_all(processes, read):
            _write_json(folder / "stacks" / name / f"{process.rank}.json", threads)
        for old in sorted((folder / "stacks").glob("*Z"))[:-_MAX_STACK_SAMPLES]:
            for file in old.glob("*.json"):
                file.unlink(missing_ok=True)
            with suppress(OSError):
                old.rmdir()

    def _run_py_spy(self, process: JobProcess) -> list[dict[str, Any]]:
        """Return the threads of a process, taken by py-spy without pausing it.

        A job that is sampled is stalled anyway. On a process in state D, a py-spy that pauses the
        process would block until that state ends.
        """
        command = [self.policy.py_spy, "dump", "--nonblocking", "--json"]
        command += ["--pid", str(process.pid)]
        timeout = self.policy.timeout / SECOND
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout, check=True)
            threads: list[dict[str, Any]] = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise ServerError(f"py-spy: {error}") from None
        return threads

    def _query_all(
        self, processes: Sequence[JobProcess], ask: Callable[[JobProcess], Any]
    ) -> list[tuple[JobProcess, Any]]:
        """Query all processes in parallel; skip those that do not answer, and log each once."""

        def answer(process: JobProcess) -> tuple[JobProcess, Any]:
            try:
                return process, ask(process)
            except ServerError as error:
                self._log_once(f"rank {process.rank} of {process.job}: {error}")
                return process, None

        if not processes:
            return []
        with ThreadPoolExecutor(_MAX_PARALLEL_REQUESTS) as pool:
            return [pair for pair in pool.map(answer, processes) if pair[1] is not None]

    def _log_once(self, text: str) -> None:
        if text not in self._logged and len(self._logged) < 1000:
            self._logged.add(text)
            self.say(text)


def _write_json(path: Path, value: Any) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, separators=(",", ":")), encoding="utf-8")
