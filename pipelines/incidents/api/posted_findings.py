"""Findings that others report over the API: what is taken, and as what."""

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
"""Of one request."""
RESERVED_SOURCES: Final = frozenset(
    {"forewarn", "at_risk", "detect", "records", "scheduler", "slurm", "check", "failures"}
)
"""Sources of forewarn itself. Nobody else may use one, or it would say what we have noticed."""

_MAX_EVIDENCE_CHARS: Final = 16 * 1024  # characters of JSON in ASCII, as the ledger has them
_MAX_DEPTH: Final = 16
_MAX_VALIDITY: Final = 366 * DAY


class PostedFindingError(Exception):
    """A finding that is not taken.

    Attributes
    ----------
    index : int
        Its place in the list.
    field : str
    why : str
    status : int
        Of HTTP.
    """

    def __init__(self, index: int, field: str, why: str, status: int = 422) -> None:
        super().__init__(f"findings[{index}].{field}: {why}")
        self.index, self.field, self.why, self.status = index, field, why, status


def _shallow(value: object, depth: int = _MAX_DEPTH) -> bool:
    """Tell whether objects and lists lie in each other no deeper than that."""
    if not isinstance(value, dict | list):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_shallow(part, depth - 1) for part in parts)


def _evidence(evidence: dict[str, Any]) -> dict[str, Any]:
    if not _shallow(evidence):
        raise ValueError(f"expected objects at most {_MAX_DEPTH} deep")
    try:
        text = json.dumps(evidence, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text) if text.isascii() else len(json.dumps(evidence, separators=(",", ":")))
        text.encode()
    except ValueError:  # an infinity, or half a character
        raise ValueError("expected finite numbers and text of UTF-8") from None
    if size > _MAX_EVIDENCE_CHARS:
        raise ValueError(f"found {size} bytes of JSON, expected at most {_MAX_EVIDENCE_CHARS}")
    return evidence


Evidence = Annotated[
    dict[str, Any],
    AfterValidator(_evidence),
    Field(
        description="What speaks for it: any JSON, at most 16 KiB and 16 deep. Of an `xid`, its "
        "code as `xid`.",
        examples=[{"xid": 79, "message": "GPU has fallen off the bus"}],
    ),
]


class PostedFinding(BaseModel):
    """Something that was noticed about a machine.

    The same `source`, `machine` and `id` again is counted until `valid_until`, or until its
    incident ends; the latest `severity` counts. After that it is another finding.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[
        Name,
        Field(description="The source's own name for it on this machine.", examples=["nhc-17-79"]),
    ]
    source: Annotated[Name, Field(description="Who says so.", examples=["nhc"])]
    kind: Annotated[
        FindingKind, Field(description="Where it comes from; `report` if nothing else fits.")
    ]
    machine: MachineName
    gpu_serial: Annotated[
        Name | None, Field(description="Where it is one GPU.", examples=["1650000000017"])
    ] = None
    job: Annotated[Name | None, Field(description="That ran there.", examples=["4711"])] = None
    at: Annotated[Moment, Field(description="When it was so; at most 5 minutes ahead of us.")]
    valid_until: Annotated[
        Moment, Field(description="Until when it may be acted on; at most a year after `at`.")
    ]
    severity: Annotated[
        Severity, Field(description="What the source thinks; the policy has the last word.")
    ]
    evidence: Evidence

    def cause(self) -> str:
        """Return what limits and overrides count it by.

        Two sources are two causes: a check that cries wolf must not use up the limit of another.
        """
        code = self.evidence.get("xid", self.evidence.get("code"))
        if self.kind is FindingKind.XID and isinstance(code, int) and not isinstance(code, bool):
            return f"xid {code}"
        return f"{self.kind} by {self.source}"

    def problem(self, now: Nanoseconds) -> tuple[str, str] | None:
        """Return the field that cannot be, and why."""
        if self.source.lower() in RESERVED_SOURCES:
            return "source", f"found {self.source!r}, which is ours, expected a name of your own"
        if self.at > now + MAX_CLOCK_SKEW:
            ahead = (self.at - now) // SECOND
            return (
                "at",
                f"is {ahead} s ahead of this clock, expected at most {MAX_CLOCK_SKEW // SECOND}",
            )
        if self.at < 0:
            return "at", "found a time before 1970"
        if not self.at <= self.valid_until <= self.at + _MAX_VALIDITY:
            return "valid_until", "expected a time after `at`, and at most 366 days after it"
        return None

    def finding(self, holder: TokenHolder) -> Finding:
        """Return it as the ledger takes it, from whoever has the token."""
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
    """Return what was posted as findings, all of it or nothing.

    Parameters
    ----------
    posted : sequence of PostedFinding
    holder : Holder
        Of the token.
    now : int
        Nanoseconds since 1970 UTC.

    Raises
    ------
    PostedFindingError
        If one has the time of a wrong clock, claims to come from us, or is about a machine that
        the token does not speak for.
    """
    for index, item in enumerate(posted):
        if problem := item.problem(now):
            raise PostedFindingError(index, *problem)
        if not holder.may_report(item.machine):
            why = f"the token of {holder.name} does not speak for {item.machine}"
            raise PostedFindingError(index, "machine", why, status=403)
    return [item.finding(holder) for item in posted]
