"""New findings from all sources: daily lists, kernel events, verdicts and diagnoses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, TypeVar

import pyarrow.compute as pc

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.sources.custom_check_trial import TRIAL_SPAN
from forewarn.pipelines.incidents.sources.diagnosis_findings import (
    diagnosis_findings,
)
from forewarn.pipelines.incidents.sources.diagnosis_verdicts import (
    DiagnosisVerdict,
    diagnosis_files,
    read_diagnoses,
)
from forewarn.pipelines.incidents.sources.event_findings import (
    early_end,
    event_findings,
    read_events,
)
from forewarn.pipelines.incidents.sources.inspection_findings import inspection_findings
from forewarn.pipelines.incidents.sources.list_findings import PastList, read_list
from forewarn.pipelines.incidents.sources.verdict_findings import verdict_findings
from forewarn.pipelines.runtime.clock import MAX_CLOCK_SKEW
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.pipelines.storage.records.consistent_read import FileStamp
from forewarn.response.policy.policy import Policy
from forewarn.response.replay.fleet_history import PastFinding
from forewarn.response.state.finding import Finding, FindingKey

__all__ = ["EVENTS_CURSOR", "GatheredFindings", "gather_findings"]

EVENTS_CURSOR: Final = "events read"
"""Name under which a ledger keeps up to when events have been read."""

Item = TypeVar("Item")
_LIST_SPAN: Final = 8 * DAY  # the newest list is compared with the usual length
_VERDICT_SPAN: Final = DAY
_EVENT_SPAN: Final = 2 * DAY  # older events are ignored, however late they arrive


@dataclass(frozen=True, slots=True)
class GatheredFindings:
    """Current content of the sources.

    Attributes
    ----------
    statements : list of Finding
        From lists, verdicts and diagnoses; reading one again is not a repetition.
    events : list of Finding
        New since the last call; each repetition counts.
    diagnoses : tuple of DiagnosisVerdict
        Verdicts that may end findings of earlier ones.
    read_up_to : mapping of str to int
        Read positions, to be stored together with the findings.
    list_lengths : tuple of int
        Number of flagged GPUs of each list, newest last; 0 for an empty list.
    last_list : int or None
        Time of the newest list, in nanoseconds since 1970 UTC.
    """

    statements: list[Finding] = field(default_factory=list)
    events: list[Finding] = field(default_factory=list)
    diagnoses: tuple[DiagnosisVerdict, ...] = ()
    read_up_to: Mapping[str, Nanoseconds] = field(default_factory=dict)
    list_lengths: tuple[int, ...] = ()
    last_list: Nanoseconds | None = None


def gather_findings(
    policy: Policy,
    *,
    records: Path,
    lists: Path,
    verdicts: Path | None,
    diagnoses: Sequence[Path] = (),
    inspections: Path | None = None,
    read: Nanoseconds | None,
    now: Nanoseconds,
) -> GatheredFindings:
    """Read the sources; an unreadable source is skipped with a note.

    Parameters
    ----------
    policy : Policy
        Provides how long an event may be acted on.
    records, lists : Path
        Folders of GPU records and of daily lists.
    verdicts : Path or None
        File of a detector's verdicts.
    diagnoses : sequence of Path
        Files, and folders of files, of verdicts of `forewarn diagnose`.
    inspections : Path or None
        File of judged inspections.
    read : int or None
        Time up to which events were read before.
    now : int
        Nanoseconds since 1970 UTC.
    """
    recent = _lists(lists, now)
    events = _readable(lambda: _events(records, policy, read, now))
    stated = _readable(lambda: _verdicts(verdicts, now))
    diagnosed = _diagnoses(diagnoses, now)
    judged = _readable(lambda: _inspections(inspections, policy, now))
    newest = max((item.known_at for item in events if item.known_at <= now), default=read)
    return GatheredFindings(
        statements=[
            *(f for past in recent for f in _findings(past) if f.valid(now)),
            *stated,
            *diagnosis_findings(diagnosed, policy),
            *judged,
        ],
        events=[item.finding for item in events],
        diagnoses=tuple(diagnosed),
        read_up_to={} if newest is None else {EVENTS_CURSOR: newest},
        list_lengths=tuple(len(past.findings) for past in recent),
        last_list=recent[-1].known_at if recent else None,
    )


def _readable(read: Callable[[], list[Item]]) -> list[Item]:
    try:
        return read()
    except (InputError, OSError) as error:
        _note_skipped(error)
        return []


def _note_skipped(error: Exception) -> None:
    note(f"source skipped: {error}")


def _inspections(path: Path | None, policy: Policy, now: Nanoseconds) -> list[Finding]:
    """Return what judged inspections say; a file that is not there yet says nothing."""
    if path is None or not path.exists():
        return []
    return [f for f in inspection_findings(path, policy) if f.at <= now and f.valid(now)]


def _lists(folder: Path, now: Nanoseconds) -> list[PastList]:
    """Read the lists of the last days, newest last; broken lists are skipped."""
    since = f"date={format_iso(now - _LIST_SPAN)[:10]}"
    days = _readable(partial(matching_paths, folder, "date=*"))
    recent = [day for day in days if day.name >= since]
    lists = [past for day in recent for past in _readable(partial(_list, day))]
    return sorted((past for past in lists if past.known_at <= now), key=lambda past: past.known_at)


def _list(day: Path) -> list[PastList]:
    paths = matching_paths(day, "at_risk.parquet")
    read = (_unchanged_list(path, FileStamp.from_path(path)) for path in paths)
    return [past for past in read if past is not None]


@lru_cache(maxsize=64)  # every round of the loop reads the lists of the last days
def _unchanged_list(path: Path, stamp: FileStamp) -> PastList | None:
    """Read a list, once for all rounds while its file stays the same."""
    del stamp  # part of the key
    return read_list(path, {})


def _findings(past: PastList) -> list[Finding]:
    return [item.finding for item in past.findings]


def _events(
    records: Path, policy: Policy, read: Nanoseconds | None, now: Nanoseconds
) -> list[PastFinding]:
    """Read events known after `read`; an event from the future is read when it is due.

    A fast clock of one machine therefore does not hide events of others.
    """
    oldest = Nanoseconds(now - _EVENT_SPAN)
    since = format_iso(oldest - TRIAL_SPAN)[:10]
    events = read_events(records, since=since, broken=_note_skipped)
    after = max(oldest, -1 if read is None else read)
    known = pc.max_element_wise(events["timestamp"], events["known_at"])
    # Earlier results tell whether a check acts, and a new one may end an earlier finding.
    is_needed = pc.or_(pc.greater(known, after), pc.equal(events["kind"], "check"))
    events = events.filter(pc.and_(is_needed, pc.less_equal(known, now)))
    past = list(event_findings(events, policy))
    return [item for item in past if item.known_at > after] + _ended(past, policy, after, now)


def _ended(past: Iterable[PastFinding], policy: Policy, after: int, now: int) -> list[PastFinding]:
    """Return the ends of findings that were known before, by a check that passed since."""
    ends: dict[FindingKey, PastFinding] = {}
    for item in past:
        finding, until = item.finding, item.finding.valid_until
        expiry = finding.at + policy.rule(finding).max_age
        if item.known_at <= after < until <= now and until < expiry:
            ends[finding.key] = early_end(finding)
    return list(ends.values())


def _verdicts(path: Path | None, now: Nanoseconds) -> list[Finding]:
    if path is None:
        return []
    return verdict_findings(path, since=Nanoseconds(now - _VERDICT_SPAN), until=_latest(now))


def _latest(now: Nanoseconds) -> Nanoseconds:
    return Nanoseconds(now + MAX_CLOCK_SKEW)


def _diagnoses(paths: Sequence[Path], now: Nanoseconds) -> list[DiagnosisVerdict]:
    since = Nanoseconds(now - _VERDICT_SPAN)
    files = [file for path in paths for file in _readable(partial(diagnosis_files, path, since))]
    verdicts = [verdict for file in files for verdict in _readable(partial(read_diagnoses, file))]
    return [verdict for verdict in verdicts if since <= verdict.at <= _latest(now)]
