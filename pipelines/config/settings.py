"""The settings: one TOML file, every key checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    Field,
    ValidationError,
    model_validator,
)

from forewarn.features.time_units import Nanoseconds, RecordCount
from forewarn.pipelines.config.agent_policy import CollectionPolicy
from forewarn.pipelines.config.console_table import ConsoleTable
from forewarn.pipelines.config.message_tables import MessagesTable, ReceiverName
from forewarn.pipelines.config.prediction_tables import (
    DEFAULT_COLUMNS,
    EnsemblesTable,
    EvaluationTable,
    FeaturesTable,
    GateTable,
    ListTable,
    ModelsTable,
    RecordsTable,
    TrainingTable,
    WindowsTable,
)
from forewarn.pipelines.config.respond_tables import RespondTable
from forewarn.pipelines.config.site_tables import (
    CmdbTable,
    CollectorTable,
    ExecutorTable,
    FailuresTable,
    RegistryTable,
    SiteTable,
    TicketsTable,
)
from forewarn.pipelines.config.toml_tables import (
    Duration,
    Positive,
    Seed,
    SettingsError,
    StrictTable,
    describe_validation_error,
    parse_duration,
    read_toml,
)

if TYPE_CHECKING:
    from forewarn.features.detection.metric_limits import MetricLimits
    from forewarn.features.prediction.feature_plan import FeaturePlan
    from forewarn.models.detection.detection_rules import DetectionRules

__all__ = ["Settings", "SettingsError", "load_settings", "parse_duration"]

_MAX_SPAN = parse_duration("36000d")


class MetricTable(StrictTable):
    """A machine metric and the limits that it is scaled by."""

    name: str
    low: float = 0.0
    high: float = 100.0
    scale: Literal["linear", "log"] = "linear"
    floor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.02
    kind: Literal["gauge", "counter"] = "gauge"
    role: Literal["work", "wait", "traffic", "temperature", "other"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"`low` is {self.low:g} and `high` {self.high:g}, expected low < high")
        if self.scale == "log" and self.low < 0.0:
            raise ValueError(f"`low` is {self.low:g}, expected 0 or more if `scale` is log")
        return self

    @property
    def limits(self) -> MetricLimits:
        """Return the limits as an argument of the features package."""
        from forewarn.features.detection.metric_limits import MetricLimits
        from forewarn.features.detection.metric_role import guess_role

        log, counter = self.scale == "log", self.kind == "counter"
        role = self.role or guess_role(self.name)
        return MetricLimits(self.name, self.low, self.high, log, self.floor, counter, role)


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


_MIN_CONTINUITY = 3  # samples
_BLOCKS_PER_CONTINUITY = 4  # blocks of the machine baseline per continuity


class DetectionTable(StrictTable):
    """Metrics and parameters of faulty-machine detection."""

    interval: Duration = parse_duration("1s")
    window: Annotated[int, Field(gt=1, strict=True)] = 8
    stride: Literal[1] = 1
    continuity: Duration = parse_duration("4min")
    metrics: Annotated[tuple[MetricTable, ...], Field(min_length=1)] = Field(
        default_factory=_metrics
    )
    activity: str = "gpu_duty_cycle"
    false_alarms: Positive = 0.02
    joint_min_tasks: Annotated[int, Field(ge=1, strict=True)] = 20
    mode: Literal["forewarn", "minder"] = "forewarn"
    distance: Literal["euclidean", "manhattan", "chebyshev"] = "euclidean"
    seed: Seed = 0

    @property
    def rules(self) -> DetectionRules:
        """Return the parameters as an argument of the models package."""
        from forewarn.models.detection.detection_rules import DetectionRules

        continuity = self.continuity // self.interval
        block = max(continuity // _BLOCKS_PER_CONTINUITY, 1)
        window = self.window if self.mode == "minder" else min(self.window, continuity)
        return DetectionRules(window, continuity, block, self.mode, self.distance)

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [metric.name for metric in self.metrics]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"`metrics` names {twice!r} twice")
        if self.continuity < _MIN_CONTINUITY * self.interval:
            factor = f"{self.continuity / self.interval:.3g} times `interval`"
            raise ValueError(f"`continuity` is {factor}; expected at least {_MIN_CONTINUITY} times")
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


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Rename the texts of a value and of its lists."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


class Settings(StrictTable):
    """The whole configuration; every key has a default (formats.md, section 2)."""

    records: RecordsTable = RecordsTable()
    windows: WindowsTable = WindowsTable()
    features: FeaturesTable = FeaturesTable(**DEFAULT_COLUMNS)  # type: ignore[arg-type]  # of six kinds
    training: TrainingTable = TrainingTable()
    models: ModelsTable = ModelsTable()
    ensembles: EnsemblesTable = EnsemblesTable()
    evaluation: EvaluationTable = EvaluationTable()
    detection: DetectionTable = Field(default_factory=DetectionTable)
    watch: WatchTable = WatchTable()
    list: ListTable = ListTable()
    site: SiteTable = SiteTable()
    cmdb: CmdbTable = CmdbTable()
    tickets: TicketsTable = TicketsTable()
    registry: RegistryTable = RegistryTable()
    gate: GateTable = GateTable()
    failures: FailuresTable = FailuresTable()
    collection: CollectionPolicy = CollectionPolicy()
    collector: CollectorTable = CollectorTable()
    respond: RespondTable = RespondTable()
    console: ConsoleTable = ConsoleTable()
    messages: dict[ReceiverName, MessagesTable] = Field(default_factory=dict)
    executor: ExecutorTable = ExecutorTable()

    @model_validator(mode="before")
    @classmethod
    def _use_our_names(cls, values: Any) -> Any:
        """Take a column that `[features]` calls by its name in the data by our name."""
        if not isinstance(values, dict):
            return values
        records, features = values.get("records"), values.get("features")
        columns = records.get("columns") if isinstance(records, dict) else None
        if not isinstance(columns, dict) or not isinstance(features, dict):
            return values
        ours = {str(name): our for our, name in columns.items() if name not in columns}
        return values | {"features": {key: _renamed(item, ours) for key, item in features.items()}}

    @model_validator(mode="after")
    def _check(self) -> Self:
        windows = self.windows
        reach = max(windows.length * max(self.features.history, default=1), windows.horizon)
        if max(reach, windows.step) * self.records.interval > _MAX_SPAN:
            raise ValueError(
                "`windows` and `features.history` span over a hundred years, expected less"
            )
        members = {*self.ensembles.parallel, *(name for name, _ in self.ensembles.cascade)}
        unknown = sorted(members.difference(self.models.names))
        if unknown:
            key = "parallel" if unknown[0] in self.ensembles.parallel else "cascade"
            raise ValueError(
                f"`ensembles.{key}` names {unknown[0]!r}, expected one of "
                f"{', '.join(self.models.names)}, or a name that is in `models.plugins`"
            )
        choices = {"parallel", "cascade", *members}
        if self.training.select_by not in choices:
            raise ValueError(
                f"`training.select_by` is {self.training.select_by!r}, "
                f"expected one of {', '.join(sorted(choices))}"
            )
        return self

    @property
    def horizon(self) -> Nanoseconds:
        """Time after an instance in which a failure makes its label positive."""
        return Nanoseconds(self.windows.horizon * self.records.interval)

    @property
    def step(self) -> Nanoseconds:
        """Time between two instances of a GPU."""
        return Nanoseconds(self.windows.step * self.records.interval)

    def plan(self, columns: set[str]) -> tuple[FeaturePlan, tuple[str, ...]]:
        """Return the feature plan for records with these columns, and notes.

        Raises
        ------
        SettingsError
            If the configuration names a peer group that the records do not have.
        """
        # Imported here: a collector reads a configuration too, and computes no features.
        from forewarn.features.prediction.feature_plan import FeaturePlan

        table = self.features
        readings = {*table.kinds.names} - {*table.categorical}
        for name in table.peers:
            if name in readings:
                raise SettingsError(f"`features.peers` names `{name}`, expected a text column.")
        absent = [name for name in table.peers if name not in columns]
        if absent and "peers" in table.model_fields_set:
            raise SettingsError(
                f"`features.peers` names `{absent[0]}`; the records have no such column."
            )
        notes = [f"no peers by `{name}`: the records have no such column" for name in absent]
        residuals = tuple(pair for pair in table.residuals if set(pair) <= set(table.float))
        if len(residuals) < len(table.residuals):
            notes.append("default residuals ignored: their columns are not in `features.float`")
        plan = FeaturePlan(
            kinds=table.kinds,
            window_records=RecordCount(self.windows.length),
            interval=Nanoseconds(self.records.interval),
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
        raise SettingsError(f"{name}: {describe_validation_error(error)}.") from None


def load_settings(path: Path | None) -> Settings:
    """Read a configuration file; without one every key has its default.

    Raises
    ------
    SettingsError
        If the file cannot be read, is not TOML, or has an unknown key or an invalid value.
    """
    if path is None:
        return Settings()
    return parse_settings(read_toml(path), name=str(path))
