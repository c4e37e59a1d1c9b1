"""Findings: what somebody has noticed about a GPU or a machine, and for how long it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from forewarn.features.time_units import Nanoseconds

__all__ = ["BY_HAND", "Finding", "FindingKind", "Severity"]

BY_HAND: Final = "by hand"
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
    FOREIGN_DRAIN = "foreign_drain"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was noticed; the same (source, id) again is the same finding.

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

    @property
    def predicts(self) -> bool:
        """Tell whether it says that something will fail, and not that something has."""
        return self.kind is FindingKind.AT_RISK

    def valid(self, now: Nanoseconds) -> bool:
        """Tell whether it may still be acted on."""
        return now < self.valid_until
