"""Findings of one call against those that are known: repeats, new ones, and conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import Finding, FindingKey

__all__ = [
    "DeduplicatedFindings",
    "FindingCount",
    "FindingStatement",
    "KnownFinding",
    "deduplicate_findings",
    "find_conflict",
]

_MAX_COUNT = 2**63 - 1
FindingStatement = tuple[FindingKey, Nanoseconds]
"""What a finding says: its key, and from when on it was so."""


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """The newest finding of a key that is known.

    Attributes
    ----------
    row : int
    finding : Finding
        Its evidence is not looked at.
    ended_at : int or None
        When its last incident ended, nanoseconds since 1970 UTC; None: that is open.
    """

    row: int
    finding: Finding
    ended_at: Nanoseconds | None


class FindingCount:
    """A finding with all its repeats in one call.

    Attributes
    ----------
    finding : Finding
        As it was said first, with the serial of its GPU if any repeat names it.
    count : int
        How often it was said; at most what 64 bits hold.
    last : int
        When it was said last, nanoseconds since 1970 UTC.
    severity : Severity or None
        As it was said last.
    """

    __slots__ = ("count", "finding", "last", "severity")

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.count = finding.count
        self.last = finding.last_reported
        self.severity = finding.severity

    def add(self, repeat: Finding) -> None:
        """Count a repeat."""
        if self.finding.gpu_serial is None:
            self.finding = replace(self.finding, gpu_serial=repeat.gpu_serial)
        self.count = min(self.count + repeat.count, _MAX_COUNT)
        if repeat.last_reported >= self.last and repeat.severity is not None:
            self.severity = repeat.severity
        self.last = max(self.last, repeat.last_reported)

    def merge_into(self, known: Finding) -> Finding:
        """Return a known finding with these repeats of it."""
        is_newest = self.last >= known.last_reported and self.severity is not None
        return replace(
            known,
            gpu_serial=known.gpu_serial or self.finding.gpu_serial,
            severity=self.severity if is_newest else known.severity,
            last=max(self.last, known.last_reported),
            count=min(self.count + known.count, _MAX_COUNT),
        )

    def to_finding(self) -> Finding:
        """Return a new finding with its repeats, as it is stored."""
        first = self.finding.at if self.finding.first is None else self.finding.first
        return replace(
            self.finding, first=first, last=self.last, count=self.count, severity=self.severity
        )


@dataclass(slots=True)
class DeduplicatedFindings:
    """What the findings of one call are.

    Attributes
    ----------
    new : list of Count
    repeated : list of (KnownFinding, Count)
    conflicts : list of (Finding, str, str)
        Those that say something else under a name in use, the field, and what is wrong with it.
    """

    new: list[FindingCount] = field(default_factory=list)
    repeated: list[tuple[KnownFinding, FindingCount]] = field(default_factory=list)
    conflicts: list[tuple[Finding, str, str]] = field(default_factory=list)


def deduplicate_findings(
    findings: Iterable[Finding],
    known: Mapping[FindingKey, KnownFinding],
    unreadable: Set[FindingStatement] = frozenset(),
) -> DeduplicatedFindings:
    """Tell new findings from repeats of what is known, or came before in the same call.

    Parameters
    ----------
    findings : iterable of Finding
    known : mapping of FindingKey to KnownFinding
    unreadable : set of (FindingKey, int)
        What rows say that cannot be read. To say it again, at the same time, is no news.
    """
    counted = DeduplicatedFindings()
    again: dict[FindingKey, FindingCount] = {}
    newest: dict[FindingKey, FindingCount] = {}
    for finding in findings:
        if (finding.key, finding.at) in unreadable:
            continue
        before, row = newest.get(finding.key), known.get(finding.key)
        ended_at = row.ended_at if row is not None and before is None else None
        known_before = row.finding if row is not None else None
        earlier = known_before if before is None else before.finding
        before = before or again.get(finding.key)
        if earlier is None or not finding.repeats(earlier, ended_at):
            newest[finding.key] = FindingCount(finding)
            counted.new.append(newest[finding.key])
        elif problem := find_conflict(finding, earlier) or (
            before and find_conflict(finding, before.finding)
        ):
            counted.conflicts.append((finding, *problem))
        elif before is not None:
            before.add(finding)
        elif row is not None:
            again[finding.key] = FindingCount(finding)
            counted.repeated.append((row, again[finding.key]))
    return counted


def find_conflict(finding: Finding, earlier: Finding) -> tuple[str, str] | None:
    """Return the field in which a repeat says something else than the finding did, and what.

    A repeat may lack the serial, or be the first to name it.

    Examples
    --------
    >>> from forewarn.response.state.finding import FindingKind
    >>> at = Nanoseconds(0)
    >>> first = Finding("nhc", "1", FindingKind.CHECK, "check by nhc", "node-1", at, at)
    >>> conflict_of(Finding("nhc", "1", FindingKind.XID, "xid 79", "node-1", at, at), first)
    ('kind', "found 'xid', expected 'check' as before, or another `id`")
    """
    expected = "as before, or another `id`"
    if finding.kind is not earlier.kind:
        return "kind", f"found {str(finding.kind)!r}, expected {str(earlier.kind)!r} {expected}"
    if None not in (finding.gpu_serial, earlier.gpu_serial) and not finding.same_gpu(earlier):
        serials = f"found {finding.gpu_serial!r}, expected {earlier.gpu_serial!r}"
        return "gpu_serial", f"{serials} {expected}"
    return None
