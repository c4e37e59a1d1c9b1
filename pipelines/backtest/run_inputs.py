"""Inputs of an MLflow run: configuration and code as parameters, records as a dataset."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forewarn.features.records.record_table import FAILURE, MACHINE, SERIAL, SLOT, TIMESTAMP
from forewarn.features.time_units import date_of
from forewarn.models.prediction.hyperparameters import hyperparameters_of
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.config.setting_values import all_values
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder
from forewarn.pipelines.storage.records.consistent_read import FileStamp
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.registry.mlflow_experiment import Experiment

if TYPE_CHECKING:
    from mlflow.entities import Dataset

__all__ = ["configuration_params", "log_inputs", "records_dataset"]

# The tables that determine a model and its evaluation; the others say where a site runs.
_TABLES = (
    *("records", "windows", "features", "training", "models", "ensembles"),
    *("evaluation", "list", "gate"),
)


def log_inputs(
    experiment: Experiment,
    run: str,
    job: Job,
    records: WindowedRecords,
    params: Mapping[str, object],
    *,
    context: str,
) -> None:
    """Log configuration, code and records of a run, and `configuration.json` as artefact.

    Parameters
    ----------
    experiment : Experiment
    run : str
    job : Job
    records : WindowedRecords
        What was read.
    params : mapping
        Further parameters.
    context : str
        What the records are for: "training" or "evaluation".
    """
    configuration = configuration_params(job.settings) | _hyperparameters(job)
    code, models = _code_params(), ",".join(job.walk_settings.models)
    experiment.log(run, params={**configuration, **code, "models": models, **params})
    experiment.tag(run, {"mlflow.source.git.commit": str(code.get("git_commit", ""))})
    experiment.log_dataset(run, records_dataset(records), context)
    with scratch_folder() as folder:  # MLflow truncates long parameters
        text = json.dumps(configuration, indent=1) + "\n"
        (folder / "configuration.json").write_text(text, encoding="utf-8")
        experiment.attach(run, folder)


def configuration_params(settings: Settings) -> dict[str, object]:
    """Return every key that determines a model or its evaluation by `table.key`, as in TOML."""
    values = all_values(settings)
    chosen = {key: value for key, value in values.items() if key.split(".")[0] in _TABLES}
    return {key: _as_text(value) for key, value in sorted(chosen.items())}


def _hyperparameters(job: Job) -> dict[str, object]:
    """Return the hyperparameters of all trained models by `models.NAME.KEY`."""
    params: dict[str, object] = {}
    walked = job.walk_settings
    for name in dict.fromkeys((*walked.models, *walked.voters)):
        declared = hyperparameters_of(job.catalogue.class_of(name))
        values = {key: parameter.default for key, parameter in declared.items()}
        values |= walked.recipe.hyperparameters.get(name, {})
        params |= {f"models.{name}.{key}": value for key, value in values.items()}
    return params


def _as_text(value: object) -> object:
    """Return a list as text; MLflow spreads JSON over many lines."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return json.dumps(value) if isinstance(value, list | dict) else value


@cache
def _code_params() -> dict[str, object]:
    """Return the version of the code and, in a checkout, commit and lock file digest."""
    root = Path(__file__).resolve().parents[2]
    facts: dict[str, object] = {"forewarn": version("forewarn")}
    lock = root / "requirements.lock"
    if lock.exists():
        facts["lock"] = hashlib.blake2b(lock.read_bytes(), digest_size=8).hexdigest()
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        facts["git_commit"] = done.stdout.strip() or "unknown"
    return facts


def records_dataset(records: WindowedRecords) -> Dataset:
    """Return the records of a training or backtest as an MLflow dataset.

    Its digest is of the content of all files of the span, and of the failures known at its end.
    `mlflow.data.get_source` finds the folder again.
    """
    from mlflow.entities import Dataset

    folder, fleet, survey = records.store.folder, records.fleet, records.survey
    local = isinstance(folder, Path)
    columns = _columns(records)
    counts = {
        "num_rows": survey.n_records,
        "num_elements": survey.n_records * len(columns),
        "first": format_iso(fleet.first),
        "last": format_iso(fleet.last),
        "gpus": len(fleet.serials),
        "failures": len(fleet.failures),
        "instances": len(survey.instances),
        "positives": int((survey.instances.label == 1).sum()),
    }
    return Dataset(
        name=folder.name or "records",
        digest=_digest(records),
        source_type="local" if local else str(folder).partition("://")[0],
        source=json.dumps({"uri": str(folder.resolve() if isinstance(folder, Path) else folder)}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps(counts),
    )


def _columns(records: WindowedRecords) -> list[dict[str, Any]]:
    """Return name and type of each column that a model or its evaluation uses."""
    store = records.store
    used = {*store.kinds.names, *store.groups, SERIAL, TIMESTAMP, FAILURE, MACHINE, SLOT}
    path = [path for _, path in store.files()][-1]
    schema = ParquetSource(path, store.names).schema
    return [
        {"name": field.name, "type": _type_name(field.type), "required": True}
        for field in schema
        if field.name in used
    ]


def _type_name(kind: pa.DataType) -> str:
    """Return MLflow's name of a type."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "datetime"
    if pa.types.is_integer(kind):
        return "long"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "double"
    return "boolean" if pa.types.is_boolean(kind) else "string"


def _digest(records: WindowedRecords) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in _files(records):
        digest.update(f"{path.parent.name}/{path.name}".encode())
        if isinstance(path, Path):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        else:  # not read again over the network
            digest.update(repr(FileStamp.from_path(path)).encode())
    fleet, failures = records.fleet, records.fleet.failures
    failed = [fleet.serials[gpu] for gpu in failures.gpu.tolist()]
    times = (failures.failed_at.tolist(), failures.repaired_at.tolist())
    digest.update(json.dumps(sorted(zip(failed, *times, strict=True))).encode())
    return digest.hexdigest()


def _files(records: WindowedRecords) -> Iterator[Location]:
    """Yield the files of the dates from the first to the last record."""
    first, last = date_of(records.fleet.first), date_of(records.fleet.last)
    for date, path in records.store.files():
        if first <= date <= last:
            yield path
