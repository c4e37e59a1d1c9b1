"""Part `logs`: last writes of ranks, quiet phases, and the root cause of a crash."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from forewarn.features.diagnosis.host_names import host_key
from forewarn.features.diagnosis.log_lines.clock_zone import guess_zone
from forewarn.features.diagnosis.log_lines.line_selection import LineSelection
from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_template import log_template
from forewarn.features.diagnosis.log_lines.progress_lines import ProgressForm
from forewarn.features.diagnosis.log_streams.heard_facts import writing_host
from forewarn.features.diagnosis.log_streams.job_streams import (
    FileReading,
    JobStreams,
    read_streams,
)
from forewarn.features.diagnosis.log_streams.line_sources import Source
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.crash.accused_peers import stated_stall
from forewarn.models.diagnosis.crash.cut_symptoms import WaitLines
from forewarn.models.diagnosis.crash.machine_symptoms import hang_hardware_finding
from forewarn.models.diagnosis.crash.rank_exit import RankExit
from forewarn.models.diagnosis.crash.requested_end import find_planned_end, find_requested_end
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
from forewarn.pipelines.diagnosis.parts.launched_ranks import LaunchedRanks, has_one_machine
from forewarn.pipelines.diagnosis.parts.log_attempt import (
    JobAttempt,
    attempt_at,
    machine_symptoms,
)
from forewarn.pipelines.diagnosis.parts.log_files import log_files, read_bounded
from forewarn.pipelines.diagnosis.parts.log_reader import (
    LogContent,
    ScannedLog,
    line_selector,
    newest_time,
    read_content,
)
from forewarn.pipelines.diagnosis.parts.logged_checkpoints import restart_point
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
    launched : LaunchedRanks
    machines : mapping of int to str
        Machines by rank, as the text states them.
    files : tuple of FileReading
        How each file was understood.
    world : int or None
        Number of ranks, if the text states it.
    zone : datetime.tzinfo
        Zone of times that state none.
    """

    logs: tuple[ScannedLog, ...]
    matcher: LogMatcher
    launched: LaunchedRanks
    machines: Mapping[int, str]
    files: tuple[FileReading, ...]
    world: int | None
    zone: dt.tzinfo = dt.UTC

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks mentioned in the part."""
        heard = {log.rank for log in self.logs if log.rank is not None}
        heard |= {report.rank for log in self.logs for report in log.master}
        launches = (report for log in self.logs for report in log.launches)
        heard |= {
            rank for each in launches if (rank := self.launched.stated_rank(each)) is not None
        }
        return frozenset(heard)

    @property
    def last(self) -> int | None:
        """Latest time in any log."""
        times = [log.scan.last for log in self.logs if log.scan is not None]
        times += [log.error.time for log in self.logs if log.error is not None]
        return max((time for time in times if time is not None), default=None)

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return whether ranks still write, and which rank failed first."""
        attempt = attempt_at(self.logs, self.launched, snapshot.at)
        finding = self._finding(snapshot, attempt)
        is_completed = finding is not None and finding.is_completed
        is_progressing = is_completed or attempt.is_progressing()
        is_unexplained = finding is None and not is_progressing
        return PartResult(
            _probe(snapshot, attempt),
            () if finding is None else (finding,),
            tuple(_phases(self.logs, attempt)),
            (*_unread_files(self.files), *_unusable_logs(attempt.logs)),
            is_progressing=is_progressing,
            unknown_error=attempt.error_after_steps(),
            known_error=attempt.first_error(snapshot.ranks) if is_unexplained else None,
            restart=restart_point(self.logs, attempt),
        )

    def clocks_ahead(self, snapshot: JobSnapshot) -> dict[int, int]:
        """Return by how many nanoseconds the clock of each rank's machine is ahead."""
        offsets = attempt_at(self.logs, self.launched, snapshot.at).offsets(snapshot.ranks)
        machines = {rank: row.machine for rank, row in snapshot.ranks.table.items()}
        return {
            rank: offsets[machine]
            for rank, machine in machines.items()
            if machine is not None and machine in offsets
        }

    def _finding(self, snapshot: JobSnapshot, attempt: JobAttempt) -> JobFinding | None:
        exits, ranks = snapshot.parts.get("exits"), snapshot.ranks
        ends = attempt.rank_exits(
            ranks, self.matcher, exits if isinstance(exits, ExitsPart) else None
        )
        unplaced = attempt.unplaced_symptoms(ranks)
        seen = [*(symptom for _, symptom in unplaced), *(s for end in ends for s in end.symptoms)]
        waits = WaitLines(seen)
        unplaced = [(log, waits.explain(symptom)) for log, symptom in unplaced]
        unseen = {output.rank for output in snapshot.unseen}
        ends = list(_with_cut_lines(ends, waits, attempt, unseen))
        symptoms = machine_symptoms(unplaced, ranks)
        others = [*(symptom for _, symptom in unplaced), *attempt.launcher_symptoms(ranks)]
        every = [*others, *(symptom for end in ends for symptom in end.symptoms)]
        ended = find_requested_end(every, ends)
        if ended is not None:
            return ended
        lost = list(self.launched.accusations(attempt.logs, ranks, snapshot.at))
        completed = None if lost else find_planned_end(every, ends)
        if completed is not None:
            return completed
        if not lost and not attempt.has_crashed(ends, others):
            stalled = stated_stall(ends, others)
            # In a hang, the part `events` reports hardware itself.
            is_reported = stalled is not None or "events" in snapshot.parts
            return stalled if is_reported else hang_hardware_finding(symptoms, ends)
        symptoms += event_symptoms(snapshot, self.matcher)
        finding = find_root_cause(
            ends,
            machine_symptoms=symptoms,
            others=others,
            accusations=lost,
            writers=attempt.writers(ranks),
            masked=log_template,
        )
        is_whole = self.last is None or self.last <= snapshot.at
        if finding is None or not is_whole:
            return finding
        return replace(
            finding, evidence=(*finding.evidence, *_unknown_error_evidence(attempt.logs))
        )


def _with_cut_lines(
    ends: Sequence[RankExit], waits: WaitLines, attempt: JobAttempt, unseen: Collection[int]
) -> Iterator[RankExit]:
    """Yield the exits; a rank whose last line breaks off in a wait only seems to be silent."""
    for end in map(waits.explain_end, ends):
        is_cut = end.decisive is None and waits.has_part(attempt.last_lines(end.rank))
        yield replace(end, is_unseen=True) if is_cut or end.rank in unseen else end


def read_logs(
    folder: JobFolder,
    ranks: Ranks,
    zone: dt.tzinfo | None = None,
    others: Sequence[int] = (),
) -> LogsPart | None:
    """Read the logs of a job, or return None if there are none.

    Parameters
    ----------
    folder : JobFolder
    ranks : Ranks
        Of `ranks.csv`.
    zone : datetime.tzinfo, optional
        Zone of times that state none. Without it, the zone is guessed from `others`.
    others : sequence of int
        Last times of other parts, in nanoseconds since 1970 UTC.
    """
    files = log_files(folder)
    if not files:
        return None
    matcher = load_patterns(folder.patterns)
    before = newest_time(files)
    cut: dict[str, str] = {}
    job, logs = _read_all(files, cut, ranks, _LogReader(matcher, before, zone or dt.UTC))
    if not logs:
        return None
    if zone is None:
        last = max((s.last for log in logs if (s := log.scan) and s.last is not None), default=None)
        zone = dt.UTC if last is None else guess_zone(last, others)
        if zone is not dt.UTC:
            job, logs = _read_all(files, cut, ranks, _LogReader(matcher, before, zone))
    notes = () if zone is dt.UTC else (f"times without a zone are read as {zone}",)
    readings = tuple(
        replace(r, why=(*r.why, *((cut[r.name],) if r.name in cut else ()), *notes))
        for r in job.readings
    )
    is_alone = has_one_machine(logs, job.machines.values(), job.nodes, job.world)
    hosts = dict(_hosts(logs))
    reports = [report for log in logs for report in log.launches]
    nodes = {report.pod: report.host for report in reports if report.pod and report.host}
    launched = LaunchedRanks(job.addresses, job.tasks_are_ranks, is_alone, job.world, hosts, nodes)
    machines = {r.rank: r.host for r in reports if r.rank is not None and r.host} | job.machines
    return LogsPart(tuple(logs), matcher, launched, machines, readings, job.world, zone)


def _hosts(logs: Sequence[ScannedLog]) -> Iterator[tuple[str, str]]:
    """Yield key and name of the machines that write; names of logs count most."""
    hits = [hit for log in logs if log.scan is not None for hit in log.scan.hits]
    writers = [writing_host(hit.line) for hit in hits]
    for host in (*writers, *(log.stream.machine for log in logs)):
        if host is not None:
            yield host_key(host), host


def _read_all(
    files: Sequence[tuple[str, Path]], cut: dict[str, str], ranks: Ranks, reader: _LogReader
) -> tuple[JobStreams, list[ScannedLog]]:
    """Read the files one after another; note in `cut` what was left out."""
    contents = _contents(files, cut)
    job = read_streams(contents, ranks, line_selector(reader.matcher), reader.read)
    pairs = zip(job.streams, reader.contents, strict=True)
    return job, [ScannedLog.of_stream(stream, content) for stream, content in pairs]


@dataclass(frozen=True, slots=True)
class _LogReader:
    """Scans sources; the forms of progress lines in one are tried first in the others.

    Parameters
    ----------
    matcher : LogMatcher
    before : int or None
    zone : datetime.tzinfo
        As in `read_content`.

    Attributes
    ----------
    contents : list of LogContent
        In the order of the sources.
    """

    matcher: LogMatcher
    before: int | None
    zone: dt.tzinfo
    contents: list[LogContent] = field(default_factory=list)
    _forms: dict[ProgressForm, None] = field(default_factory=dict)

    def read(self, source: Source, selection: LineSelection) -> None:
        """Scan a source."""
        content = read_content(
            source, selection, self.matcher, self.before, tuple(self._forms), zone=self.zone
        )
        if content.scan is not None and content.scan.progress.is_known:
            self._forms[content.scan.progress] = None
        self.contents.append(content)


def _contents(
    files: Sequence[tuple[str, Path]], cut: dict[str, str]
) -> Iterator[tuple[str, bytes]]:
    """Yield name and text of the files, and note in `cut` what was left out."""
    with progress_bar(len(files), "reading logs", "log") as bar:
        for name, path in files:
            text, left_out = read_bounded(path, len(files))
            if left_out:
                cut[name] = left_out
            yield name, text
            bar.update()


def _probe(snapshot: JobSnapshot, attempt: JobAttempt) -> Probe | None:
    """Return the log probe, or None if no rank has a log."""
    exits, writes = snapshot.parts.get("exits"), attempt.last_writes()
    if isinstance(exits, ExitsPart) and snapshot.ranks.table:
        since = attempt.since
        if all(
            exits.last_exit(rank, snapshot.at, since) is not None for rank in snapshot.ranks.table
        ):
            return Probe("log", "blind", None, "all ranks have ended")
    hidden = {output.rank for output in snapshot.unseen if not output.is_discarded}
    marks = attempt.marks(attempt.start)
    return log_probe(writes, snapshot.at, marks, unseen=len(hidden)) if writes else None


def _phases(logs: Sequence[ScannedLog], attempt: JobAttempt) -> Iterator[Phase]:
    """Yield the phases of all attempts, and the restarts that interrupt them."""
    lines: dict[tuple[int, int], list[PhaseLine]] = {}
    restarts, first_steps = set[int](), []
    current = {id(log.scan) for log in attempt.logs}
    for log in logs:
        scan = log.scan
        if scan is None or log.rank is None:
            continue
        if log.stream.attempt and scan.marks:
            restarts.add(scan.marks[0])
        restarts.update(time for time in scan.starts if time is not None)
        if id(scan) in current:
            first_steps += [time for _, time in scan.first_steps]
        for hit in scan.phases:
            if hit.time is not None and hit.time <= attempt.at and hit.pattern.phase is not None:
                kind, verb = hit.pattern.phase.split()
                line = PhaseLine(kind, verb == "begins", hit.time)  # type: ignore[arg-type]
                lines.setdefault((log.stream.attempt, hit.attempt), []).append(line)
    for group in lines.values():
        yield from logged_phases(group, attempt.last_step)
    yield from (Phase("restart", time, time) for time in sorted(restarts) if time <= attempt.at)
    yield from first_step_phase(attempt.start, first_steps, attempt.at)
    yield from find_log_pauses(attempt.marks(min(first_steps, default=None)), attempt.at)


def _unread_files(files: Sequence[FileReading]) -> Iterator[str]:
    for file in files:
        if file.read_as is None:
            yield f"logs {file.name}: {', '.join(file.why)}"


def _unusable_logs(logs: Sequence[ScannedLog]) -> Iterator[str]:
    """Yield the reasons why logs cannot be used, one line per reason."""
    timed = {log.rank for log in logs if log.scan is not None and log.scan.last is not None}
    reasons: dict[str, list[str]] = {}
    for log in logs:
        reason = log.blind
        if reason.startswith(("no timestamps", "timestamps ")) and log.rank in timed:
            continue  # another stream of the same rank has times
        if log.stream.is_torchrun and log.rank is None:
            reason = "rank unknown"
        if reason:
            reasons.setdefault(reason, []).append(log.stream.name)
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
