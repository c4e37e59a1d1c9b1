"""TOML tables of the configuration for failure prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from forewarn.evaluation.prediction.metrics.action_costs import ACTIONS, ActionCosts
from forewarn.features.records.column_names import ColumnNames
from forewarn.features.records.record_table import FAILURE, SERIAL, TIMESTAMP, FeatureKinds
from forewarn.features.telemetry.telemetry_rows import COUNTERS, GAUGES
from forewarn.models.prediction.model_names import MODEL_NAMES, RESERVED_NAMES, START_PREFIX
from forewarn.pipelines.config.toml_tables import (
    ColumnName,
    Count,
    Duration,
    Positive,
    Seed,
    Share,
    StrictTable,
    check_distinct,
    parse_duration,
)

if TYPE_CHECKING:
    from forewarn.models.prediction.hyperparameters import Hyperparameter
    from forewarn.models.prediction.model_catalogue import ModelCatalogue

__all__ = [
    "DEFAULT_COLUMNS",
    "EnsemblesTable",
    "EvaluationTable",
    "FeaturesTable",
    "GateTable",
    "ListTable",
    "ModelsTable",
    "RecordsTable",
    "TrainingTable",
    "WindowsTable",
]


class RecordsTable(StrictTable):
    """Interval of the records, and names of their columns in the data."""

    interval: Duration = parse_duration("10min")
    columns: dict[ColumnName, ColumnName] = Field(default_factory=dict)

    @property
    def names(self) -> ColumnNames:
        """The names of the columns in the data."""
        return ColumnNames.from_mapping(self.columns)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_distinct("records.columns", self.columns)
        return self


class WindowsTable(StrictTable):
    """How instances are cut; all values in records."""

    length: Count = 18
    horizon: Count = 144
    step: Count = 10


DEFAULT_COLUMNS: dict[str, tuple[str, ...]] = {
    "categorical": ("gpu_type", "driver_version", "data_center"),
    "float": (*GAUGES, "pcie_link_width"),
    "counter": COUNTERS,
    "binary": (),
    "code": ("xid",),
    "date": ("expiration_date",),
}


class FeaturesTable(StrictTable):
    """Columns used as features. If the table is given, kinds that it omits are empty."""

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
        names = [name for kind in DEFAULT_COLUMNS for name in getattr(self, kind)]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(
                f"`features` names column `{doubled[0]}` twice, expected one kind per column"
            )
        reserved = sorted({SERIAL, TIMESTAMP, FAILURE} & {*names, *self.peers})
        if reserved:
            raise ValueError(f"`features` names `{reserved[0]}`, which cannot be a feature")
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
        return FeatureKinds(**{kind: getattr(self, kind) for kind in DEFAULT_COLUMNS})


class TrainingTable(StrictTable):
    """When models are trained, and on which data."""

    retrain_every: Duration = parse_duration("3d")
    lengths: tuple[Duration, ...] = tuple(map(parse_duration, ("9d", "12d", "15d")))
    negatives_per_positive: Annotated[float, Field(ge=0.0, strict=True, allow_inf_nan=False)] = 1.0
    positive_weight: Positive = 1.0
    cascade_positive_weight: Positive = 10.0
    select_by: str = "parallel"
    select_over: Count = 1
    strategy: Literal["variable", "sliding", "expanding"] = "expanding"
    half_life: Annotated[float, Field(ge=0.0, strict=True, allow_inf_nan=False)] = 4.0
    tree_negatives: Annotated[float, Field(ge=1.0, strict=True, allow_inf_nan=False)] = 50.0
    max_instances: Annotated[int, Field(ge=0, strict=True)] = 50_000
    seed: Seed = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.lengths:
            raise ValueError("`training.lengths` is empty, expected at least one duration")
        return self


ModelName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class ModelsTable(StrictTable):
    """Plug-in models that may be loaded, and hyperparameters: `[models.NAME]`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, bool | int | float | str]] = Field(init=False)

    plugins: tuple[ModelName, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all models that can be trained."""
        return (*MODEL_NAMES, *self.plugins)

    @property
    def hyperparameters(self) -> dict[str, dict[str, Hyperparameter]]:
        """The hyperparameters that are set, by model."""
        return {name: dict(values) for name, values in (self.__pydantic_extra__ or {}).items()}

    @property
    def catalogue(self) -> ModelCatalogue:
        """The built-in models and the installed plug-ins among the allowed ones."""
        # Imported here: a collector reads a configuration too, and loads no models.
        from forewarn.models.prediction.model_catalogue import BUILTIN, ModelCatalogue
        from forewarn.pipelines.config.model_plugins import find_plugins

        return ModelCatalogue(find_plugins(self.plugins)) if self.plugins else BUILTIN

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.plugins:
            if name in RESERVED_NAMES or name.startswith(START_PREFIX):
                raise ValueError(f"`models.plugins` names `{name}`, expected a name not in use")
        for name in self.hyperparameters:
            if name not in self.names:
                raise ValueError(
                    f"`models.{name}` names no model, expected one of {', '.join(self.names)}, "
                    "or a name that is in `models.plugins`"
                )
        return self


class EnsemblesTable(StrictTable):
    """Models that are combined, and how."""

    parallel: Annotated[tuple[ModelName, ...], Field(min_length=1)] = ("cnn", "mlp", "gbdt")
    cascade: Annotated[tuple[tuple[ModelName, Share], ...], Field(min_length=1)] = (
        ("cnn", 0.05),
        ("mlp", 0.02),
    )
    rules: Annotated[float, Field(ge=0.0, strict=True, allow_inf_nan=False)] = 0.0
    linear: Annotated[float, Field(ge=0.0, le=1.0, strict=True)] = 0.25


class EvaluationTable(StrictTable):
    """How scores are evaluated by the paper's protocol."""

    k: Share = 0.02
    negatives_per_positive: Positive = 8.0
    threshold: Annotated[float, Field(ge=0.0, le=1.0)] = 0.7


class ListTable(StrictTable):
    """The daily at-risk list."""

    share: Share = 0.003
    failure_cost_gpu_hours: Positive | None = None
    prevented_share: Share | None = None
    avoid_cost_gpu_hours: Positive | None = None
    check_cost_gpu_hours: Positive | None = None
    move_cost_gpu_hours: Positive | None = None
    drain_cost_gpu_hours: Positive | None = None

    @property
    def costs(self) -> ActionCosts | None:
        """Costs of failures and actions; None if none are set."""
        if self.failure_cost_gpu_hours is None:
            return None
        prices = [(name, getattr(self, f"{name}_cost_gpu_hours")) for name in ACTIONS]
        known = [(name, cost) for name, cost in prices if cost is not None]
        share = 1.0 if self.prevented_share is None else self.prevented_share
        return ActionCosts(
            self.failure_cost_gpu_hours, share, tuple(sorted(known, key=lambda price: price[1]))
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        prices = [f"{name}_cost_gpu_hours" for name in ACTIONS]
        named = [name for name in prices if getattr(self, name) is not None]
        if self.failure_cost_gpu_hours is None and (named or self.prevented_share is not None):
            key = named[0] if named else "prevented_share"
            raise ValueError(
                f"`list.{key}` is set but `list.failure_cost_gpu_hours` is not; both are needed to "
                "weigh costs"
            )
        if self.failure_cost_gpu_hours is not None and not named:
            raise ValueError(
                "`list.failure_cost_gpu_hours` is set but no cost of an action is; expected "
                "`list.drain_cost_gpu_hours` or that of another action"
            )
        return self


class GateTable(StrictTable):
    """Requirements for promoting a challenger."""

    margin: Share = 0.25
    champion_max_age: Duration = parse_duration("9d")
    drift: Positive = 0.25
    missing: Share = 0.2
