"""Rules: what a policy says about one kind of finding or one Xid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

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
    """What is done about a severity, unless a rule asks for something harder."""

    step: Step
    mode: DrainMode | None = None


@dataclass(frozen=True, slots=True)
class FrequencyEscalation:
    """A harder step where a cause comes `times` times on one GPU `within` a span."""

    times: int
    within: Nanoseconds
    step: Step


@dataclass(frozen=True, slots=True)
class DurationEscalation:
    """A harder step where a cause is seen again and again for at least `span`."""

    span: Nanoseconds
    step: Step


@dataclass(frozen=True, slots=True)
class ProbabilityEscalation:
    """A harder step where a prediction has at least this probability."""

    probability: float
    step: Step


@dataclass(frozen=True, slots=True)
class Rule:
    """What a policy says about a finding.

    Attributes
    ----------
    severity : Severity
    step : Step
    mode : DrainMode or None
        None where the step does not isolate.
    max_age : int
        Nanoseconds after which a finding is not acted on any more.
    at_most : Step
        Nothing makes the step harder than this.
    reported : bool
        The severity that the source names counts in the place of ours.
    confirmed_by : frozenset of FindingKind
        Where it is not empty, a finding of these kinds on the same machine is needed; without one
        the step is `alone` at most.
    alone : Step
    often : Often or None
    lasting : Lasting or None
    likely : Likely or None
    """

    severity: Severity
    step: Step
    mode: DrainMode | None = None
    max_age: Nanoseconds = DAY
    at_most: Step = Step.REPLACE
    reported: bool = False
    confirmed_by: frozenset[FindingKind] = frozenset()
    alone: Step = Step.REPLACE
    often: FrequencyEscalation | None = None
    lasting: DurationEscalation | None = None
    likely: ProbabilityEscalation | None = None


@dataclass(frozen=True, slots=True)
class XidRule:
    """What a policy says about an Xid.

    Attributes
    ----------
    name : str
        What the code means, in words.
    action : str
        Name of the group of codes that are treated alike.
    rule : Rule
    follows : frozenset of int, or "any"
        After one of these on the same machine it is only its echo, and counts for nothing.
    cancels : frozenset of int
        Beside it these count for nothing.
    fatal : Rule or None
        Its rule where the driver itself calls the error fatal; None: the same.
    """

    name: str
    action: str
    rule: Rule
    follows: frozenset[int] | Literal["any"] = frozenset()
    cancels: frozenset[int] = frozenset()
    fatal: Rule | None = None


def xid_code(finding: Finding) -> int | None:
    """Return the code of an Xid finding, None of any other.

    Examples
    --------
    >>> at, until = Nanoseconds(0), Nanoseconds(1)
    >>> xid_of(Finding("records", "1", FindingKind.XID, "xid 79", "node-1", at, until))
    79
    """
    return _code_in(finding.cause) if finding.kind is FindingKind.XID else None


@lru_cache(maxsize=1024)
def _code_in(cause: str) -> int | None:
    number = cause.removeprefix("xid ")
    return int(number) if number.isascii() and number.isdigit() else None
