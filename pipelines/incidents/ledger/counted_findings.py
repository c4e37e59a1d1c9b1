"""Findings of one call, told from those that a ledger knows: repeats, new ones, and conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import Finding, FindingKey, Severity

__all__ = [
    "Count",
    "Counted",
    "KnownFinding",
    "Statement",
    "changed_severity",
    "conflict_of",
    "count_findings",
]

_LARGEST = 2**63 - 1
Statement = tuple[FindingKey, Nanoseconds]
"""What a finding says: its key, and from when on it was so."""


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """The newest finding of a key in a ledger that can be read.

    Attributes
    ----------
    row : int
    finding : Finding
        Without its evidence.
    ended_at : int or None
        When its last incident ended, nanoseconds since 1970 UTC; None: that is open.
    """

    row: int
    finding: Finding
    ended_at: Nanoseconds | None


class Count:
    """A finding with all its repeats in one call.

    Attributes
    ----------
    finding : Finding
        As it was said first.
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
        self.last = finding.last_said
        self.severity = finding.severity

    def add(self, repeat: Finding) -> None:
        """Count a repeat."""
        self.count = min(self.count + repeat.count, _LARGEST)
        if repeat.last_said >= self.last and repeat.severity is not None:
            self.severity = repeat.severity
        self.last = max(self.last, repeat.last_said)


@dataclass(slots=True)
class Counted:
    """What the findings of one call are.

    Attributes
    ----------
    new : list of Count
    repeated : list of (KnownFinding, Count)
    conflicts : list of (Finding, str, str)
        Those that say something else under a name in use, the field, and what is wrong with it.
    """

    new: list[Count] = field(default_factory=list)
    repeated: list[tuple[KnownFinding, Count]] = field(default_factory=list)
    conflicts: list[tuple[Finding, str, str]] = field(default_factory=list)


def count_findings(
    findings: Iterable[Finding],
    known: Mapping[FindingKey, KnownFinding],
    unreadable: Set[Statement] = frozenset(),
) -> Counted:
    """Tell new findings from repeats of what is known, or came before in the same call.

    Parameters
    ----------
    findings : iterable of Finding
    known : mapping of FindingKey to KnownFinding
    unreadable : set of (FindingKey, int)
        What rows say that cannot be read. To say it again, at the same time, is no news.
    """
    counted = Counted()
    again: dict[FindingKey, Count] = {}
    newest: dict[FindingKey, Count] = {}
    for finding in findings:
        if (finding.key, finding.at) in unreadable:
            continue
        before, row = newest.get(finding.key), known.get(finding.key)
        if before is not None:
            earlier, ended_at = before.finding, None
        elif row is not None:
            earlier, ended_at = row.finding, row.ended_at
        else:
            earlier, ended_at = None, None
        if earlier is None or not finding.repeats(earlier, ended_at):
            newest[finding.key] = Count(finding)
            counted.new.append(newest[finding.key])
        elif problem := conflict_of(finding, earlier):
            counted.conflicts.append((finding, *problem))
        elif before is not None:
            before.add(finding)
        elif finding.key in again:
            again[finding.key].add(finding)
        elif row is not None:
            again[finding.key] = Count(finding)
            counted.repeated.append((row, again[finding.key]))
    return counted


def conflict_of(finding: Finding, earlier: Finding) -> tuple[str, str] | None:
    """Return the field in which a repeat says something else than the finding did, and what.

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
    if finding.gpu_serial != earlier.gpu_serial:
        serials = f"found {finding.gpu_serial!r}, expected {earlier.gpu_serial!r}"
        return "gpu_serial", f"{serials} {expected}"
    return None


def changed_severity(known: KnownFinding, count: Count) -> Severity | None:
    """Return the severity that a source says now, where it is another than the one known."""
    is_newest = count.last >= known.finding.last_said
    return count.severity if is_newest and count.severity != known.finding.severity else None
