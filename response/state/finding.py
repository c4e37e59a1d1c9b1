"""Findings: observations about a GPU or machine that are valid for a limited time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from forewarn.features.telemetry.parsers.gpu_reading import parse_pci_address
from forewarn.features.time_units import Nanoseconds

__all__ = [
    "MANUAL_CAUSE",
    "Finding",
    "FindingKey",
    "FindingKind",
    "Provenance",
    "Severity",
    "is_predicted_cause",
]

MANUAL_CAUSE: Final = "by hand"
"""Cause of a drain that a person asked for."""


class Severity(StrEnum):
    """Severity of a finding, least severe first."""

    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Position in the order, 0 for the least severe."""
        return _RANKS[self]


_RANKS = {severity: number for number, severity in enumerate(Severity)}


class FindingKind(StrEnum):
    """Kind of finding; what each has read is in `independent_evidence.py`.

    `REPORT` is the default of findings that are posted over the API.
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
    """Provenance of a finding.

    `HOST`: a source of the site itself, or a token bound to the machine. `SHARED`: only a token
    that every host has, so any host may have sent it.
    """

    HOST = "host"
    SHARED = "shared"


class FindingKey(NamedTuple):
    """Identity of a finding while it is valid.

    Ids of a source are unique within one machine. Findings of a shared token have keys of their
    own: they cannot count, downgrade or block findings that the machine itself reports.
    """

    source: str
    machine: str
    id: str
    vouched: Provenance = Provenance.HOST


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation; a later finding with the same key repeats it (see `repeats`).

    Attributes
    ----------
    source : str
        `at_risk`, `detect`, `diagnose`, `nodes`, `inspection`, `records`, `slurm`, or the name of a
        token.
    id : str
        Name that the source gives it. A repeat has the same id.
    kind : FindingKind
    cause : str
        Key of limits and overrides: `xid 79`, `at_risk`, `verdict`, `blind`.
    machine : str
    gpu_serial, job : str or None
    at, valid_until : int
        Nanoseconds since 1970 UTC: time of the observation, and end of its validity for actions.
    severity : Severity or None
        Severity that the source states; the policy may replace it. None: the policy decides.
    evidence : mapping
        JSON-serializable.
    model_version : str
        Version of the model that produced it; empty without a model.
    first, last : int
        Times of the first and the last report; `at` unless it was repeated.
    count : int
        Number of reports. 0: the source states the end of the finding, at `valid_until`.
    vouched : Provenance
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
        """Return the identity of the finding."""
        return FindingKey(self.source, self.machine, self.id, self.vouched)

    @property
    def last_reported(self) -> Nanoseconds:
        """Return the time of the last report."""
        return self.at if self.last is None else self.last

    def repeats(self, earlier: Finding, ended_at: Nanoseconds | None = None) -> bool:
        """Tell whether this finding repeats an earlier one with the same key.

        A report after the end of the earlier one is a new finding: the fault is back.

        Parameters
        ----------
        earlier : Finding
        ended_at : int, optional
            End of the earlier finding's incident, nanoseconds since 1970 UTC; None if it is open.

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
        """Return the failure probability that the finding states; 0 without one."""
        value = self.evidence.get("probability")
        return min(max(value, 0.0), 1.0) if isinstance(value, int | float) else 0.0

    @property
    def location(self) -> str:
        """Return the GPU's location in its machine: PCI address, else slot; empty if unknown."""
        pci, slot = self.evidence.get("pci"), self.evidence.get("slot")
        if isinstance(pci, str) and pci:
            return parse_pci_address(pci) or pci
        return f"slot {slot}" if isinstance(slot, int | str) and slot != "" else ""

    def same_gpu(self, other: Finding) -> bool:
        """Tell whether two findings concern the same GPU of a machine, or both the machine itself.

        Serials decide if both findings have one, else locations.

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
        """Tell whether this finding may affect decisions about another; a shared token may not."""
        return self.vouched is Provenance.HOST or other.vouched is Provenance.SHARED

    @property
    def predicts(self) -> bool:
        """Tell whether the finding is a prediction, not an observed failure."""
        return self.kind is FindingKind.AT_RISK

    def valid(self, now: Nanoseconds) -> bool:
        """Tell whether the finding is still valid for actions."""
        return now < self.valid_until


def is_predicted_cause(cause: str) -> bool:
    """Tell whether the cause of an action is a prediction: by the list, or by another source.

    Examples
    --------
    >>> is_predicted_cause("at_risk by ml"), is_predicted_cause("xid 79")
    (True, False)
    """
    return cause.split(" ", 1)[0] == FindingKind.AT_RISK
