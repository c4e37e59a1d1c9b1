"""Sources: daily lists, kernel events, verdicts and failures, as findings that are new."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pyarrow.compute as pc

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.sources.event_findings import event_findings, read_events
from forewarn.pipelines.incidents.sources.list_findings import PastList, read_list
from forewarn.pipelines.incidents.sources.verdict_findings import verdict_findings
from forewarn.pipelines.runtime.clock import MAX_CLOCK_SKEW
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.response.policy.policy import Policy
from forewarn.response.replay.fleet_history import PastFinding
from forewarn.response.state.finding import Finding

__all__ = ["EVENTS_CURSOR", "GatheredFindings", "gather_findings"]

EVENTS_CURSOR: Final = "events read"
"""Name under which a ledger keeps up to when events have been read."""

Item = TypeVar("Item")
_LIST_SPAN: Final = 8 * DAY  # of which the newest is compared with the usual length
_EVENT_SPAN: Final = 2 * DAY  # nothing older is acted on, however late it came


@dataclass(frozen=True, slots=True)
class GatheredFindings:
    """What the sources hold now.

    Attributes
    ----------
    statements : list of Finding
        Lists and verdicts: to read one again is no repetition.
    events : list of Finding
        Those that came since the last time; each repetition counts.
    read_up_to : mapping of str to int
        To be kept with the findings.
    list_lengths : tuple of int
        Flagged GPUs of each list, the newest last; of an empty one 0.
    last_list : int or None
        When the newest list was known, nanoseconds since 1970 UTC.
    """

    statements: list[Finding] = field(default_factory=list)
    events: list[Finding] = field(default_factory=list)
    read_up_to: Mapping[str, Nanoseconds] = field(default_factory=dict)
    list_lengths: tuple[int, ...] = ()
    last_list: Nanoseconds | None = None


def gather_findings(
    policy: Policy,
    *,
    records: Path,
    lists: Path,
    verdicts: Path | None,
    read: Nanoseconds | None,
    now: Nanoseconds,
) -> GatheredFindings:
    """Read the sources; one that cannot be read is said and stops no other.

    Parameters
    ----------
    policy : Policy
        Says how long an event may be acted on.
    records, lists : Path
        Folders of GPU records and of daily lists.
    verdicts : Path or None
        File of the verdicts of a detector, if there is one.
    read : int or None
        Up to when events have been read before.
    now : int
        Nanoseconds since 1970 UTC.
    """
    recent = _lists(lists, now)
    events = _readable(lambda: _events(records, policy, read, now))
    stated = _readable(lambda: _verdicts(verdicts, now))
    newest = max((item.known_at for item in events if item.known_at <= now), default=read)
    return GatheredFindings(
        statements=[*(f for past in recent for f in _findings(past) if f.valid(now)), *stated],
        events=[item.finding for item in events],
        read_up_to={} if newest is None else {EVENTS_CURSOR: newest},
        list_lengths=tuple(len(past.findings) for past in recent),
        last_list=recent[-1].known_at if recent else None,
    )


def _readable(read: Callable[[], list[Item]]) -> list[Item]:
    try:
        return read()
    except (InputError, OSError) as error:
        _left_out(error)
        return []


def _left_out(error: Exception) -> None:
    note(f"a source is left out: {error}")


def _lists(folder: Path, now: Nanoseconds) -> list[PastList]:
    """Read the lists of the last days, the newest last; one that is broken hides no other."""
    since = f"date={format_iso(now - _LIST_SPAN)[:10]}"
    days = _readable(partial(matching_paths, folder, "date=*"))
    recent = [day for day in days if day.name >= since]
    lists = [past for day in recent for past in _readable(partial(_list, day))]
    return sorted((past for past in lists if past.known_at <= now), key=lambda past: past.known_at)


def _list(day: Path) -> list[PastList]:
    read = (read_list(path, {}) for path in matching_paths(day, "at_risk.parquet"))
    return [past for past in read if past is not None]


def _findings(past: PastList) -> list[Finding]:
    return [item.finding for item in past.findings]


def _events(
    records: Path, policy: Policy, read: Nanoseconds | None, now: Nanoseconds
) -> list[PastFinding]:
    """Read what was known after `read`; an event that lies ahead waits until it is due.

    So no clock that is fast moves on what was read of the others.
    """
    oldest = Nanoseconds(now - _EVENT_SPAN)
    events = read_events(records, since=format_iso(oldest)[:10], broken=_left_out)
    after = max(oldest, -1 if read is None else read)
    known = pc.max_element_wise(events["timestamp"], events["known_at"])
    events = events.filter(pc.and_(pc.greater(known, after), pc.less_equal(known, now)))
    return list(event_findings(events, policy))


def _verdicts(path: Path | None, now: Nanoseconds) -> list[Finding]:
    if path is None:
        return []
    since, until = Nanoseconds(now - DAY), Nanoseconds(now + MAX_CLOCK_SKEW)
    return verdict_findings(path, since=since, until=until)
