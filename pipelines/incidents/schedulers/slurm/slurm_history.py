"""Outages of nodes in Slurm's accounting, and failures named in their reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from forewarn.features.time_units import MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.response.state.machine import MARK_PREFIX

__all__ = [
    "DrainFailure",
    "NodeOutage",
    "find_failures",
    "parse_events",
    "read_outages",
]

_FIELDS = "NodeName,Start,End,State,User,Reason"
_EVENT = re.compile(r"[^|]*\|\d{4}-\d\d-\d\dT[\d:]+\|(\d{4}-\d\d-\d\dT[\d:]+|Unknown)\|")
_MAX_EVENT_GAP = MINUTE  # events within a minute are one outage, even with another reason
_MAX_REASON_LENGTH = 500  # characters of a reason
_GPU = re.compile(r"\bgpu\W{0,3}(?:id|index|no\.?)?\W{0,3}(\d{1,2})\b", re.IGNORECASE)
_PCI = re.compile(r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """An outage of a node.

    Attributes
    ----------
    machine : str
    begin : int
        Nanoseconds since 1970 UTC.
    end : int or None
        None while it lasts.
    reasons : tuple of str
        In order of time.
    by : str
        User who set the first reason.
    """

    machine: str
    begin: Nanoseconds
    end: Nanoseconds | None
    reasons: tuple[str, ...]
    by: str = ""


@dataclass(frozen=True, slots=True)
class DrainFailure:
    """A failure named in a drain reason.

    Attributes
    ----------
    machine : str
    gpu : int or None
        Index of the GPU on its machine, if the reason names one.
    pci : str
        PCI address, if the reason names one; else empty.
    failed_at, known_at : int
        Start of the drain, nanoseconds since 1970 UTC; the GPU failed before it.
    repaired_at : int or None
        When the node returned to service.
    cause : str
    reason : str
    """

    machine: str
    gpu: int | None
    pci: str
    failed_at: Nanoseconds
    known_at: Nanoseconds
    repaired_at: Nanoseconds | None
    cause: str
    reason: str


def read_outages(command: SlurmCommand, *, since: Nanoseconds) -> list[NodeOutage]:
    """Return the outages recorded in Slurm's accounting.

    Raises
    ------
    DriverError
        If Slurm keeps no accounting, does not answer, or its answer is unreadable.
    """
    start = format_iso(since - since % SECOND).removesuffix("Z")
    options = ("show", "event", "event=node", f"start={start}", f"format={_FIELDS}")
    text = command.ask("sacctmgr", "-n", "-P", *options)
    try:
        return parse_events(text)
    except ValueError as error:
        raise DriverError(f"sacctmgr's output is unreadable: {error}") from None


def parse_events(text: str) -> list[NodeOutage]:
    """Parse lines of `NodeName|Start|End|State|User|Reason` in UTC; sort by node and time.

    Slurm starts a new event when the reason changes; such events are merged into one outage. A
    multi-line reason continues on lines that are not events; only its first line is read.

    Raises
    ------
    ValueError
        If a line has too few fields or an invalid time.
    """
    events = []
    for number, line in enumerate(text.splitlines()):
        if number and not _EVENT.match(line):
            continue
        fields = line.split("|", 5)
        if len(fields) < 6:
            raise ValueError(f"sacctmgr: got {line[:100]!r}, expected {_FIELDS}")
        machine, begin, end, _, user, reason = fields
        if machine:  # events of the whole cluster have no node
            by = user.partition("(")[0]
            spans = (_moment(begin), None if end == "Unknown" else _moment(end))
            events.append(NodeOutage(machine, *spans, (reason[:_MAX_REASON_LENGTH].strip(),), by))
    events.sort(key=lambda event: (event.machine, event.begin))
    return [
        outage
        for _, of_machine in groupby(events, lambda event: event.machine)
        for outage in _merge(of_machine)
    ]


def _moment(text: str) -> Nanoseconds:
    return Nanoseconds(parse_moment(text))


def _merge(events: Iterable[NodeOutage]) -> list[NodeOutage]:
    """Merge consecutive events of one machine."""
    outages: list[NodeOutage] = []
    for event in events:
        last = outages[-1] if outages else None
        if last is None or last.end is None or event.begin > last.end + _MAX_EVENT_GAP:
            outages.append(event)
        else:
            reasons = tuple(dict.fromkeys((*last.reasons, *event.reasons)))
            outages[-1] = replace(last, end=event.end, reasons=reasons)
    return outages


def find_failures(
    outages: Iterable[NodeOutage], cause_of: Callable[[str], str | None]
) -> list[DrainFailure]:
    """Return the failures named in external drain reasons.

    Parameters
    ----------
    outages : iterable of NodeOutage
        Of an outage that forewarn started, only reasons set later by others count.
    cause_of : callable
        Returns the cause of the failure that a reason names, or None.
    """
    failures = []
    for outage in outages:
        external = [reason for reason in outage.reasons if not reason.startswith(MARK_PREFIX)]
        causes = [(reason, cause) for reason in external if (cause := cause_of(reason)) is not None]
        failures += [_failure(outage, reason, cause) for reason, cause in causes[:1]]
    return failures


def _failure(outage: NodeOutage, reason: str, cause: str) -> DrainFailure:
    gpu, pci = _GPU.search(reason), _PCI.search(reason)
    return DrainFailure(
        outage.machine,
        int(gpu[1]) if gpu else None,
        pci[0].lower() if pci else "",
        outage.begin,
        outage.begin,
        outage.end,
        cause,
        reason,
    )
