"""Configuration tables of a site: its folders, registry, executor and collector."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from forewarn.features.records.column_names import ColumnNames
from forewarn.features.xid_catalogue import FATAL_XIDS
from forewarn.pipelines.config.toml_tables import (
    ColumnName,
    Count,
    Duration,
    StrictTable,
    check_distinct,
    parse_duration,
)
from forewarn.pipelines.runtime.executor import Executor, ExecutorKind

if TYPE_CHECKING:
    from forewarn.features.telemetry.export_columns import ExportReader
    from forewarn.features.telemetry.failure_evidence import FailureRules

__all__ = [
    "CmdbTable",
    "CollectorTable",
    "ExecutorTable",
    "FailuresTable",
    "RegistryTable",
    "SiteTable",
    "query_gpu_fields",
]


def query_gpu_fields(text: str) -> tuple[str, ...]:
    """Return the fields of `nvidia-smi --query-gpu`, of which `?` is one that is not known.

    Examples
    --------
    >>> query_gpu_fields("index, uuid,temperature.gpu")
    ('index', 'uuid', 'temperature.gpu')

    Raises
    ------
    ValueError
        If a field is no name.
    """
    fields = tuple(field.strip() for field in text.split(","))
    for field in fields:
        if not re.fullmatch(r"[a-z_0-9.]+|\?", field, re.IGNORECASE):
            raise ValueError(
                f"found the field {field!r}, expected names such as `index,uuid,temperature.gpu`"
            )
    return fields


def _as_fields(value: object) -> object:
    return query_gpu_fields(value) if isinstance(value, str) else value


QueryGpu = Annotated[tuple[str, ...], BeforeValidator(_as_fields)]


class SiteTable(StrictTable):
    """Folders and files of a scheduled site; relative paths start at the configuration file."""

    records: str = "records"
    lists: str = "lists"
    backtests: str = "backtests"
    raw: str = ""
    query_gpu: tuple[QueryGpu, ...] = ()
    prometheus: str = ""
    cmdb: str = ""
    repairs: str = ""
    metrics: str = ""
    inspections: str = ""
    accepted: str = ""


class RegistryTable(StrictTable):
    """Where experiments are tracked and models are registered."""

    store: Annotated[str, Field(min_length=1)] = "mlflow"
    experiment: Annotated[str, Field(min_length=1)] = "forewarn"
    model: Annotated[str, Field(min_length=1)] = "gpu-failure"


class ExecutorTable(StrictTable):
    """Where slices of work run."""

    kind: ExecutorKind = "threads"
    workers: Annotated[int, Field(ge=0, le=1024, strict=True)] = 0
    address: str = ""

    @property
    def executor(self) -> Executor:
        """Return the executor that pipelines use."""
        return Executor(self.kind, self.workers, self.address)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.address and self.kind != "dask":
            raise ValueError(
                f'`executor.address` is {self.address!r} but `kind` is "{self.kind}", expected '
                '"dask"'
            )
        return self


class _ExportTable(StrictTable):
    """How a table that another system exports is read."""

    columns: dict[ColumnName, ColumnName] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_distinct("columns", self.columns)
        return self


class CmdbTable(_ExportTable):
    """How the CMDB is read."""

    preset: Literal["auto", "none", "netbox", "servicenow"] = "auto"

    @property
    def reader(self) -> ExportReader:
        """Return what finds our columns in its header."""
        from forewarn.features.telemetry.export_columns import CMDB_EXPORTS, ExportReader

        names = ColumnNames.from_mapping(self.columns)
        return ExportReader(CMDB_EXPORTS, ("gpu_serial", "machine_id"), self.preset, names)


class TicketsTable(_ExportTable):
    """How repair tickets are read."""

    preset: Literal["auto", "none", "servicenow"] = "auto"

    @property
    def reader(self) -> ExportReader:
        """Return what finds our columns in their header."""
        from forewarn.features.telemetry.export_columns import TICKET_EXPORTS, ExportReader

        names = ColumnNames.from_mapping(self.columns)
        return ExportReader(TICKET_EXPORTS, ("gpu_serial",), self.preset, names)


class FailuresTable(StrictTable):
    """What counts as a GPU failure in addition to repair tickets."""

    xids: tuple[Count, ...] = FATAL_XIDS
    lost: bool = True
    restart_repairs: bool = True
    presumed_after: Duration = parse_duration("7d")

    @property
    def rules(self) -> FailureRules:
        """Return the rules as an argument of the features package."""
        from forewarn.features.telemetry.failure_evidence import FailureRules

        xids = frozenset(self.xids)
        return FailureRules(xids, self.lost, self.restart_repairs, self.presumed_after)


class CollectorTable(StrictTable):
    """The service that receives batches from agents."""

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
