"""Logs of the attempt that was running at a given time, and what they contain."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from forewarn.features.diagnosis.error_report import ErrorReport
from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_scan import (
    CUT_EXCEPTION,
    LoggedStep,
    LogHit,
    LogScan,
)
from forewarn.features.diagnosis.log_lines.log_timestamp import parse_line_timestamp
from forewarn.features.diagnosis.log_lines.named_peer import named_peers, present_ranks
from forewarn.features.diagnosis.log_lines.python_exceptions import TRACEBACK, is_exception
from forewarn.features.diagnosis.log_streams.heard_facts import writing_host
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.clocks.clock_offsets import clock_offsets
from forewarn.models.diagnosis.crash.machine_symptoms import MachineSymptom
from forewarn.models.diagnosis.crash.rank_exit import (
    NamedPeer,
    RankExit,
    Symptom,
    symptom_from_line,
)
from forewarn.models.diagnosis.probes.log_probe import silence_limit
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.pipelines.diagnosis.parts.exits_part import ExitsPart
from forewarn.pipelines.diagnosis.parts.launched_ranks import LaunchedRanks
from forewarn.pipelines.diagnosis.parts.log_reader import ScannedLog

__all__ = ["JobAttempt", "attempt_at", "machine_symptoms"]

# A launcher's report of an exit says nothing about the machine, and the launcher itself may have
# sent the signal.
_LAUNCHER_EXIT_LINE = re.compile(
    r"\bexit_?code *[:=]|Signal \d+ \(SIG[A-Z]+\) received by PID|\bCalledProcessError: Command "
)
_OOM_KILL = re.compile(r"[Kk]illed process (\d{1,10})\b(?:,? \((?P<name>[^)]*)\))?")
_JOB_PROCESS = re.compile(r"(?i)py|train|torch|ray|deepspeed|accelerate|mpi|srun|slurm|job|worker")
_DEVICE = re.compile(r"\b[A-Za-z][\w.-]*\d[\w.-]*|\b\d{1,3}(?:\.\d{1,3}){3}\b|[\w-]+-\d+\b")
_AT_EXIT = re.compile(
    rb"\bin (?:_exitfunc|_run_exitfuncs|_python_exit|__del__|_cleanup|_shutdown)\s*$"
    rb"|\batexit\b|Exception ignored in",
    re.MULTILINE,
)
_MIN_STEPS = 4  # of which the usual time between two is known
_OWN_FLUSH_DELAY = 5 * SECOND  # an earlier step of the same rank may be written after an error
_OTHER_CLOCK_ERROR = MINUTE  # clocks of machines differ


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """Logs of the attempt that is running at a time.

    Attributes
    ----------
    logs : tuple of ScannedLog
        Logs of this attempt in torchrun's tree, and all logs outside of it.
    launched : LaunchedRanks
        Machines and ends of the ranks as the text states them.
    at, start : int and (int or None)
        Nanoseconds since 1970 UTC.
    number : int
        Attempt number in torchrun's tree.
    last_step : int or None
        Time of the last step of any rank.
    """

    logs: tuple[ScannedLog, ...]
    launched: LaunchedRanks
    at: int
    start: int | None
    number: int
    last_step: int | None = field(default=None, init=False)
    _by_rank: dict[int | None, list[ScannedLog]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Index the logs by rank, and find the last step of the job."""
        object.__setattr__(self, "last_step", _last_step(self.logs, self.at))
        for log in self.logs:
            self._by_rank.setdefault(log.rank, []).append(log)

    @property
    def since(self) -> int | None:
        """Time from which exits belong to this attempt; clocks may differ by a minute."""
        return None if self.start is None else self.start - MINUTE

    def logs_of_rank(self, rank: int) -> list[ScannedLog]:
        """Return the logs of a rank."""
        return self._by_rank.get(rank, [])

    def hits(self, scan: LogScan) -> Iterator[LogHit]:
        """Yield the matched lines of this attempt, up to its time."""
        current = _count_attempts(scan, self.at)
        is_whole = scan.last is None or scan.last <= self.at
        for hit in scan.hits:
            is_past = is_whole if hit.time is None else hit.time <= self.at
            if hit.attempt == current and is_past:
                yield hit

    def last_writes(self) -> dict[int, int | None]:
        """Return the last write of each rank; None if none of its logs has times."""
        writes: dict[int, int | None] = {}
        for log in self.logs:
            if log.rank is None or log.scan is None or not log.scan.size:
                continue
            time, before = log.scan.times.last_before(self.at), writes.get(log.rank)
            known = [moment for moment in (time, before) if moment is not None]
            writes[log.rank] = max(known, default=None)
        return writes

    def marks(self, since: int | None) -> list[int]:
        """Return when any rank wrote since a time; none if that time is None."""
        scans = [log.scan for log in self.logs if log.rank is not None]
        every = {mark for scan in scans if scan is not None for mark in (*scan.marks, scan.last)}
        return [mark for mark in every if mark is not None and since is not None and mark >= since]

    def steps(self, log: ScannedLog) -> Iterator[LoggedStep]:
        """Yield the steps that a log shows, up to the time of the verdict."""
        for step in log.scan.steps if log.scan is not None else ():
            if step.time is None or step.time <= self.at:
                yield step

    def offsets(self, ranks: Ranks) -> Mapping[str, int]:
        """Return by how much the clock of each machine is ahead."""
        steps: dict[str, list[tuple[int, int]]] = {}
        for log in self.logs:
            machine = ranks.machine(log.rank) or log.stream.machine
            if machine is not None and log.rank is not None:
                timed = [(s.number, s.time) for s in self.steps(log) if s.time is not None]
                steps.setdefault(machine, []).extend(timed)
        return clock_offsets(steps)

    def rank_exits(
        self, ranks: Ranks, matcher: LogMatcher, exits: ExitsPart | None
    ) -> list[RankExit]:
        """Return the exit of each rank, empty if there is no sign of one."""
        offsets, writes = self.offsets(ranks), self.last_writes()
        reports = self._master_reports()
        launches = self.launched.ends(self.logs, ranks, self.at)
        ends = []
        for rank in ranks.table:
            machine = ranks.machine(rank)
            ahead = offsets.get(machine or "", 0)
            last = exits.last_exit(rank, self.at, self.since) if exits is not None else None
            report, launch = reports.get(rank), launches.get(rank)
            code = report.exit_code if report else launch.exit_code if launch else None
            time = launch.time if launch else None
            if last is not None:
                code, time = last.code, last.time
            symptoms = [
                *self._line_symptoms(rank, ranks),
                *self._error_symptoms(rank, report, matcher),
            ]
            ends.append(
                RankExit(
                    rank,
                    machine,
                    tuple(
                        _shift_symptom(symptom, ahead)
                        for symptom in sorted(symptoms, key=_sort_key)
                    ),
                    code,
                    None if time is None else time - ahead,
                    None if (write := writes.get(rank)) is None else write - ahead,
                    is_first=launch is not None and launch.is_first,
                    has_log=rank in self._by_rank,
                    is_done=any(log.is_done for log in self.logs_of_rank(rank)),
                )
            )
        return ends

    def last_lines(self, rank: int) -> list[str]:
        """Return the last lines of the logs of a rank."""
        tails = (log.scan.tail for log in self.logs_of_rank(rank) if log.scan is not None)
        return [line for tail in tails for line in tail.decode("utf-8", "replace").splitlines()]

    def _line_symptoms(self, rank: int, ranks: Ranks) -> Iterator[Symptom]:
        for log in self.logs_of_rank(rank):
            yield from self._symptoms(log, ranks)

    def _symptoms(self, log: ScannedLog, ranks: Ranks) -> Iterator[Symptom]:
        """Yield the symptoms of a log, with the peers that its lines name."""
        if log.scan is None:
            return
        own = list(self.steps(log))
        step = self.last_step
        hits = list(self.hits(log.scan))
        recoveries = [hit for hit in hits if hit.pattern.cancels]
        completed = _completed_at(hits, own)
        for hit in hits:
            symptom = symptom_from_line(hit.pattern, hit.line, hit.time)
            peers = self._peers(hit, ranks)
            is_survived = _is_survived(hit, own, step, log.scan) or any(
                _is_recovered(hit, recovery) for recovery in recoveries
            )
            yield replace(
                symptom,
                peers=peers,
                is_survived=is_survived,
                writer=self._writer(log, hit, ranks),
                at_exit=completed is not None
                and hit.offset > completed
                and _is_at_exit(hit, log.scan),
            )

    def _writer(self, log: ScannedLog, hit: LogHit, ranks: Ranks) -> str | None:
        """Return the machine that wrote a line: a console has the lines of several."""
        machine = self._machine(log, ranks)
        host = writing_host(hit.line) if machine is None else None
        return machine if host is None else self.launched.machine(host, ranks)

    def _machine(self, log: ScannedLog, ranks: Ranks) -> str | None:
        """Return the machine of a log, rather than the pod that it is named after."""
        machine = ranks.machine(log.rank) or log.stream.machine
        return self.launched.nodes.get(machine or "", machine)

    def _peers(self, hit: LogHit, ranks: Ranks) -> tuple[NamedPeer, ...]:
        """Return the ranks and machines that a line waits for or has lost."""
        named = (self.launched.resolve(p, ranks) for p in named_peers(hit.pattern, hit.message))
        present = present_ranks(hit.pattern, hit.line)
        absent = self.launched.others(present, ranks) if present else ()
        return (*(peer for peer in named if peer is not None), *absent)

    def _error_symptoms(
        self, rank: int, report: ErrorReport | None, matcher: LogMatcher
    ) -> Iterator[Symptom]:
        errors = [log.error for log in self.logs_of_rank(rank) if log.error is not None]
        for error in errors or ([report] if report is not None and report.message else []):
            if error.time is None or error.time <= self.at:
                line = error.message.strip().splitlines()[0] if error.message.strip() else ""
                pattern = matcher.first(" ".join(error.message.split()).encode())
                yield symptom_from_line(pattern, line[:500], error.time, is_report=True)

    def _master_reports(self) -> dict[int, ErrorReport]:
        """Return the reports of DLRover's master per rank, from the last known restart."""
        reports: dict[int, ErrorReport] = {}
        known = [
            report
            for log in self.logs
            for report in log.master
            if report.time is None or report.time <= self.at
        ]
        latest = max((report.error.restart or 0 for report in known), default=0)
        for report in known:
            if (report.error.restart or 0) == latest:
                error = report.error
                time = error.time if error.time is not None else report.time
                reports.setdefault(report.rank, replace(error, time=time))
        return reports

    def unplaced_symptoms(self, ranks: Ranks) -> list[tuple[ScannedLog, Symptom]]:
        """Return the symptoms in logs of machines, launchers and writers whose rank is unknown.

        A stack trace that breaks off tells only that its rank failed, too.
        """
        logs = self._by_rank.get(None, ())
        symptoms = ((log, symptom) for log in logs for symptom in self._symptoms(log, ranks))
        return [item for item in symptoms if item[1].pattern != CUT_EXCEPTION.id]

    def writers(self, ranks: Ranks) -> frozenset[str]:
        """Return the machines that wrote any log."""
        logs = (log for log in self.logs if log.scan is not None and log.scan.size)
        machines = (self._machine(log, ranks) for log in logs)
        return frozenset(machine for machine in machines if machine is not None)

    def launcher_symptoms(self, ranks: Ranks) -> list[Symptom]:
        """Return the failures of processes that a launcher reports without their rank."""
        return [s for log in self.logs for s in self.launched.unknown_ends(log, ranks, self.at)]

    def has_crashed(self, ends: Sequence[RankExit], others: Sequence[Symptom]) -> bool:
        """Return whether the job ended: by an exit, an exception, or an error not survived.

        An error of a device or a connection is no end while steps are logged as often as before.
        """
        if any(end.exit_code for end in ends):
            return True
        decisive = [symptom for end in ends if (symptom := end.decisive) is not None]
        decisive += [s for s in others if s.is_counted and (s.is_strong or s.source == "exits")]
        harmful = [symptom for symptom in decisive if symptom.level != "warning"]
        return any(symptom.is_fatal for symptom in harmful) or (
            bool(harmful) and not self.is_stepping()
        )

    def is_stepping(self) -> bool:
        """Return whether the last step is no older than is usual between two steps."""
        times = {step.time for log in self.logs for step in self.steps(log)}
        steps = sorted(time for time in times if time is not None)
        if len(steps) < _MIN_STEPS:
            return False
        usual = max(later - earlier for earlier, later in itertools.pairwise(steps[-_MIN_STEPS:]))
        return self.at - steps[-1] <= 2 * usual + _OWN_FLUSH_DELAY

    def is_progressing(self) -> bool:
        """Return whether a step was logged so recently that its log may still be silent."""
        step = self.last_step
        if step is None:
            return self._ends_with_steps()
        return self.at - step <= silence_limit(self.marks(self.start))

    def error_after_steps(self) -> str | None:
        """Return a line after the last step that looks like an error and matches no pattern."""
        for log in self.logs:
            error = None if log.scan is None else log.scan.last_unknown
            if error is None or (error.time is not None and error.time > self.at):
                continue
            own = max((step.offset for step in self.steps(log)), default=None)
            is_later = own is not None and error.offset >= own  # one line may hold both
            if error.time is not None and self.last_step is not None:
                is_later = is_later or error.time > self.last_step + _OTHER_CLOCK_ERROR
            if is_later:
                return error.line
        return None

    def first_error(self, ranks: Ranks) -> Fault | None:
        """Return the first error that was not survived, as far as the logs show."""
        every = (symptom for log in self.logs for symptom in self._symptoms(log, ranks))
        counted = [s for s in every if s.is_counted and s.level != "warning"]
        first = min(counted, key=_sort_key, default=None)
        return None if first is None else first.fault

    def _ends_with_steps(self) -> bool:
        """Return whether a log without times ends with a step."""
        return any(
            log.scan is not None
            and log.scan.steps
            and log.scan.steps[-1].offset >= log.scan.size - len(log.scan.tail)
            for log in self.logs
        )


def _last_step(logs: Iterable[ScannedLog], at: int) -> int | None:
    """Return the time of the last step up to a time."""
    steps = (step.time for log in logs if log.scan is not None for step in log.scan.steps)
    return max((time for time in steps if time is not None and time <= at), default=None)


def _completed_at(hits: Sequence[LogHit], own: Sequence[LoggedStep]) -> int | None:
    """Return where a log says that the training ended as planned; training that goes on has not."""
    offset = max((hit.offset for hit in hits if hit.pattern.role == "completed"), default=None)
    return None if offset is None or (own and own[-1].offset > offset) else offset


def _is_at_exit(hit: LogHit, scan: LogScan) -> bool:
    """Return whether a line is an exception of an exit handler at the end of a log.

    Its stack trace shows that. After the training, a program also saves its last checkpoint.
    """
    end = hit.offset - (scan.size - len(scan.tail))
    trace = scan.tail.rfind(TRACEBACK, 0, max(end, 0))
    if trace < 0 or not is_exception(hit.line):
        return False
    above = scan.tail.rfind(b"\n", 0, max(scan.tail.rfind(b"\n", 0, trace), 0)) + 1
    is_of_program = hit.pattern.scope in ("application", "platform")
    return is_of_program and _AT_EXIT.search(scan.tail, above, end) is not None


def _is_recovered(hit: LogHit, recovery: LogHit) -> bool:
    """Return whether a later line says that the same device or server works again."""
    if hit.pattern.id not in recovery.pattern.cancels or hit.offset >= recovery.offset:
        return False
    names = set(_DEVICE.findall(hit.line))
    return bool(names.intersection(_DEVICE.findall(recovery.line)))


def _is_survived(hit: LogHit, own: Sequence[LoggedStep], step: int | None, scan: LogScan) -> bool:
    """Return whether the rank, or the whole job, made a step after a line.

    A line without a time may be as late as the next one that has a time.

    Parameters
    ----------
    hit : LogHit
    own : sequence of LoggedStep
        Steps in the same log.
    step : int or None
        Time of the last step of any rank.
    scan : LogScan
        The same log.
    """
    if hit.time is None:
        return bool(own) and own[-1].offset > hit.offset
    last = max((s.time for s in own if s.time is not None), default=None)
    if last is not None and last > hit.time + _OWN_FLUSH_DELAY:
        return True
    return step is not None and step > _latest_time(hit, hit.time, scan) + _OTHER_CLOCK_ERROR


def _latest_time(hit: LogHit, time: int, scan: LogScan) -> int:
    """Return when a line was written at the latest, as far as the next line with a time says."""
    if parse_line_timestamp(hit.line.encode(), time, zone=scan.zone) is not None:
        return time
    number = bisect_right(scan.marks, time)
    return scan.marks[number] if number < len(scan.marks) else time


def machine_symptoms(
    unplaced: Iterable[tuple[ScannedLog, Symptom]], ranks: Ranks
) -> list[MachineSymptom]:
    """Return the symptoms of machines, among those of unknown ranks.

    Parameters
    ----------
    unplaced : iterable of (ScannedLog, Symptom)
        As `JobAttempt.unplaced_symptoms` returns them.
    ranks : Ranks
    """
    named = {row.machine for row in ranks.table.values()} - {None}
    alone = next(iter(named)) if len(named) == 1 else None
    symptoms = []
    for log, symptom in unplaced:
        machine = log.stream.machine or alone
        if machine is not None and _is_of_job(symptom.line, machine, ranks):
            is_kernel = log.stream.is_kernel or symptom.by_kernel
            source: Literal["kernel", "logs"] = "kernel" if is_kernel else "logs"
            rank = _rank_of_pid(symptom.line, machine, ranks)
            symptoms.append(MachineSymptom(machine, replace(symptom, source=source), rank))
    return symptoms


def _is_of_job(line: str, machine: str, ranks: Ranks) -> bool:
    """Return whether a line of a machine may concern the job, not a launcher or another program."""
    if _LAUNCHER_EXIT_LINE.search(line):
        return False
    kill = _OOM_KILL.search(line)
    if kill is None or _rank_of_pid(line, machine, ranks) is not None or not kill["name"]:
        return True
    return _JOB_PROCESS.search(kill["name"]) is not None


def attempt_at(logs: Sequence[ScannedLog], launched: LaunchedRanks, at: int) -> JobAttempt:
    """Return the attempt that is running at a time."""
    number, trees = _running_trees(logs, at)
    current = [
        log
        for log in logs
        if not log.stream.is_torchrun or (log.stream.launcher, log.stream.attempt) in trees
    ]
    starts = [_attempt_start(log, at) for log in current if log.rank is not None]
    known = [start for start in starts if start is not None]
    step = _last_step(current, at)
    current = [log.without_ended(step) for log in current]
    return JobAttempt(tuple(current), launched, at, min(known, default=None), number)


def _running_trees(logs: Sequence[ScannedLog], at: int) -> tuple[int, set[tuple[str, int]]]:
    """Return the newest attempt in torchrun's trees, and the attempts that are part of it.

    Each launcher counts its own attempts: one that replaces another in a running job begins at 0.
    """
    times: dict[tuple[str, int], list[int]] = {}
    for log in logs:
        if log.stream.is_torchrun:
            known = times.setdefault((log.stream.launcher, log.stream.attempt), [])
            both = (_first_time(log), None if log.scan is None else log.scan.last)
            known += [time for time in both if time is not None]
    times = {key: known for key, known in times.items() if min(known, default=at) <= at}
    newest = dict(sorted(times))
    number = max(newest.values(), default=0)
    begin = min((t for (_, n), known in times.items() if n == number for t in known), default=None)

    def is_part(tree: str, attempt: int) -> bool:
        known = times[tree, attempt]
        if attempt == number or begin is None or not known:
            return attempt == number
        return max(known) > begin and min(known) > begin - _OTHER_CLOCK_ERROR

    return number, {(tree, attempt) for tree, attempt in newest.items() if is_part(tree, attempt)}


def _first_time(log: ScannedLog) -> int | None:
    if log.error is not None:
        return log.error.time
    return log.scan.marks[0] if log.scan is not None and log.scan.marks else None


def _attempt_start(log: ScannedLog, at: int) -> int | None:
    """Return the start of the attempt that a log belongs to."""
    if log.scan is None:
        return None
    starts = [time for time in log.scan.starts if time is not None and time <= at]
    return starts[-1] if starts else _first_time(log)


def _count_attempts(scan: LogScan, at: int) -> int:
    """Return the number of attempts in a log before a time."""
    return sum(1 for time in scan.starts if time is None or time <= at)


def _sort_key(symptom: Symptom) -> tuple[int, bool]:
    return (2**63 if symptom.time is None else symptom.time, symptom.is_report)


def _shift_symptom(symptom: Symptom, ahead: int) -> Symptom:
    return (
        symptom
        if symptom.time is None or not ahead
        else replace(symptom, time=symptom.time - ahead)
    )


def _rank_of_pid(line: str, machine: str, ranks: Ranks) -> int | None:
    match = _OOM_KILL.search(line)
    if match is None:
        return None
    pid = int(match[1])
    return next((rank for rank in ranks.on(machine) if ranks.table[rank].pid == pid), None)
