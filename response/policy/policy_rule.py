"""Rules of a policy for one kind of finding or one Xid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.step import DrainMode, Step

__all__ = [
    "DurationEscalation",
    "FrequencyEscalation",
    "ProbabilityEscalation",
    "Rule",
    "SeverityDefault",
    "XidRule",
    "xid_code",
]


@dataclass(frozen=True, slots=True)
class SeverityDefault:
    """Default step of a severity; a rule may ask for a stronger one."""

    step: Step
    mode: DrainMode | None = None


@dataclass(frozen=True, slots=True)
class FrequencyEscalation:
    """Stronger step if a cause occurs `times` times on one GPU `within` a span."""

    times: int
    within: Nanoseconds
    step: Step


@dataclass(frozen=True, slots=True)
class DurationEscalation:
    """Stronger step if a cause recurs for at least `span`."""

    span: Nanoseconds
    step: Step


@dataclass(frozen=True, slots=True)
class ProbabilityEscalation:
    """Stronger step if a prediction has at least this probability."""

    probability: float
    step: Step


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for a finding.

    Attributes
    ----------
    severity : Severity
    step : Step
    mode : DrainMode or None
        None where the step does not isolate.
    max_age : int
        Nanoseconds after which a finding is not acted on.
    at_most : Step
        Upper bound of the step.
    reported : bool
        Whether the severity that the source states replaces `severity`.
    confirmed_by : frozenset of EvidenceKind
        Unless empty, another finding on the same machine has to add one of these kinds of evidence;
        without it the step is at most `alone`.
    alone : Step
    often : FrequencyEscalation or None
    lasting : DurationEscalation or None
    likely : ProbabilityEscalation or None
    """

    severity: Severity
    step: Step
    mode: DrainMode | None = None
    max_age: Nanoseconds = DAY
    at_most: Step = Step.REPLACE
    reported: bool = False
    confirmed_by: frozenset[EvidenceKind] = frozenset()
    alone: Step = Step.REPLACE
    often: FrequencyEscalation | None = None
    lasting: DurationEscalation | None = None
    likely: ProbabilityEscalation | None = None


@dataclass(frozen=True, slots=True)
class XidRule:
    """Rule for an Xid.

    Attributes
    ----------
    name : str
        Meaning of the code.
    action : str
        Name of the group of codes that share a rule.
    rule : Rule
    follows : frozenset of int, or "any"
        After one of these on the same machine the code is inhibited.
    cancels : frozenset of int
        Codes that this code inhibits.
    fatal : Rule or None
        Rule if the driver calls the error fatal; None: the same.
    """

    name: str
    action: str
    rule: Rule
    follows: frozenset[int] | Literal["any"] = frozenset()
    cancels: frozenset[int] = frozenset()
    fatal: Rule | None = None


def xid_code(finding: Finding) -> int | None:
    """Return the code of an Xid finding; None for any other.

    Examples
    --------
    >>> at, until = Nanoseconds(0), Nanoseconds(1)
    >>> xid_code(Finding("records", "1", FindingKind.XID, "xid 79", "node-1", at, until))
    79
    """
    return _code_in(finding.cause) if finding.kind is FindingKind.XID else None


@lru_cache(maxsize=1024)
def _code_in(cause: str) -> int | None:
    number = cause.removeprefix("xid ")
    return int(number) if number.isascii() and number.isdigit() else None
