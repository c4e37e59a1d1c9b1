"""Tables of a policy file; all keys are optional, because files are merged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainValidator

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.config.toml_tables import (
    Count,
    Duration,
    SettingsError,
    Share,
    StrictTable,
)
from forewarn.response.policy.fault_level import BlockScope, FaultLevel, LevelRule
from forewarn.response.policy.policy_rule import (
    DurationEscalation,
    FrequencyEscalation,
    ProbabilityEscalation,
    Rule,
    SeverityDefault,
)
from forewarn.response.state.finding import FindingKind, Severity
from forewarn.response.state.rung import Rung
from forewarn.response.state.step import DrainMode, Step

__all__ = ["PolicyTable", "RuleTable", "XidTable"]

_MAX_XID = 1023  # highest code in records
_SCOPES = {  # by whether a step isolates, and whether it avoids
    (False, False): BlockScope.NONE,
    (False, True): BlockScope.JOB,
    (True, False): BlockScope.CLUSTER,
}


def _code(key: object) -> int:
    if isinstance(key, str) and key.isascii() and key.isdigit() and key == str(int(key[:5])):
        code = int(key)
        if 1 <= code <= _MAX_XID:
            return code
    raise ValueError(f"expected the number of an Xid, 1 to {_MAX_XID}")


def _codes(value: object) -> object:
    if value == "any":
        return value
    if isinstance(value, list) and all(type(v) is int and 1 <= v <= _MAX_XID for v in value):
        return tuple(value)
    raise ValueError(f'expected "any" or a list of Xids, 1 to {_MAX_XID}')


def _confirming(value: object) -> EvidenceKind:
    kinds = [kind for kind in EvidenceKind if kind is not EvidenceKind.LIST]
    if value in kinds:
        return EvidenceKind(str(value))
    raise ValueError(f"expected a kind of evidence: {', '.join(kinds)}")


ConfirmingEvidence = Annotated[EvidenceKind, PlainValidator(_confirming)]
Xid = Annotated[int, Field(ge=1, le=_MAX_XID, strict=True)]
Recovery = Literal["none", "reset", "reboot", "drain", "drain_and_reset"]
Leaders = Annotated[Literal["any"] | tuple[int, ...], PlainValidator(_codes)]


class StandardTable(StrictTable):
    """Default step of a severity."""

    step: Step | None = None
    mode: DrainMode | None = None

    def standard(self, name: str, key: str) -> SeverityDefault:
        """Convert to the core's type."""
        if self.step is None:
            raise SettingsError(f"{name}: `{key}` has no `step`, expected one.")
        return SeverityDefault(self.step, self.mode if self.step.isolates else None)


class OftenTable(StrictTable):
    """Harder step for a frequent cause."""

    times: Annotated[int, Field(ge=2, le=10**6, strict=True)] | None = None
    within: Duration | None = None
    step: Step | None = None


class LastingTable(StrictTable):
    """Harder step for a finding that persists."""

    span: Duration | None = None
    step: Step | None = None


class LikelyTable(StrictTable):
    """Harder step for a prediction with a high probability."""

    probability: Share | None = None
    step: Step | None = None


class RuleTable(StrictTable):
    """Rule for a finding."""

    severity: Severity | None = None
    step: Step | None = None
    mode: DrainMode | None = None
    max_age: Duration | None = None
    at_most: Step | None = None
    reported: Annotated[bool, Field(strict=True)] | None = None
    confirmed_by: tuple[ConfirmingEvidence, ...] | None = None
    alone: Step | None = None
    often: OftenTable | None = None
    lasting: LastingTable | None = None
    likely: LikelyTable | None = None

    def rule(self, name: str, key: str) -> Rule:
        """Convert to the core's type; `name` is the file and `key` the position, for messages.

        Raises
        ------
        SettingsError
            If a required key is missing.
        """
        for part in ("often", "lasting", "likely"):
            _check_complete(getattr(self, part), name, f"{key}.{part}")
        if self.severity is None:
            raise SettingsError(f"{name}: `{key}` has no `severity`, expected one.")
        often, lasting, likely = self.often, self.lasting, self.likely
        return Rule(
            severity=self.severity,
            step=self.step or Step.TELL,
            mode=self.mode,
            max_age=Nanoseconds(self.max_age or DAY),
            at_most=self.at_most or Step.REPLACE,
            reported=bool(self.reported),
            confirmed_by=frozenset(self.confirmed_by or ()),
            alone=self.alone or Step.TELL,
            often=FrequencyEscalation(**often.model_dump()) if often else None,
            lasting=DurationEscalation(**lasting.model_dump()) if lasting else None,
            likely=ProbabilityEscalation(**likely.model_dump()) if likely else None,
        )


def _check_complete(table: StrictTable | None, name: str, key: str) -> None:
    for part, value in table.model_dump().items() if table is not None else ():
        if value is None:
            raise SettingsError(f"{name}: `{key}` has no `{part}`, expected one.")


class KindTable(RuleTable):
    """Rule for a kind of finding, with its own keys or those of an action."""

    action: str | None = None


class XidTable(KindTable):
    """Rule for an Xid, and its relations to other codes.

    `fatal` names the action for errors that the driver itself calls fatal.
    """

    name: Annotated[str, Field(max_length=80)] | None = None
    follows: Leaders | None = None
    cancels: tuple[Xid, ...] | None = None
    fatal: str | None = None


class LevelTable(StrictTable):
    """What a level of faults asks of the machine and of the job."""

    severity: Severity | None = None
    step: Step | None = None
    mode: DrainMode | None = None
    scope: BlockScope | None = None
    rung: Rung | None = None

    def rule(self, name: str, key: str) -> LevelRule:
        """Convert to the core's type.

        Raises
        ------
        SettingsError
            If a required key is missing, or the scope does not fit the step.
        """
        if self.severity is None or self.step is None:
            missing = "severity" if self.severity is None else "step"
            raise SettingsError(f"{name}: `{key}` has no `{missing}`, expected one.")
        scope = self.scope or BlockScope.NONE
        fitting = _SCOPES[self.step.isolates, self.step is Step.AVOID]
        if scope is not fitting:
            raise SettingsError(
                f"{name}: key `{key}.scope`: found '{scope}', expected '{fitting}', because the "
                f"step is {self.step}."
            )
        mode = self.mode if self.step.isolates else None
        return LevelRule(self.severity, self.step, mode, scope, self.rung)


class LadderTable(StrictTable):
    """Time limits of the rungs, and the retry budget of a job."""

    limits: dict[Rung, Duration] = Field(default_factory=dict)
    retries: Annotated[int, Field(ge=0, le=100, strict=True)] | None = None
    most: Count | None = None
    within: Duration | None = None


class EscalationTable(StrictTable):
    """Escalation of steps, and when a person has to look."""

    together: Duration | None = None
    again: Duration | None = None
    most: Count | None = None
    within: Duration | None = None


class PolicyTable(StrictTable):
    """A policy, or an overlay on one."""

    steps: dict[Severity, StandardTable] = Field(default_factory=dict)
    escalation: EscalationTable = EscalationTable()
    actions: dict[str, RuleTable] = Field(default_factory=dict)
    kinds: dict[FindingKind, KindTable] = Field(default_factory=dict)
    recoveries: dict[Recovery, KindTable] = Field(default_factory=dict)
    levels: dict[FaultLevel, LevelTable] = Field(default_factory=dict)
    ladder: LadderTable = LadderTable()
    xids: dict[Annotated[int, BeforeValidator(_code)], XidTable] = Field(default_factory=dict)
