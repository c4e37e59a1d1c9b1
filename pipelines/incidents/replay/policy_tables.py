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
    FaultDuration,
    FaultFrequency,
    ProbabilityEscalation,
    ReturnLimit,
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


class DurationTable(StrictTable):
    """A fault counts once it lasted, and is over after a time without it."""

    fault_after: Duration | None = None
    recover_after: Duration | None = None
    level: FaultLevel | None = None


class FrequencyTable(StrictTable):
    """Harder level of a frequent fault; all but the manual one end after `release`."""

    times: Annotated[int, Field(ge=2, le=10**6, strict=True)] | None = None
    within: Duration | None = None
    level: FaultLevel | None = None
    release: Duration | None = None

    def rule(self) -> FaultFrequency:
        """Convert to the core's type; the manual level has no release."""
        is_manual = self.level is FaultLevel.ISOLATE_MANUAL
        values = self.model_dump() | ({"release": None} if is_manual else {})
        return FaultFrequency(**values)


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
    level: FaultLevel | None = None
    duration: DurationTable | None = None
    frequency: FrequencyTable | None = None
    likely: LikelyTable | None = None

    def rule(self, name: str, key: str) -> Rule:
        """Convert to the core's type; `name` is the file and `key` the position, for messages.

        Raises
        ------
        SettingsError
            If a required key is missing.
        """
        for part in ("duration", "frequency", "likely"):
            _check_complete(getattr(self, part), name, f"{key}.{part}")
        if self.severity is None:
            raise SettingsError(f"{name}: `{key}` has no `severity`, expected one.")
        if self.level is FaultLevel.ISOLATE_MANUAL:
            raise SettingsError(
                f"{name}: key `{key}.level`: found '{self.level}', expected a milder level: only "
                "`frequency` and `duration` lead to it."
            )
        duration, likely = self.duration, self.likely
        return Rule(
            severity=self.severity,
            step=self.step or Step.TELL,
            mode=self.mode,
            max_age=Nanoseconds(self.max_age or DAY),
            at_most=self.at_most or Step.REPLACE,
            reported=bool(self.reported),
            confirmed_by=frozenset(self.confirmed_by or ()),
            alone=self.alone or Step.TELL,
            duration=FaultDuration(**duration.model_dump()) if duration else None,
            frequency=self.frequency.rule() if self.frequency else None,
            likely=ProbabilityEscalation(**likely.model_dump()) if likely else None,
            level=self.level,
        )


def _check_complete(table: StrictTable | None, name: str, key: str) -> None:
    values = {} if table is None else table.model_dump()
    is_manual = values.get("level") is FaultLevel.ISOLATE_MANUAL
    for part, value in values.items():
        if value is None and not (part == "release" and is_manual):
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


class ReturnTable(StrictTable):
    """From which time on a fault that returns, or a step, leads to something harder."""

    times: Annotated[int, Field(ge=2, le=10**6, strict=True)] | None = None
    within: Duration | None = None
    release: Duration | None = None

    def limit(self, name: str, key: str) -> ReturnLimit:
        """Convert to the core's type; a person is the last resort, which needs no release."""
        is_manual = key.endswith(FaultLevel.ISOLATE_MANUAL)
        for part, value in self.model_dump().items():
            if value is None and not (part == "release" and is_manual):
                raise SettingsError(f"{name}: `{key}` has no `{part}`, expected one.")
        return ReturnLimit(**self.model_dump())


class FrequencyTables(StrictTable):
    """Limits for all faults: when the next step follows, and when a person has to look."""

    next_step: ReturnTable = ReturnTable()
    isolate_manual: ReturnTable = ReturnTable()


class InhibitionTable(StrictTable):
    """Which codes are one event."""

    together: Duration | None = None


class PolicyTable(StrictTable):
    """A policy, or an overlay on one."""

    steps: dict[Severity, StandardTable] = Field(default_factory=dict)
    inhibition: InhibitionTable = InhibitionTable()
    frequency: FrequencyTables = FrequencyTables()
    actions: dict[str, RuleTable] = Field(default_factory=dict)
    kinds: dict[FindingKind, KindTable] = Field(default_factory=dict)
    recoveries: dict[Recovery, KindTable] = Field(default_factory=dict)
    levels: dict[FaultLevel, LevelTable] = Field(default_factory=dict)
    ladder: LadderTable = LadderTable()
    xids: dict[Annotated[int, BeforeValidator(_code)], XidTable] = Field(default_factory=dict)
