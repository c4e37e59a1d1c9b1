"""Validation of findings that are posted to the API, and their conversion."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from forewarn.features.time_units import DAY, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.access_control import TokenHolder
from forewarn.pipelines.incidents.api.input_types import MachineName, Moment, Name
from forewarn.pipelines.runtime.clock import MAX_CLOCK_SKEW
from forewarn.response.state.finding import Finding, FindingKind, Severity

__all__ = [
    "MAX_FINDINGS",
    "RESERVED_SOURCES",
    "PostedFinding",
    "PostedFindingError",
    "accept_findings",
]

MAX_FINDINGS: Final = 1000
"""Findings per request."""
RESERVED_SOURCES: Final = frozenset(
    {
        *("forewarn", "alertmanager", "at_risk", "detect", "diagnose", "nodes", "records"),
        *("scheduler", "slurm", "check", "failures"),
    }
)
"""Sources that only forewarn itself may use."""

_MAX_EVIDENCE_CHARS: Final = 16 * 1024  # characters of ASCII JSON, as stored in the ledger
_MAX_DEPTH: Final = 16
_MAX_VALIDITY: Final = 366 * DAY


class PostedFindingError(Exception):
    """A posted finding is refused.

    Attributes
    ----------
    index : int
        Position in the posted list.
    field : str
    why : str
    status : int
        HTTP status.
    """

    def __init__(self, index: int, field: str, why: str, status: int = 422) -> None:
        super().__init__(f"findings[{index}].{field}: {why}")
        self.index, self.field, self.why, self.status = index, field, why, status


def _shallow(value: object, depth: int = _MAX_DEPTH) -> bool:
    """Tell whether objects and lists are nested at most `depth` deep."""
    if not isinstance(value, dict | list):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_shallow(part, depth - 1) for part in parts)


def _evidence(evidence: dict[str, Any]) -> dict[str, Any]:
    if not _shallow(evidence):
        raise ValueError(f"expected objects at most {_MAX_DEPTH} levels deep")
    try:
        text = json.dumps(evidence, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text) if text.isascii() else len(json.dumps(evidence, separators=(",", ":")))
        text.encode()
    except ValueError:  # an infinity, NaN or a lone surrogate
        raise ValueError("expected finite numbers and UTF-8 text") from None
    if size > _MAX_EVIDENCE_CHARS:
        raise ValueError(f"got {size} bytes of JSON, expected at most {_MAX_EVIDENCE_CHARS}")
    return evidence


Evidence = Annotated[
    dict[str, Any],
    AfterValidator(_evidence),
    Field(
        description="Any JSON object, at most 16 KiB and 16 levels deep. For the kind `xid`, its "
        "code as `xid`.",
        examples=[{"xid": 79, "message": "GPU has fallen off the bus"}],
    ),
]


class PostedFinding(BaseModel):
    """An observation about a machine.

    A repeat (same `source`, `machine` and `id`) is counted until `valid_until` or until its
    incident ends, and its `severity` is updated. After that it is a new finding.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[
        Name,
        Field(
            description="Identifier chosen by the source, unique per machine.",
            examples=["nhc-17-79"],
        ),
    ]
    source: Annotated[Name, Field(description="Name of the reporting system.", examples=["nhc"])]
    kind: Annotated[FindingKind, Field(description="Kind of evidence; `report` if no other fits.")]
    machine: MachineName
    gpu_serial: Annotated[
        Name | None,
        Field(description="Serial, if it concerns one GPU.", examples=["1650000000017"]),
    ] = None
    job: Annotated[Name | None, Field(description="Job on the machine.", examples=["4711"])] = None
    at: Annotated[
        Moment, Field(description="Time of the observation; at most 5 minutes in the future.")
    ]
    valid_until: Annotated[
        Moment, Field(description="End of validity; at most 366 days after `at`.")
    ]
    severity: Annotated[
        Severity, Field(description="Severity given by the source; the policy may override it.")
    ]
    evidence: Evidence

    def cause(self) -> str:
        """Return the cause by which limits and overrides count the finding.

        The cause contains the source: false alarms of one check must not use up the limit of
        another.
        """
        code = self.evidence.get("xid", self.evidence.get("code"))
        if self.kind is FindingKind.XID and isinstance(code, int) and not isinstance(code, bool):
            return f"xid {code}"
        return f"{self.kind} by {self.source}"

    def problem(self, now: Nanoseconds) -> tuple[str, str] | None:
        """Return the first invalid field and the reason, or None."""
        if self.source.lower() in RESERVED_SOURCES:
            return "source", f"got {self.source!r}, which is reserved, expected another name"
        if self.at > now + MAX_CLOCK_SKEW:
            ahead = (self.at - now) // SECOND
            return (
                "at",
                f"is {ahead} s in the future, expected at most {MAX_CLOCK_SKEW // SECOND} s",
            )
        if self.at < 0:
            return "at", "got a time before 1970"
        if not self.at <= self.valid_until <= self.at + _MAX_VALIDITY:
            return "valid_until", "expected a time at or after `at`, at most 366 days later"
        return None

    def finding(self, holder: TokenHolder) -> Finding:
        """Convert to a finding with the provenance of the token."""
        evidence: Mapping[str, Any] = self.evidence
        return Finding(
            source=self.source,
            id=self.id,
            kind=self.kind,
            cause=self.cause(),
            machine=self.machine,
            at=self.at,
            valid_until=self.valid_until,
            gpu_serial=self.gpu_serial,
            job=self.job,
            severity=self.severity,
            evidence=evidence,
            vouched=holder.provenance,
        )


def accept_findings(
    posted: Sequence[PostedFinding], holder: TokenHolder, now: Nanoseconds
) -> list[Finding]:
    """Convert all posted findings, or raise.

    Parameters
    ----------
    posted : sequence of PostedFinding
    holder : TokenHolder
    now : int
        Nanoseconds since 1970 UTC.

    Raises
    ------
    PostedFindingError
        If a finding has an impossible time, uses a reserved source, or is about a machine that the
        token may not report.
    """
    for index, item in enumerate(posted):
        if problem := item.problem(now):
            raise PostedFindingError(index, *problem)
        if not holder.may_report(item.machine):
            why = f"the token of {holder.name} may not report findings of {item.machine}"
            raise PostedFindingError(index, "machine", why, status=403)
    return [item.finding(holder) for item in posted]
