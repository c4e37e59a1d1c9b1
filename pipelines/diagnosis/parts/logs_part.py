"""Part `logs`: last writes of ranks, quiet phases, and the root cause of a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from forewarn.features.diagnosis.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_template import log_template
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.crash.machine_symptoms import hang_hardware_finding
from forewarn.models.diagnosis.crash.root_cause import find_root_cause
from forewarn.models.diagnosis.probes.log_phases import (
    PhaseLine,
    find_log_pauses,
    first_step_phase,
    logged_phases,
)
from forewarn.models.diagnosis.probes.log_probe import log_probe
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.job_verdict import Evidence, JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.pipelines.diagnosis.parts.exits_part import ExitsPart
from forewarn.pipelines.diagnosis.parts.hardware_parts import event_symptoms
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.diagnosis.parts.knowledge_base import load_patterns
from forewarn.pipelines.diagnosis.parts.log_attempt import JobAttempt, attempt_at
from forewarn.pipelines.diagnosis.parts.log_files import find_log_files
from forewarn.pipelines.diagnosis.parts.log_reader import (
    ScannedLog,
    last_timestamp_with_year,
    read_log,
)
from forewarn.pipelines.runtime.progress import progress_bar

__all__ = ["LogsPart", "read_logs"]

_MAX_UNKNOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class LogsPart:
    """All logs of a job.

    Attributes
    ----------
    logs : tuple of ScannedLog
    matcher : LogMatcher
    """

    logs: tuple[ScannedLog, ...]
    matcher: LogMatcher

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks mentioned in the part."""
        ranks = {log.file.rank for log in self.logs if log.file.rank is not None}
        return frozenset(ranks | {report.rank for log in self.logs for report in log.master})

    @property
    def last(self) -> int | None:
        """Latest time in any log."""
        times = [log.scan.last for log in self.logs if log.scan is not None]
        times += [log.error.time for log in self.logs if log.error is not None]
        return max((time for time in times if time is not None), default=None)

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return whether ranks still write, and which rank failed first."""
        attempt = attempt_at(self.logs, snapshot.at)
        finding = self._finding(snapshot, attempt)
        return PartResult(
            _probe(snapshot, attempt),
            () if finding is None else (finding,),
            tuple(_phases(self.logs, attempt)),
            tuple(_unusable_logs(attempt.logs)),
        )

    def clocks_ahead(self, snapshot: JobSnapshot) -> dict[int, int]:
        """Return by how many nanoseconds the clock of each rank's machine is ahead."""
        offsets = attempt_at(self.logs, snapshot.at).offsets(snapshot.ranks)
        machines = {rank: row.machine for rank, row in snapshot.ranks.table.items()}
        return {
            rank: offsets[machine]
            for rank, machine in machines.items()
            if machine is not None and machine in offsets
        }

    def _finding(self, snapshot: JobSnapshot, attempt: JobAttempt) -> JobFinding | None:
        exits = snapshot.parts.get("exits")
        ends = attempt.rank_exits(
            snapshot.ranks, self.matcher, exits if isinstance(exits, ExitsPart) else None
        )
        symptoms = attempt.machine_symptoms(snapshot.ranks)
        if not attempt.has_crashed(ends):  # in a hang, the part `events` reports these itself
            return None if "events" in snapshot.parts else hang_hardware_finding(symptoms, ends)
        symptoms += event_symptoms(snapshot, self.matcher)
        finding = find_root_cause(ends, machine_symptoms=symptoms, masked=log_template)
        is_whole = self.last is None or self.last <= snapshot.at
        if finding is None or not is_whole:
            return finding
        return replace(
            finding, evidence=(*finding.evidence, *_unknown_error_evidence(attempt.logs))
        )


def read_logs(folder: JobFolder, ranks: Ranks) -> LogsPart | None:
    """Read the logs of a job, or return None if there are none."""
    path = folder.part("logs")
    if path is None or not path.is_dir():
        return None
    files = find_log_files(path, ranks)
    if not files:
        return None
    matcher, before = load_patterns(folder.patterns), last_timestamp_with_year(files)
    logs = []
    with progress_bar(len(files), "reading logs", "file") as bar:
        for file in files:
            logs.append(read_log(file, matcher, before))
            bar.update()
    return LogsPart(tuple(logs), matcher)


def _probe(snapshot: JobSnapshot, attempt: JobAttempt) -> Probe | None:
    """Return the log probe, or None if no rank has a log."""
    exits, writes = snapshot.parts.get("exits"), attempt.last_writes()
    if isinstance(exits, ExitsPart) and snapshot.ranks.table:
        since = attempt.since
        if all(
            exits.last_exit(rank, snapshot.at, since) is not None for rank in snapshot.ranks.table
        ):
            return Probe("log", "blind", None, "all ranks have ended")
    return log_probe(writes, snapshot.at, attempt.marks(attempt.start)) if writes else None


def _phases(logs: Sequence[ScannedLog], attempt: JobAttempt) -> Iterator[Phase]:
    """Yield the phases of all attempts, and the restarts that interrupt them."""
    lines: dict[tuple[int, int], list[PhaseLine]] = {}
    restarts, first_steps = set[int](), []
    current = {id(log) for log in attempt.logs}
    for log in logs:
        scan = log.scan
        if scan is None or log.file.rank is None:
            continue
        if log.file.attempt and scan.marks:
            restarts.add(scan.marks[0])
        restarts.update(time for time in scan.starts if time is not None)
        if id(log) in current:
            first_steps += [time for _, time in scan.first_steps]
        for hit in scan.phases:
            if hit.time is not None and hit.time <= attempt.at and hit.pattern.phase is not None:
                kind, verb = hit.pattern.phase.split()
                line = PhaseLine(kind, verb == "begins", hit.time)  # type: ignore[arg-type]
                lines.setdefault((log.file.attempt, hit.attempt), []).append(line)
    for group in lines.values():
        yield from logged_phases(group, attempt.last_step())
    yield from (Phase("restart", time, time) for time in sorted(restarts) if time <= attempt.at)
    yield from first_step_phase(attempt.start, first_steps, attempt.at)
    yield from find_log_pauses(attempt.marks(min(first_steps, default=None)), attempt.at)


def _unusable_logs(logs: Sequence[ScannedLog]) -> Iterator[str]:
    """Yield the reasons why logs cannot be used, one line per reason."""
    timed = {log.file.rank for log in logs if log.scan is not None and log.scan.last is not None}
    reasons: dict[str, list[str]] = {}
    for log in logs:
        reason = log.blind
        if reason.startswith(("no timestamps", "timestamps ")) and log.file.rank in timed:
            continue  # another stream of the same rank has times
        if log.file.is_torchrun and log.file.rank is None:
            reason = "rank unknown"
        if reason:
            reasons.setdefault(reason, []).append(log.file.name)
    for reason, names in reasons.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"logs {names[0]}{others}: {reason}"


def _unknown_error_evidence(logs: Sequence[ScannedLog]) -> Iterator[Evidence]:
    """Yield templates of error-like lines that match no pattern, rarest across logs first."""
    lines, files = Counter[str](), Counter[str]()
    for log in logs:
        if log.scan is not None:
            lines.update(log.scan.unknown)
            files.update(log.scan.unknown.keys())
    rarest = sorted(lines, key=lambda text: (files[text], -lines[text], text))
    for text in rarest[:_MAX_UNKNOWN_ERRORS]:
        says = f"new: {lines[text]} lines in {files[text]} logs like: {text}"
        yield Evidence("logs", says, details={"lines": lines[text], "logs": files[text]})
