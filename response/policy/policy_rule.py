"""Rules of a policy for one kind of finding or one Xid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.policy.fault_level import FaultLevel
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.step import DrainMode, Step

__all__ = [
    "FaultDuration",
    "FaultFrequency",
    "ProbabilityEscalation",
    "ReturnLimit",
    "Rule",
    "SeverityDefault",
    "XidRule",
    "code_in_cause",
    "xid_code",
]


@dataclass(frozen=True, slots=True)
class SeverityDefault:
    """Default step of a severity; a rule may ask for a stronger one."""

    step: Step
    mode: DrainMode | None = None


@dataclass(frozen=True, slots=True)
class FaultDuration:
    """A fault counts once it lasted `fault_after`, and is over after `recover_after`.

    Attributes
    ----------
    fault_after, recover_after : int
        Nanoseconds; reports with longer gaps than `recover_after` are different faults.
    level : FaultLevel
        Of a fault that counts, until it is over.
    """

    fault_after: Nanoseconds
    recover_after: Nanoseconds
    level: FaultLevel


@dataclass(frozen=True, slots=True)
class FaultFrequency:
    """Harder level of a cause that counts `times` times on one GPU `within` a span.

    Attributes
    ----------
    times : int
    within : int
        Nanoseconds.
    level : FaultLevel
    release : int or None
        Nanoseconds after the last time, from which on the level no longer holds. None: until a
        person releases it, which is possible for `ISOLATE_MANUAL` alone.

    Raises
    ------
    ValueError
        If the release is missing.
    """

    times: int
    within: Nanoseconds
    level: FaultLevel
    release: Nanoseconds | None = None

    def __post_init__(self) -> None:
        """Refuse an escalation that never ends by itself."""
        if self.release is None and self.level is not FaultLevel.ISOLATE_MANUAL:
            raise ValueError(f"`release` is missing, and the level is {self.level}.")


@dataclass(frozen=True, slots=True)
class ReturnLimit:
    """How often a cause returns, or a step is taken, before something harder is done.

    Attributes
    ----------
    times : int
        The last time included.
    within : int
        Nanoseconds.
    release : int or None
        Nanoseconds without the cause after which it no longer counts as returned; None: none.
    """

    times: int
    within: Nanoseconds
    release: Nanoseconds | None = None


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
    duration : FaultDuration or None
    frequency : FaultFrequency or None
        Of what the duration lets count.
    likely : ProbabilityEscalation or None
    level : FaultLevel or None
        Level that severity and step were taken from.
    """

    severity: Severity
    step: Step
    mode: DrainMode | None = None
    max_age: Nanoseconds = DAY
    at_most: Step = Step.REPLACE
    reported: bool = False
    confirmed_by: frozenset[EvidenceKind] = frozenset()
    alone: Step = Step.REPLACE
    duration: FaultDuration | None = None
    frequency: FaultFrequency | None = None
    likely: ProbabilityEscalation | None = None
    level: FaultLevel | None = None


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
    return code_in_cause(finding.cause) if finding.kind is FindingKind.XID else None


@lru_cache(maxsize=1024)
def code_in_cause(cause: str) -> int | None:
    """Return the code in the cause of an Xid finding, such as 79 of `xid 79`; None if not one."""
    number = cause.removeprefix("xid ")
    return int(number) if number.isascii() and number.isdigit() else None
