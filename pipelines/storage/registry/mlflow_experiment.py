"""An MLflow experiment: its store, by default one SQLite file, and its runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from forewarn.features.errors import InputError
from forewarn.pipelines.config.site_tables import RegistryTable
from forewarn.pipelines.storage.files.file_lock import locked
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder

# Read by MLflow: no telemetry, no progress bars in logs, no addresses of runs on stdout.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

__all__ = ["Experiment", "RegistryError", "digest_of"]

# Limits of MLflow: parameters in a call, and length of a value.
_MAX_PARAMS_PER_CALL, _MAX_METRICS_PER_CALL = 100, 900
_MAX_PARAM_LENGTH, _MAX_TAG_LENGTH, _MAX_NAME_LENGTH = 6000, 8000, 250


# Shows the pages for models, rather than those for language models.
_KIND = {"mlflow.experimentKind": "custom_model_development"}


class RegistryError(InputError):
    """A registry that cannot be used or lacks the requested item."""


@dataclass(slots=True)
class Experiment:
    """The runs of one experiment.

    Attributes
    ----------
    table : RegistryTable
    create : bool
        Create the store if it does not exist; false for readers.

    Raises
    ------
    RegistryError
        If the folder holds no registry and `create` is false.
    """

    table: RegistryTable
    create: bool = False
    _made: bool = False
    _client: MlflowClient = field(init=False, repr=False)
    _experiment: str | None = None

    def __post_init__(self) -> None:
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if "://" not in self.table.store:
            folder = Path(self.table.store)
            if not (folder / "mlflow.db").exists():
                if not self.create:
                    raise RegistryError(
                        f"`registry.store` {folder}: holds no registry, expected one that "
                        "`forewarn retrain` made, or the address of a server."
                    )
                self._made = not folder.exists()
                folder.mkdir(parents=True, exist_ok=True)
        with self.in_one_line():
            mlflow.set_tracking_uri(self.uri)
            mlflow.set_registry_uri(self.uri)
            self._client = MlflowClient(self.uri, self.uri)

    @property
    def uri(self) -> str:
        """Address of the tracking server, or of the SQLite file."""
        if "://" in self.table.store:
            return self.table.store
        return f"sqlite:///{Path(self.table.store).resolve()}/mlflow.db"

    @property
    def address(self) -> str:
        """The store for messages, without user and password."""
        scheme, separator, rest = self.table.store.rpartition("://")
        return scheme + separator + rest.rpartition("@")[2] if separator else rest

    @contextlib.contextmanager
    def in_one_line(self) -> Iterator[None]:
        """Convert errors of MLflow and its database to one-line messages.

        Raises
        ------
        RegistryError
            In place of their errors.
        """
        try:
            yield
        except (MlflowException, SQLAlchemyError) as error:
            reason = str(error).replace(self.table.store, self.address)
            detail = " ".join(reason.split())[:160].rstrip(".")
            raise RegistryError(
                f"`registry.store` {self.address}: {detail}.", is_transient=True
            ) from None

    @contextlib.contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Hold a lock among the processes of this machine.

        Parameters
        ----------
        what : str
            "retraining", or "promotion" for a change of the champion.
        """
        with locked(self._lock_folder() / f".{what}.lock", f"another {what} of this registry"):
            yield

    def _lock_folder(self) -> Path:
        """Return the registry's folder; for a server, a folder of this user and that address."""
        if "://" not in self.table.store:
            return Path(self.table.store)
        own = Path(tempfile.gettempdir()) / f"forewarn-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise RegistryError(f"{own}: belongs to another user, expected a folder of this user.")
        folder = own / digest_of([self.table.store, self.table.model])
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def experiment(self) -> str:
        """Id of the experiment, which is created if needed."""
        if self._experiment is None:
            self._experiment = self._find_experiment()
        return self._experiment

    def _find_experiment(self) -> str:
        name = self.table.experiment
        with self.in_one_line():
            experiment = self._client.get_experiment_by_name(name)
            if experiment is not None:
                return str(experiment.experiment_id)
            artifacts = None
            if "://" not in self.table.store:
                artifacts = (Path(self.table.store).resolve() / "artifacts").as_uri()
            return str(
                self._client.create_experiment(name, artifact_location=artifacts, tags=_KIND)
            )

    def discard(self) -> None:
        """Remove the folder if this object created it, so that a rejected run leaves nothing."""
        if self._made:
            shutil.rmtree(self.table.store)

    @contextlib.contextmanager
    def run(self, name: str, tags: Mapping[str, str], parent: str | None = None) -> Iterator[str]:
        """Yield the id of a new run, which ends as finished or, after an error, as failed."""
        marks = _who_runs() | dict(tags) | ({"mlflow.parentRunId": parent} if parent else {})
        run = self._client.create_run(self.experiment, run_name=name, tags=marks)
        number: str = run.info.run_id
        try:
            yield number
        except BaseException:
            self._client.set_terminated(number, "FAILED")
            raise
        self._client.set_terminated(number, "FINISHED")

    def end(self, run: str, status: str = "FINISHED") -> None:
        """End a run that an earlier process started."""
        self._client.set_terminated(run, status)

    def abandon(self, tags: Mapping[str, str]) -> None:
        """End runs with these tags, and their children, that a killed process left running."""
        for run in self.find(tags, status="RUNNING"):
            self.abandon({"mlflow.parentRunId": run.info.run_id})
            self.end(run.info.run_id, "KILLED")

    def find(self, tags: Mapping[str, str], *, status: str | None = "FINISHED") -> list[Run]:
        """Return the runs with these tags, the newest first; `status` None means any."""
        conditions = [f"tags.`{name}` = '{value}'" for name, value in tags.items()]
        if status is not None:
            conditions.append(f"attributes.status = '{status}'")
        return list(
            self._client.search_runs(
                [self.experiment], " and ".join(conditions), order_by=["attributes.start_time DESC"]
            )
        )

    def log(
        self,
        run: str,
        *,
        params: Mapping[str, object] | None = None,
        metrics: Mapping[str, float | None] | None = None,
        series: Sequence[tuple[str, float | None, int]] = (),
    ) -> None:
        """Log parameters and metrics of a run; `series` holds name, value and step.

        Values that are not finite are left out: they are unknown, and MLflow shows them as numbers.
        """
        unstepped = [(name, value, 0) for name, value in (metrics or {}).items()]
        values = [
            Metric(_valid_name(name), float(value), 0, step)
            for name, value, step in [*unstepped, *series]
            if value is not None and math.isfinite(value)
        ]
        parameters = [
            Param(_valid_name(name), _shortened(str(value), _MAX_PARAM_LENGTH))
            for name, value in (params or {}).items()
        ]
        for start in range(0, len(parameters), _MAX_PARAMS_PER_CALL):
            self._client.log_batch(run, params=parameters[start : start + _MAX_PARAMS_PER_CALL])
        for start in range(0, len(values), _MAX_METRICS_PER_CALL):
            self._client.log_batch(run, metrics=values[start : start + _MAX_METRICS_PER_CALL])

    def log_dataset(self, run: str, dataset: Dataset, context: str) -> None:
        """Log the data that a run used, and for what: "training" or "evaluation"."""
        tags = [InputTag("mlflow.data.context", context)]
        self._client.log_inputs(run, [DatasetInput(dataset, tags)])

    def describe(self, run: str, text: str) -> None:
        """Set the description of a run, which MLflow shows as Markdown."""
        self.tag(run, {"mlflow.note.content": text})

    def tag(self, run: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run."""
        for name, value in tags.items():
            self._client.set_tag(run, name, _shortened(value, _MAX_TAG_LENGTH))

    def attach(self, run: str, folder: Path, path: str | None = None) -> None:
        """Attach all files of a folder to a run."""
        self._client.log_artifacts(run, str(folder), path)

    @contextlib.contextmanager
    def attached(self, run: str, path: str) -> Iterator[Path]:
        """Yield a folder with the files attached to a run at `path`."""
        with scratch_folder() as folder:
            yield Path(self._client.download_artifacts(run, path, str(folder)))


@cache
def _who_runs() -> dict[str, str]:
    """Return user and program for the columns of MLflow's table."""
    from mlflow.tracking.context.registry import resolve_tags

    return {**resolve_tags(), "mlflow.source.name": "forewarn"}


def _valid_name(name: str) -> str:
    """Return the name of a metric or parameter, with `_` for what MLflow refuses in it.

    Examples
    --------
    >>> _valid_name("drift/temp (°C)//../a")
    'drift/temp __C_/_/_/a'
    """
    parts = re.sub(r"[^/\w.\- :]", "_", name)[:_MAX_NAME_LENGTH].split("/")
    return "/".join(part if part.strip(".") else "_" for part in parts)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def digest_of(value: object) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
