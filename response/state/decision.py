"""Decisions: what is to be done about an incident, or what holds it back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import FindingKey, Severity
from forewarn.response.state.step import DrainMode, Step

__all__ = ["Decision", "Ruling"]


class Ruling(StrEnum):
    """What becomes of a step.

    `ACT` is taken at once, `PROPOSE` waits for a person, `OBSERVE` says what would have been done,
    `HOLD` is not done although somebody may act, and says what holds it back.
    """

    ACT = "act"
    PROPOSE = "propose"
    OBSERVE = "observe"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about an incident; a row is added only when it or its reason changes.

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
        In words: why this step, and for `HOLD` and `OBSERVE` what holds it back.
    until : int or None
        When that may change; None: not by itself.
    valid_until : int
        Nothing is done after it.
    findings : tuple of FindingKey
        Those it rests on.
    policy_version, model_version : str
    who : str
        `forewarn`, or the person who approved.
    propensity : float or None
        With which probability the machine was left alone as a control; None where no lot was drawn.
    control : bool
        It was left alone for that.
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
