"""The configuration: one TOML file, every key checked, nothing read from anywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    model_validator,
)

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.prediction.measurement import Plan
from forewarn.features.records.table import FAILURE, SERIAL, TIMESTAMP, FeatureKinds
from forewarn.features.telemetry.failure_evidence import FailureRules
from forewarn.features.telemetry.rows import COUNTERS, GAUGES
from forewarn.features.xid_catalogue import FATAL_XIDS
from forewarn.models.prediction.catalogue import MODEL_NAMES
from forewarn.pipelines.config.agent_policy import Collection
from forewarn.pipelines.config.toml_tables import (
    Duration,
    SettingsError,
    StrictTable,
    first_problem,
    parse_duration,
    read_toml,
)

__all__ = ["Settings", "SettingsError", "load_settings", "parse_duration"]

Share = Annotated[float, Field(gt=0.0, le=1.0, strict=True)]
Positive = Annotated[float, Field(gt=0.0, strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=10**9, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
_LONGEST = parse_duration("36000d")


def _model_name(name: str) -> str:
    if name not in MODEL_NAMES:
        raise ValueError(f"expected one of {', '.join(MODEL_NAMES)}")
    return name


ModelName = Annotated[str, AfterValidator(_model_name)]


class RecordsTable(StrictTable):
    """How records come."""

    interval: Duration = parse_duration("10min")


class WindowsTable(StrictTable):
    """How instances are cut, in records."""

    length: Count = 18
    horizon: Count = 144
    step: Count = 10


_KINDS: dict[str, tuple[str, ...]] = {
    "categorical": ("gpu_type", "driver_version", "data_center"),
    "float": (*GAUGES, "pcie_link_width"),
    "counter": COUNTERS,
    "binary": (),
    "code": ("xid",),
    "date": ("expiration_date",),
}


class FeaturesTable(StrictTable):
    """Which columns are features. Given at all, a kind left out is empty."""

    categorical: tuple[str, ...] = ()
    float: tuple[str, ...] = ()
    counter: tuple[str, ...] = ()
    binary: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    date: tuple[str, ...] = ()
    history: tuple[Count, ...] = (4, 16, 56)
    peers: tuple[str, ...] = ("machine_id", "gpu_type")
    residuals: tuple[tuple[str, str], ...] = (
        ("temperature_gpu", "power_draw"),
        ("power_draw", "utilization_gpu"),
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [name for kind in _KINDS for name in getattr(self, kind)]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(
                f"`features` names column `{doubled[0]}` twice, expected one kind for each"
            )
        kept = sorted({SERIAL, TIMESTAMP, FAILURE} & {*names, *self.peers})
        if kept:
            raise ValueError(f"`features` names `{kept[0]}`, expected a column that says something")
        if not (self.float or self.counter or self.binary or self.code):
            raise ValueError(
                "`features` names no column that changes over time, expected at least one"
            )
        if "residuals" in self.model_fields_set:
            for name in (name for pair in self.residuals for name in pair):
                if name not in self.float:
                    raise ValueError(
                        f"`features.residuals` names `{name}`, expected a column of `float`"
                    )
        return self

    @property
    def kinds(self) -> FeatureKinds:
        """The columns by kind."""
        return FeatureKinds(**{kind: getattr(self, kind) for kind in _KINDS})


class TrainingTable(StrictTable):
    """When and on what models are trained."""

    retrain_every: Duration = parse_duration("3d")
    lengths: tuple[Duration, ...] = tuple(map(parse_duration, ("9d", "12d", "15d")))
    negatives_per_positive: Annotated[float, Field(ge=0.0, strict=True, allow_inf_nan=False)] = 1.0
    positive_weight: Positive = 1.0
    cascade_positive_weight: Positive = 10.0
    select_by: str = "parallel"
    select_over: Count = 1
    seed: Seed = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.lengths:
            raise ValueError("`training.lengths` is empty, expected at least one duration")
        return self


class EnsemblesTable(StrictTable):
    """Which models decide together."""

    parallel: Annotated[tuple[ModelName, ...], Field(min_length=1)] = ("cnn", "mlp", "gbdt")
    cascade: Annotated[tuple[tuple[ModelName, Share], ...], Field(min_length=1)] = (
        ("cnn", 0.05),
        ("mlp", 0.02),
    )


class EvaluationTable(StrictTable):
    """How scores are judged on the paper's protocol."""

    k: Share = 0.02
    negatives_per_positive: Positive = 8.0
    threshold: Annotated[float, Field(ge=0.0, le=1.0)] = 0.7


class ListTable(StrictTable):
    """The daily list."""

    share: Share = 0.003


class MetricTable(StrictTable):
    """One machine metric and the limits it is scaled by."""

    name: str
    low: float = 0.0
    high: float = 100.0
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"`low` is {self.low:g} and `high` {self.high:g}, expected low < high")
        if self.scale == "log" and self.low < 0.0:
            raise ValueError(f"`low` is {self.low:g}, expected 0 or more where `scale` is log")
        return self

    @property
    def limits(self) -> MetricLimits:
        """The same as the core takes it."""
        return MetricLimits(self.name, self.low, self.high, self.scale == "log")


def _metrics() -> tuple[MetricTable, ...]:
    percent = ("cpu_usage", "gpu_duty_cycle")
    active = ("graphics_engine_activity", "tensor_core_activity")
    return (
        MetricTable(name="pfc_tx_packet_rate", high=20000.0, scale="log"),
        *(MetricTable(name=name) for name in percent),
        MetricTable(name="power_draw", high=1000.0),
        *(MetricTable(name=name) for name in active),
        MetricTable(name="nvlink_bandwidth", high=900.0),
    )


class DetectionTable(StrictTable):
    """Machine metrics of a running task."""

    interval: Duration = parse_duration("1s")
    window: Annotated[int, Field(gt=1, strict=True)] = 8
    stride: Literal[1] = 1
    continuity: Duration = parse_duration("4min")
    metrics: Annotated[tuple[MetricTable, ...], Field(min_length=1)] = Field(
        default_factory=_metrics
    )
    activity: str = "gpu_duty_cycle"
    false_alarms: Positive = 0.02
    mode: Literal["forewarn", "minder"] = "forewarn"
    distance: Literal["euclidean", "manhattan", "chebyshev"] = "euclidean"
    seed: Seed = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [metric.name for metric in self.metrics]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"`metrics` names {twice!r} twice")
        if self.continuity < self.interval:
            raise ValueError("`continuity` is shorter than `interval`, expected several of them")
        return self


class WatchTable(StrictTable):
    """How running tasks are watched."""

    every: Duration = parse_duration("8min")
    span: Duration = parse_duration("15min")
    selector: str = ""
    tasks: str = ""
    task_label: str = "task"
    machine_label: str = "machine"
    group_label: str = "group"


class FailuresTable(StrictTable):
    """What counts as a failure of a GPU beside a repair ticket."""

    xids: tuple[Count, ...] = FATAL_XIDS
    lost: bool = True
    restart_repairs: bool = True

    @property
    def rules(self) -> FailureRules:
        """The same as the core takes it."""
        return FailureRules(frozenset(self.xids), self.lost, self.restart_repairs)


class CollectorTable(StrictTable):
    """The service that takes what agents send."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, lt=65536, strict=True)] = 8470
    certificate: str = ""
    key: str = ""
    max_batch_mib: Count = 8
    publish_every: Duration = parse_duration("5s")
    hosts: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("`collector.certificate` and `collector.key` belong together")
        return self


class RegistryTable(StrictTable):
    """Where experiments are tracked and predictors registered."""

    store: Annotated[str, Field(min_length=1)] = "mlflow"
    experiment: Annotated[str, Field(min_length=1)] = "forewarn"
    model: Annotated[str, Field(min_length=1)] = "gpu-failure"


class SiteTable(StrictTable):
    """Where a scheduled site keeps its things; a path that is relative begins at the file."""

    records: str = "records"
    lists: str = "lists"
    raw: str = ""
    prometheus: str = ""
    cmdb: str = ""
    repairs: str = ""


class GateTable(StrictTable):
    """What a challenger has to show before it is promoted."""

    margin: Share = 0.25
    champion_max_age: Duration = parse_duration("9d")
    drift: Positive = 0.25
    missing: Share = 0.2


class Settings(StrictTable):
    """The whole configuration; every key has a default (docs/formats.md, section 2)."""

    records: RecordsTable = RecordsTable()
    windows: WindowsTable = WindowsTable()
    features: FeaturesTable = FeaturesTable(**_KINDS)  # type: ignore[arg-type]  # of six kinds
    training: TrainingTable = TrainingTable()
    ensembles: EnsemblesTable = EnsemblesTable()
    evaluation: EvaluationTable = EvaluationTable()
    detection: DetectionTable = Field(default_factory=DetectionTable)
    watch: WatchTable = WatchTable()
    list: ListTable = ListTable()
    site: SiteTable = SiteTable()
    registry: RegistryTable = RegistryTable()
    gate: GateTable = GateTable()
    failures: FailuresTable = FailuresTable()
    collection: Collection = Collection()
    collector: CollectorTable = CollectorTable()

    @model_validator(mode="after")
    def _check(self) -> Self:
        windows = self.windows
        reach = max(windows.length * max(self.features.history, default=1), windows.horizon)
        if max(reach, windows.step) * self.records.interval > _LONGEST:
            raise ValueError(
                "`windows` and `features.history` reach over a hundred years, expected less"
            )
        members = {*self.ensembles.parallel, *(name for name, _ in self.ensembles.cascade)}
        choices = {"parallel", "cascade", *members}
        if self.training.select_by not in choices:
            raise ValueError(
                f"`training.select_by` is {self.training.select_by!r}, "
                f"expected one of {', '.join(sorted(choices))}"
            )
        return self

    @property
    def horizon(self) -> int:
        """Nanoseconds after an instance in which a failure counts."""
        return self.windows.horizon * self.records.interval

    @property
    def step(self) -> int:
        """Nanoseconds between two instances of a GPU."""
        return self.windows.step * self.records.interval

    def plan(self, columns: set[str]) -> tuple[Plan, tuple[str, ...]]:
        """Return what is measured of records that have these columns, and notes.

        Raises
        ------
        SettingsError
            If a group of peers was asked for that the records do not have.
        """
        table = self.features
        asked = table.model_fields_set
        readings = {*table.kinds.names} - {*table.categorical}
        for name in table.peers:
            if name in readings:
                raise SettingsError(f"`features.peers` names `{name}`, expected a text column.")
        absent = [name for name in table.peers if name not in columns]
        if absent and "peers" in asked:
            raise SettingsError(
                f"`features.peers` names `{absent[0]}`, found no such column in the records."
            )
        notes = [f"no peers by `{name}`: the records have no such column" for name in absent]
        residuals = tuple(pair for pair in table.residuals if set(pair) <= set(table.float))
        if len(residuals) < len(table.residuals):
            notes.append("default residuals left out: their columns are not in `features.float`")
        plan = Plan(
            kinds=table.kinds,
            length=self.windows.length,
            interval=self.records.interval,
            history=table.history,
            peers=tuple(name for name in table.peers if name in columns),
            residuals=residuals,
        )
        return plan, tuple(notes)


def parse_settings(values: dict[str, Any], *, name: str) -> Settings:
    """Check a configuration that was read from `name`."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{name}: {first_problem(error)}.") from None


def load_settings(path: Path | None) -> Settings:
    """Read a configuration file; without one every key has its default.

    Raises
    ------
    SettingsError
        If the file cannot be read, is no TOML, or has an unknown key or a wrong value.
    """
    if path is None:
        return Settings()
    return parse_settings(read_toml(path), name=str(path))
