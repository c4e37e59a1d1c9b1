"""Configuration tables for responses: pools, limits and costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.pipelines.config.toml_tables import Count, Duration, StrictTable, parse_duration
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.follow_up.external_drain import MAX_PATTERN_LENGTH
from forewarn.response.recovery.job_crash import JobAbilities, NoSpare
from forewarn.response.state.pool import Limits, Pool, PoolMode
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.rung import Rung
from forewarn.response.state.site_step import DEFAULT_TIMEOUTS, SiteStep
from forewarn.response.state.step import Step

__all__ = ["CostsTable", "KubernetesTable", "PoolTable", "RecoveryTable", "RespondTable"]

Pattern = Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_LENGTH)]
_LOOP_EVERY = 15 * MINUTE
_STEPS_BY_SCHEDULER = {"slurm": ("restart",), "kubernetes": ("reset", "restart")}
Part = Annotated[float, Field(ge=0.0, le=1.0, strict=True)]


class StepTable(StrictTable):
    """How the loop carries out a step on a drained machine."""

    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    scheduler: bool = False
    timeout: Duration | None = None
    needs_idle: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.command) == self.scheduler:
            raise ValueError("expected either `command` or `scheduler = true`")
        fields = {name for part in self.command for name in re.findall(r"\{(\w*)\}", part)}
        unknown = fields - {"machine", "gpu_serial", "action"}
        if unknown:
            raise ValueError(
                f"`command` of a step has {{{min(unknown)}}}, expected {{machine}}, {{gpu_serial}} "
                "or {action}"
            )
        return self


class PoolTable(StrictTable):
    """Machines of one owner. Without `partition` and `selector`, `NAME` is the partition."""

    partition: str = ""
    selector: str = ""
    mode: Literal["observe", "propose", "act"] = "observe"
    control: Part = 0.0
    machines: Annotated[int, Field(ge=0, le=10**9, strict=True)] = 0
    share: Part = 0.02
    rack: Count = 1
    job: Count = 1
    cause: Count = 5
    killed_jobs: Annotated[int, Field(ge=0, le=10**9, strict=True)] = 1
    avoided: Part = 0.25
    needs_spare: bool = False
    device_taints: bool = False
    replace: Literal["propose", "act"] = "propose"
    steps: dict[Literal["reset", "restart", "replace"], StepTable] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.partition and self.selector:
            raise ValueError("`partition` and `selector` exclude each other, expected one of them")
        if self.device_taints and self.steps:
            raise ValueError(
                "`device_taints` and `steps` exclude each other, expected one of them: a step "
                "needs the whole node"
            )
        if self.selector and not all("=" in term for term in self.selector.split(",")):
            raise ValueError(
                f"`selector` is {self.selector!r}, expected LABEL=VALUE, several joined by commas"
            )
        return self

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the selector matches the labels of a machine."""
        terms = [term.partition("=") for term in self.selector.split(",")]
        return bool(self.selector) and all(
            labels.get(label.strip()) == value.strip() for label, _, value in terms
        )


class CostsTable(StrictTable):
    """Costs of unplanned and planned stops of a job; used only for the score."""

    detection: Duration = parse_duration("10min")
    scheduling: Duration = parse_duration("10min")
    start: Duration = parse_duration("10min")
    checkpoint: Duration = parse_duration("60min")
    planned_restart: Duration = parse_duration("10min")


class RecoveryTable(StrictTable):
    """What the framework and the scheduler of jobs can do after an interruption."""

    rungs: tuple[Rung, ...] = (Rung.RESTART, Rung.REQUEUE)
    graceful: Annotated[bool, Field(strict=True)] = False
    rank_zero_needs_job: Annotated[bool, Field(strict=True)] = False
    without_spare: tuple[NoSpare, ...] = Field(default=(NoSpare.WAIT,), min_length=1)
    spare_wait: Duration = parse_duration("4h")
    unit: Count = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.abilities()
        except ValueError as error:
            raise ValueError(f"`respond.recovery`: {error}") from None
        return self

    def abilities(self) -> JobAbilities:
        """Return the abilities as an argument of the response package."""
        return JobAbilities(
            rungs=frozenset(self.rungs),
            rank_zero_needs_job=self.rank_zero_needs_job,
            graceful=self.graceful,
            without_spare=self.without_spare,
        )


class KubernetesTable(StrictTable):
    """How a Kubernetes cluster is reached and read."""

    kubeconfig: str = ""
    lease: Annotated[str, Field(pattern=r"^([a-z0-9-]{1,63}/[a-z0-9.-]{1,253})?$")] = ""
    rack_label: Annotated[str, Field(min_length=1)] = "forewarn.io/rack"
    switch_label: Annotated[str, Field(min_length=1)] = "network.topology.nvidia.com/leaf"
    system_namespaces: tuple[Pattern, ...] = (
        *("kube-*", "gpu-operator", "network-operator", "nvsentinel"),
    )
    drain_taints: tuple[Pattern, ...] = (
        *("node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"),
        *("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupt*", "*quarantine*"),
        *("*unhealthy*", "*maintenance*"),
    )
    problem_conditions: tuple[Pattern, ...] = ("*gpu*", "*xid*", "*nvlink*", "accelerated*")


class RespondTable(StrictTable):
    """How findings are processed. By default nothing is changed on any machine."""

    ledger: Annotated[str, Field(min_length=1)] = "sqlite:///ledger.db"
    lists: str = ""
    records: str = ""
    verdicts: str = ""
    diagnoses: tuple[str, ...] = ()
    inspections: str = ""
    job_folder: str = ""
    notices: str = ""
    diagnosis_timeout: Duration = parse_duration("5min")
    failures: str = ""
    driver: Literal["none", "slurm", "kubernetes"] = "none"
    slurm_conf: str = ""
    slurm_sudo: tuple[str, ...] = ()
    check_users: Annotated[str, Field(min_length=1)] = "root"
    command_timeout: Duration = parse_duration("15s")
    policy: tuple[str, ...] = ()
    every: Duration = parse_duration("1min")
    settle: Duration = parse_duration("15min")
    quiet: Duration = parse_duration("2min")
    many: Annotated[int, Field(ge=2, le=10**9, strict=True)] = 3
    max_age: Duration = parse_duration("24h")
    list_every: Duration = parse_duration("26h")
    drift_every: Duration = parse_duration("7d")
    known_late: Duration = parse_duration("1d")
    refill: Duration = parse_duration("1d")
    fleet_rate: Count | None = None
    first_day: Duration = parse_duration("1d")
    overrides: Count = 3
    freeze: tuple[tuple[str, str], ...] = ()
    salt: str = "forewarn"
    release: Literal["release", "keep"] = "release"
    check: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    check_timeout: Duration = parse_duration("10min")
    foreign_failures: tuple[Pattern, ...] = ("*gpu*", "*xid*", "*nvlink*", "*ecc*", "*hw*", "*rma*")
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, lt=65536, strict=True)] = 8471
    certificate: str = ""
    key: str = ""
    alerts: dict[str, Literal["tell", "avoid", "drain", "check", "reset", "restart"]] = Field(
        default_factory=dict
    )
    pools: dict[str, PoolTable] = Field(default_factory=dict)
    costs: CostsTable = CostsTable()
    recovery: RecoveryTable = RecoveryTable()
    kubernetes: KubernetesTable = KubernetesTable()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("`respond.certificate` and `respond.key` belong together")
        if self.job_folder and Path(self.job_folder).name != "{task}":
            raise ValueError(
                f"`respond.job_folder` is {self.job_folder!r}, expected a path that ends in "
                "'/{task}'"
            )
        acting = [name for name, table in self.pools.items() if table.mode != "observe"]
        if acting and self.driver == "none":
            raise ValueError(
                f"`respond.pools.{acting[0]}` has mode {self.pools[acting[0]].mode!r} and "
                "`respond.driver` is 'none', expected 'slurm' or 'kubernetes'"
            )
        tainting = [name for name, table in self.pools.items() if table.device_taints]
        if tainting and self.driver != "kubernetes":
            raise ValueError(
                f"`respond.pools.{tainting[0]}.device_taints` is true and `respond.driver` is "
                f"{self.driver!r}, expected 'kubernetes'"
            )
        without = [name for name, table in self.pools.items() if not table.selector]
        if without and self.driver == "kubernetes":
            raise ValueError(
                f"`respond.pools.{without[0]}` has no `selector`, expected labels of nodes such as "
                "'pool=train'"
            )
        if self.kubernetes.lease and self.ledger.startswith("sqlite"):
            raise ValueError(
                "`respond.kubernetes.lease` needs a ledger that several responders reach, expected "
                f"PostgreSQL, found {self.ledger!r}"
            )
        self._check_steps()
        if any(end <= begin for begin, end in self.frozen):
            raise ValueError("`respond.freeze` has a span that ends before it begins")
        return self

    def _check_steps(self) -> None:
        for name, table in self.pools.items():
            if table.steps and not self.check:
                raise ValueError(
                    f"`respond.pools.{name}.steps` has commands and `respond.check` is empty, "
                    "expected a check of the machine after a step"
                )
            by_scheduler = {step for step, row in table.steps.items() if row.scheduler}
            refused = by_scheduler - set(_STEPS_BY_SCHEDULER.get(self.driver, ()))
            if refused:
                raise ValueError(
                    f"`respond.pools.{name}.steps.{min(refused)}` has `scheduler = true`, "
                    "expected a command: Slurm carries out `restart`, Kubernetes `reset` and "
                    "`restart`"
                )

    @property
    def frozen(self) -> tuple[tuple[Nanoseconds, Nanoseconds], ...]:
        """Spans without actions, nanoseconds since 1970 UTC."""
        return tuple((_moment(begin), _moment(end)) for begin, end in self.freeze)

    def core(self) -> ResponseSettings:
        """Return these settings as arguments of the response package."""
        return ResponseSettings(
            group_wait=Nanoseconds(self.settle),
            quiet=Nanoseconds(self.quiet),
            many=self.many,
            max_age=Nanoseconds(self.max_age),
            known_late=Nanoseconds(self.known_late),
            salt=self.salt,
            overrides_a_day=self.overrides,
            first_day=Nanoseconds(self.first_day),
            list_every=Nanoseconds(self.list_every),
            drift_every=Nanoseconds(self.drift_every),
            keep_drained=self.release == "keep",
            loop_every=Nanoseconds(max(_LOOP_EVERY, 3 * self.every)),
        )

    def pool(self, name: str) -> Pool:
        """Return a pool as an argument of the response package."""
        table = self.pools[name]
        limits = Limits(
            machines=table.machines or None,
            share=table.share,
            rack=table.rack,
            job=table.job,
            cause=table.cause,
            fleet_rate=self.fleet_rate,
            killed_jobs=table.killed_jobs,
            avoided=table.avoided,
            refill=Nanoseconds(self.refill),
        )
        steps = {Step(step): _site_step(Step(step), row) for step, row in table.steps.items()}
        return Pool(
            *(name, PoolMode(table.mode), table.control, limits),
            steps=steps,
            replaces=table.replace == "act",
            needs_spare=table.needs_spare,
        )


def _site_step(step: Step, table: StepTable) -> SiteStep:
    timeout = DEFAULT_TIMEOUTS[step] if table.timeout is None else Nanoseconds(table.timeout)
    return SiteStep(table.command, timeout, table.needs_idle)


def _moment(text: str) -> Nanoseconds:
    try:
        return Nanoseconds(parse_moment(text))
    except (ValueError, OverflowError):
        raise ValueError(
            f"`respond.freeze`: found {text!r}, expected a date or time such as 2025-12-24"
        ) from None
