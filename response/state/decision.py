"""Decisions: the step for an incident, and what blocks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.blocker import BlockerKind
from forewarn.response.state.finding import FindingKey, Severity
from forewarn.response.state.step import DrainMode, Step

__all__ = ["Decision", "Ruling"]


class Ruling(StrEnum):
    """What happens to a step.

    `ACT`: it is taken now. `PROPOSE`: it waits for a person's approval. `OBSERVE`: it is only
    recorded. `HOLD`: acting is allowed, but something blocks the step.
    """

    ACT = "act"
    PROPOSE = "propose"
    OBSERVE = "observe"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about an incident; the ledger adds a row only when it or its reason changes.

    Attributes
    ----------
    incident : int
    at : int
        Nanoseconds since 1970 UTC.
    ruling : Ruling
    step : Step
    mode : DrainMode or None
        None where the step does not isolate.
    severity : Severity
    reason : str
        Why this step; for `HOLD` and `OBSERVE` also what blocks it.
    until : int or None
        Time at which the blocker may end; None: not by itself.
    valid_until : int
        Time after which the step is not started.
    findings : tuple of FindingKey
        Findings that support the decision.
    policy_version, model_version : str
    who : str
        `forewarn`, or the person who approved.
    propensity : float or None
        Probability of being assigned to the holdout; None without an assignment.
    control : bool
        Whether the machine is in the holdout.
    blocked_by : BlockerKind or None
        What blocks the step, for metrics; neither compared nor stored: the reason says more.
    """

    incident: int
    at: Nanoseconds
    ruling: Ruling
    step: Step
    mode: DrainMode | None
    severity: Severity
    reason: str
    until: Nanoseconds | None
    valid_until: Nanoseconds
    findings: tuple[FindingKey, ...]
    policy_version: str
    model_version: str = ""
    who: str = "forewarn"
    propensity: float | None = None
    control: bool = False
    blocked_by: BlockerKind | None = field(default=None, compare=False)

    def repeats(self, earlier: Decision) -> bool:
        """Tell whether an earlier decision about the incident differs in nothing but times."""
        return self._content() == earlier._content()

    def _content(self) -> tuple[object, ...]:
        return (
            *(self.ruling, self.step, self.mode, self.severity, self.reason),
            *(frozenset(self.findings), self.policy_version, self.model_version),
            *(self.who, self.propensity, self.control),
        )
