"""Logs of the attempt that was running at a given time, and what they contain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forewarn.features.diagnosis.error_report import ErrorReport
from forewarn.features.diagnosis.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_scan import LogHit, LogScan
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.clocks.clock_offsets import clock_offsets
from forewarn.models.diagnosis.crash.machine_symptoms import MachineSymptom
from forewarn.models.diagnosis.crash.rank_exit import RankExit, Symptom, symptom_from_line
from forewarn.pipelines.diagnosis.parts.exits_part import ExitsPart
from forewarn.pipelines.diagnosis.parts.log_reader import ScannedLog

__all__ = ["JobAttempt", "attempt_at"]

# A launcher's report of an exit says nothing about the machine, and the launcher itself may have
# sent the signal. `exits.csv` has the same information with times.
_LAUNCHER_EXIT_LINE = re.compile(r"\bexit_?code *[:=]|Signal \d+ \(SIG[A-Z]+\) received by PID")
_OOM_KILL = re.compile(r"[Kk]illed process (\d{1,10})\b")


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """Logs of the attempt that is running at a time.

    Attributes
    ----------
    logs : tuple of ScannedLog
        Logs of this attempt in torchrun's tree, and all logs outside of it.
    at, start : int and (int or None)
        Nanoseconds since 1970 UTC.
    number : int
        Attempt number in torchrun's tree.
    """

    logs: tuple[ScannedLog, ...]
    at: int
    start: int | None
    number: int
    _by_rank: dict[int | None, list[ScannedLog]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Index the logs by rank."""
        for log in self.logs:
            self._by_rank.setdefault(log.file.rank, []).append(log)

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
            if log.file.rank is None or log.scan is None or not log.scan.size:
                continue
            time, before = log.scan.last_before(self.at), writes.get(log.file.rank)
            known = [moment for moment in (time, before) if moment is not None]
            writes[log.file.rank] = max(known, default=None)
        return writes

    def marks(self, since: int | None) -> list[int]:
        """Return when any rank wrote since a time; none if that time is None."""
        scans = [log.scan for log in self.logs if log.file.rank is not None]
        every = {mark for scan in scans if scan is not None for mark in (*scan.marks, scan.last)}
        return [mark for mark in every if mark is not None and since is not None and mark >= since]

    def last_step(self, rank: int | None = None) -> int | None:
        """Return when the last step of a rank, or of any rank, was logged."""
        logs = self.logs if rank is None else self.logs_of_rank(rank)
        times = [time for log in logs if log.scan is not None for _, time in log.scan.steps]
        return max((time for time in times if time <= self.at), default=None)

    def offsets(self, ranks: Ranks) -> Mapping[str, int]:
        """Return by how much the clock of each machine is ahead."""
        steps: dict[str, list[tuple[int, int]]] = {}
        for log in self.logs:
            machine = ranks.machine(log.file.rank) or log.file.machine
            if machine is not None and log.scan is not None and log.file.rank is not None:
                steps.setdefault(machine, []).extend(log.scan.steps)
        return clock_offsets(steps)

    def rank_exits(
        self, ranks: Ranks, matcher: LogMatcher, exits: ExitsPart | None
    ) -> list[RankExit]:
        """Return the exit of each rank, empty if there is no sign of one."""
        offsets, writes = self.offsets(ranks), self.last_writes()
        reports = self._master_reports()
        ends = []
        for rank in ranks.table:
            machine = ranks.machine(rank)
            ahead = offsets.get(machine or "", 0)
            last = exits.last_exit(rank, self.at, self.since) if exits is not None else None
            report = reports.get(rank)
            code = last.code if last is not None else report.exit_code if report else None
            symptoms = [*self._line_symptoms(rank), *self._error_symptoms(rank, report, matcher)]
            ends.append(
                RankExit(
                    rank,
                    machine,
                    tuple(
                        _shift_symptom(symptom, ahead)
                        for symptom in sorted(symptoms, key=_sort_key)
                    ),
                    code,
                    None if last is None or last.time is None else last.time - ahead,
                    None if (write := writes.get(rank)) is None else write - ahead,
                    None if (step := self.last_step(rank)) is None else step - ahead,
                )
            )
        return ends

    def _line_symptoms(self, rank: int) -> Iterator[Symptom]:
        for log in self.logs_of_rank(rank):
            for hit in self.hits(log.scan) if log.scan is not None else ():
                yield symptom_from_line(hit.pattern, hit.line, hit.time)

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

    def machine_symptoms(self, ranks: Ranks) -> list[MachineSymptom]:
        """Return the symptoms in logs of machines, without exits reported by a launcher."""
        named = {row.machine for row in ranks.table.values()} - {None}
        alone = next(iter(named)) if len(named) == 1 else None
        symptoms = []
        for log in self.logs:
            machine = log.file.machine or alone
            if log.file.rank is not None or log.scan is None or machine is None:
                continue
            for hit in self.hits(log.scan):
                if _LAUNCHER_EXIT_LINE.search(hit.line):
                    continue
                symptom = replace(
                    symptom_from_line(hit.pattern, hit.line, hit.time), source="kernel"
                )
                symptoms.append(
                    MachineSymptom(machine, symptom, _rank_of_pid(hit.line, machine, ranks))
                )
        return symptoms

    def has_crashed(self, ends: Sequence[RankExit]) -> bool:
        """Return whether the job ended: by an exit, an exception, or the last lines of a log."""
        if any(end.exit_code for end in ends):
            return True
        if any(symptom.is_report for end in ends for symptom in end.symptoms):
            return True
        step = self.last_step()
        return any(self._ends_with(end, step) for end in ends)

    def _ends_with(self, end: RankExit, step: int | None) -> bool:
        """Return whether the log of a rank ends with an error and no later step."""
        symptom = end.decisive
        if symptom is None or symptom.level == "warning":
            return False
        if symptom.time is None:
            tails = [log.scan.tail for log in self.logs_of_rank(end.rank) if log.scan is not None]
            return any(symptom.line[:200].encode() in tail for tail in tails)
        is_last = end.last_write is None or end.last_write - symptom.time <= MINUTE
        return is_last and (step is None or step <= symptom.time + MINUTE)


def attempt_at(logs: Sequence[ScannedLog], at: int) -> JobAttempt:
    """Return the attempt that is running at a time."""
    begun = [
        log.file.attempt
        for log in logs
        if log.file.is_torchrun and ((first := _first_time(log)) is None or first <= at)
    ]
    number = max(begun, default=0)
    current = tuple(log for log in logs if not log.file.is_torchrun or log.file.attempt == number)
    starts = [_attempt_start(log, at) for log in current if log.file.rank is not None]
    known = [start for start in starts if start is not None]
    return JobAttempt(current, at, min(known, default=None), number)


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
