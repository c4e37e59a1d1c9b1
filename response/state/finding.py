"""Findings: what somebody has noticed about a GPU or a machine, and for how long it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from forewarn.features.telemetry.parsers.gpu_reading import parse_pci_address
from forewarn.features.time_units import Nanoseconds

__all__ = ["MANUAL_CAUSE", "Finding", "FindingKey", "FindingKind", "Provenance", "Severity"]

MANUAL_CAUSE: Final = "by hand"
"""The cause of what a person wants done to a machine."""


class Severity(StrEnum):
    """How grave a finding is, the mildest first."""

    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Place in the order, 0 for the mildest."""
        return _RANKS[self]


_RANKS = {severity: number for number, severity in enumerate(Severity)}


class FindingKind(StrEnum):
    """Where a finding comes from; evidence of two kinds is independent.

    `REPORT` is what others send over the API and name no other kind for.
    """

    AT_RISK = "at_risk"
    VERDICT = "verdict"
    XID = "xid"
    FAILURE = "failure"
    CHECK = "check"
    DIAGNOSIS = "diagnosis"
    BLIND = "blind"
    EXTERNAL_DRAIN = "foreign_drain"
    REPORT = "report"


class Provenance(StrEnum):
    """Who answers for a finding.

    `HOST`: a source of the site itself, or a token that is bound to the machine. `SHARED`: only a
    token that every host of the site has, so that any of them may have sent it.
    """

    HOST = "host"
    SHARED = "shared"


class FindingKey(NamedTuple):
    """What makes two findings the same, while the first one lasts.

    A source's names are unique only within one machine. What a shared token says has names of its
    own: nobody who has it can count, soften or block what the machine itself reports.
    """

    source: str
    machine: str
    id: str
    vouched: Provenance = Provenance.HOST


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was noticed; the same key again is the same finding, as `repeats` says.

    Attributes
    ----------
    source : str
        Who says so: `at_risk`, `detect`, `records`, `slurm`, or the name of a token.
    id : str
        The source's own name for it. A source gives what is repeated the same one.
    kind : FindingKind
    cause : str
        What limits and overrides count by: `xid 79`, `at_risk`, `verdict`, `blind`.
    machine : str
    gpu_serial, job : str or None
    at, valid_until : int
        Nanoseconds since 1970 UTC: when it was so, and until when it may be acted on.
    severity : Severity or None
        What the source thinks; a policy has the last word. None leaves it to the policy.
    evidence : mapping
        As JSON can hold it.
    model_version : str
        Of the model that says so; empty where none does.
    first, last : int
        When it was said for the first and for the last time; `at` unless it was repeated.
    count : int
        How often it was said.
    vouched : Voucher
    """

    source: str
    id: str
    kind: FindingKind
    cause: str
    machine: str
    at: Nanoseconds
    valid_until: Nanoseconds
    gpu_serial: str | None = None
    job: str | None = None
    severity: Severity | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    model_version: str = ""
    first: Nanoseconds | None = None
    last: Nanoseconds | None = None
    count: int = 1
    vouched: Provenance = Provenance.HOST

    @property
    def key(self) -> FindingKey:
        """Return what it is known by."""
        return FindingKey(self.source, self.machine, self.id, self.vouched)

    @property
    def last_reported(self) -> Nanoseconds:
        """Return when it was said for the last time."""
        return self.at if self.last is None else self.last

    def repeats(self, earlier: Finding, ended_at: Nanoseconds | None = None) -> bool:
        """Tell whether this is an earlier finding of the same key once more.

        What is said after the end of the earlier one is another finding: the fault is back.

        Parameters
        ----------
        earlier : Finding
        ended_at : int, optional
            When its incident ended, nanoseconds since 1970 UTC; None of an open one.

        Examples
        --------
        >>> from dataclasses import replace
        >>> at, until = Nanoseconds(0), Nanoseconds(2)
        >>> first = Finding("nhc", "link", FindingKind.CHECK, "check by nhc", "node-1", at, until)
        >>> [replace(first, at=Nanoseconds(time)).repeats(first) for time in (1, 2)]
        [True, False]
        """
        end = earlier.valid_until if ended_at is None else min(earlier.valid_until, ended_at)
        return self.last_reported <= earlier.at or self.last_reported < end

    @property
    def probability(self) -> float:
        """Return how likely it says a failure is; 0 where it does not say."""
        value = self.evidence.get("probability")
        return min(max(value, 0.0), 1.0) if isinstance(value, int | float) else 0.0

    @property
    def location(self) -> str:
        """Return where in its machine the GPU is: PCI address, else slot; empty if unknown."""
        pci, slot = self.evidence.get("pci"), self.evidence.get("slot")
        if isinstance(pci, str) and pci:
            return parse_pci_address(pci) or pci
        return f"slot {slot}" if isinstance(slot, int | str) and slot != "" else ""

    def same_gpu(self, other: Finding) -> bool:
        """Tell whether two findings are about one GPU of a machine, or both about the machine.

        The serial decides where both have one, else the location.

        Examples
        --------
        >>> from dataclasses import replace
        >>> at, until = Nanoseconds(0), Nanoseconds(2)
        >>> xid = Finding("records", "1", FindingKind.XID, "xid 79", "node-1", at, until)
        >>> first, second = (replace(xid, evidence={"pci": f"0:{bus}:00"}) for bus in ("1a", "1b"))
        >>> [first.same_gpu(other) for other in (second, xid, replace(first, gpu_serial="165"))]
        [False, False, True]
        """
        if self.gpu_serial is not None and other.gpu_serial is not None:
            return self.gpu_serial == other.gpu_serial
        identified = self.gpu_serial is not None or other.gpu_serial is not None
        return self.location == other.location and bool(self.location or not identified)

    def supports(self, other: Finding) -> bool:
        """Tell whether it may change what is done about another: a shared token's word may not."""
        return self.vouched is Provenance.HOST or other.vouched is Provenance.SHARED

    @property
    def predicts(self) -> bool:
        """Tell whether it says that something will fail, and not that something has."""
        return self.kind is FindingKind.AT_RISK

    def valid(self, now: Nanoseconds) -> bool:
        """Tell whether it may still be acted on."""
        return now < self.valid_until
