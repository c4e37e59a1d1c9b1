"""Deduplication of the findings of one call: new ones, repeats, and conflicts."""

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
"""Key of a finding, and the time of its observation."""


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """Newest known finding of a key.

    Attributes
    ----------
    row : int
    finding : Finding
        Its evidence is ignored.
    ended_at : int or None
        End of its last incident, nanoseconds since 1970 UTC; None if that is open.
    """

    row: int
    finding: Finding
    ended_at: Nanoseconds | None


class FindingCount:
    """Finding with all its repeats in one call.

    Attributes
    ----------
    finding : Finding
        The first report, with the GPU serial of any repeat.
    count : int
        Number of reports, at most what 64 bits hold.
    last : int
        Time of the last report, nanoseconds since 1970 UTC.
    severity : Severity or None
        Severity of the last report.
    end : int or None
        Time at which a source stated the end of the finding, nanoseconds since 1970 UTC.
    """

    __slots__ = ("count", "end", "finding", "last", "severity")

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.count = finding.count
        self.last = finding.last_reported
        self.severity = finding.severity
        self.end = None if finding.count else finding.valid_until

    def add(self, repeat: Finding) -> None:
        """Count a repeat."""
        if repeat.count == 0:
            self.end = min(repeat.valid_until, self.end or repeat.valid_until)
        if self.finding.gpu_serial is None:
            self.finding = replace(self.finding, gpu_serial=repeat.gpu_serial)
        self.count = min(self.count + repeat.count, _MAX_COUNT)
        if repeat.last_reported >= self.last and repeat.severity is not None:
            self.severity = repeat.severity
        self.last = max(self.last, repeat.last_reported)

    def merge_into(self, known: Finding) -> Finding:
        """Return a known finding with these repeats added."""
        is_newest = self.last >= known.last_reported and self.severity is not None
        return replace(
            known,
            valid_until=min(known.valid_until, self.end or known.valid_until),
            gpu_serial=known.gpu_serial or self.finding.gpu_serial,
            severity=self.severity if is_newest else known.severity,
            last=max(self.last, known.last_reported),
            count=min(self.count + known.count, _MAX_COUNT),
        )

    def to_finding(self) -> Finding:
        """Return the finding with its repeats, as it is stored."""
        first = self.finding.at if self.finding.first is None else self.finding.first
        return replace(
            self.finding,
            valid_until=min(self.finding.valid_until, self.end or self.finding.valid_until),
            first=first,
            last=self.last,
            count=self.count,
            severity=self.severity,
        )


@dataclass(slots=True)
class DeduplicatedFindings:
    """Deduplicated findings of one call.

    Attributes
    ----------
    new : list of FindingCount
    repeated : list of (KnownFinding, FindingCount)
    conflicts : list of (Finding, str, str)
        Findings that contradict a known one of the same key, the field, and the problem.
    """

    new: list[FindingCount] = field(default_factory=list)
    repeated: list[tuple[KnownFinding, FindingCount]] = field(default_factory=list)
    conflicts: list[tuple[Finding, str, str]] = field(default_factory=list)


def deduplicate_findings(
    findings: Iterable[Finding],
    known: Mapping[FindingKey, KnownFinding],
    unreadable: Set[FindingStatement] = frozenset(),
) -> DeduplicatedFindings:
    """Separate new findings from repeats of known ones, or of earlier ones in the same call.

    Parameters
    ----------
    findings : iterable of Finding
    known : mapping of FindingKey to KnownFinding
    unreadable : set of (FindingKey, int)
        Statements of rows that cannot be read; the same statement again is ignored.
    """
    counted = DeduplicatedFindings()
    repeats: dict[FindingKey, FindingCount] = {}
    newest: dict[FindingKey, FindingCount] = {}
    for finding in findings:
        if (finding.key, finding.at) in unreadable:
            continue
        before, row = newest.get(finding.key), known.get(finding.key)
        ended_at = row.ended_at if row is not None and before is None else None
        known_before = row.finding if row is not None else None
        earlier = known_before if before is None else before.finding
        before = before or repeats.get(finding.key)
        if earlier is None or not finding.repeats(earlier, ended_at):
            if finding.count == 0:
                continue  # the end of a finding that is unknown, or over already
            newest[finding.key] = FindingCount(finding)
            counted.new.append(newest[finding.key])
        elif problem := find_conflict(finding, earlier) or (
            before and find_conflict(finding, before.finding)
        ):
            counted.conflicts.append((finding, *problem))
        elif before is not None:
            before.add(finding)
        elif row is not None:
            repeats[finding.key] = FindingCount(finding)
            counted.repeated.append((row, repeats[finding.key]))
    return counted


def find_conflict(finding: Finding, earlier: Finding) -> tuple[str, str] | None:
    """Return the field in which a repeat contradicts the known finding, and the problem.

    A repeat may lack the serial, or be the first to name it.

    Examples
    --------
    >>> from forewarn.response.state.finding import FindingKind
    >>> at = Nanoseconds(0)
    >>> first = Finding("nhc", "1", FindingKind.CHECK, "check by nhc", "node-1", at, at)
    >>> find_conflict(Finding("nhc", "1", FindingKind.XID, "xid 79", "node-1", at, at), first)
    ('kind', "found 'xid', expected 'check' as before, or another `id`")
    """
    expected = "as before, or another `id`"
    if finding.kind is not earlier.kind:
        return "kind", f"found {str(finding.kind)!r}, expected {str(earlier.kind)!r} {expected}"
    if None not in (finding.gpu_serial, earlier.gpu_serial) and not finding.same_gpu(earlier):
        serials = f"found {finding.gpu_serial!r}, expected {earlier.gpu_serial!r}"
        return "gpu_serial", f"{serials} {expected}"
    return None
