"""The registry: experiments and predictors in MLflow, by default in one SQLite file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.features.errors import InputError
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.config.site_tables import RegistryTable
from forewarn.pipelines.storage.leftovers import scratch_folder
from forewarn.pipelines.storage.lock import locked
from forewarn.pipelines.storage.registered_version import ROLLED_BACK, Version, version_of

# Read by MLflow when it is first imported: nothing is sent anywhere, no progress bars in logs.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

import mlflow
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHALLENGER", "CHAMPION", "Registry", "RegistryError", "digest_of"]

CHAMPION, CHALLENGER = "champion", "challenger"
_LOADER = "forewarn.pipelines.training.mlflow_model"
_PARTS = 200  # values that MLflow takes in one call


class RegistryError(InputError):
    """A registry that cannot be used, or that does not hold what was asked for."""


@dataclass(slots=True)
class Registry:
    """One experiment and one registered model.

    Attributes
    ----------
    table : RegistryTable
    create : bool
        Make it if it is not there; whoever only reads has nothing to make.

    Raises
    ------
    RegistryError
        If it is a folder that holds no registry, and none is to be made.
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
        """The store as messages may name it: without what comes before an @."""
        scheme, separator, rest = self.table.store.rpartition("://")
        return scheme + separator + rest.rpartition("@")[2] if separator else rest

    @contextlib.contextmanager
    def in_one_line(self) -> Iterator[None]:
        """Say in one line what MLflow, or the database behind it, does not do.

        Raises
        ------
        RegistryError
            Instead of their errors.
        """
        try:
            yield
        except (MlflowException, SQLAlchemyError) as error:
            reason = str(error).replace(self.table.store, self.address)
            detail = " ".join(reason.split())[:160].rstrip(".")
            raise RegistryError(f"`registry.store` {self.address}: {detail}.") from None

    @contextlib.contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Let one process at a time do something here, of all processes of this machine.

        Parameters
        ----------
        what : str
            "retraining", or "promotion" for a change of the champion.
        """
        with locked(self._lock_folder() / f".{what}.lock", f"another {what} of this registry"):
            yield

    def _lock_folder(self) -> Path:
        """Return the folder of the registry; for a server, one of this user and that address."""
        if "://" not in self.table.store:
            return Path(self.table.store)
        own = Path(tempfile.gettempdir()) / f"forewarn-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise RegistryError(f"{own}: is of somebody else, expected a folder of this user.")
        folder = own / digest_of([self.table.store, self.table.model])
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def experiment(self) -> str:
        """Id of the experiment; made if it is not there."""
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
            return str(self._client.create_experiment(name, artifact_location=artifacts))

    def discard(self) -> None:
        """Remove the folder if it was made for this: a refused run leaves nothing behind."""
        if self._made:
            shutil.rmtree(self.table.store)

    # --- runs ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def run(self, name: str, tags: Mapping[str, str], parent: str | None = None) -> Iterator[str]:
        """Yield the id of a new run, which ends as finished or, after an error, as failed."""
        marks = dict(tags) | ({"mlflow.parentRunId": parent} if parent else {})
        run = self._client.create_run(self.experiment, run_name=name, tags=marks)
        number: str = run.info.run_id
        try:
            yield number
        except BaseException:
            self._client.set_terminated(number, "FAILED")
            raise
        self._client.set_terminated(number, "FINISHED")

    def end(self, run: str, status: str = "FINISHED") -> None:
        """End a run that an earlier process began."""
        self._client.set_terminated(run, status)

    def abandon(self, tags: Mapping[str, str]) -> None:
        """End the runs of these tags that a killed process left running, and those under them."""
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
        """Write parameters and metrics of a run; `series` are of name, value and step."""
        from mlflow.entities import Metric, Param

        unstepped = [(name, value, 0) for name, value in (metrics or {}).items()]
        values = [
            Metric(name, float(value), 0, step)
            for name, value, step in [*unstepped, *series]
            if value is not None
        ]
        parameters = [Param(name, str(value)[:500]) for name, value in (params or {}).items()]
        for start in range(0, max(len(values), len(parameters)), _PARTS):
            end = start + _PARTS
            self._client.log_batch(run, metrics=values[start:end], params=parameters[start:end])

    def tag(self, run: str, tags: Mapping[str, str]) -> None:
        """Mark a run."""
        for name, value in tags.items():
            self._client.set_tag(run, name, value)

    def attach(self, run: str, folder: Path, path: str | None = None) -> None:
        """Keep all files of a folder with a run."""
        self._client.log_artifacts(run, str(folder), path)

    @contextlib.contextmanager
    def attached(self, run: str, path: str) -> Iterator[Path]:
        """Yield a folder with what was attached to a run at `path`."""
        with scratch_folder() as folder:
            yield Path(self._client.download_artifacts(run, path, str(folder)))

    # --- the registered model --------------------------------------------------------------------

    def register(
        self,
        run: str,
        predictor: Predictor,
        example: pd.DataFrame,
        listed: pd.DataFrame,
        tags: Mapping[str, str],
    ) -> str:
        """Register a predictor as a new version and return its number.

        Parameters
        ----------
        run : str
        predictor : Predictor
        example : DataFrame
            Records of a few GPUs, as the input example.
        listed : DataFrame
            What the predictor makes of them.
        tags : mapping
        """
        from mlflow.models import infer_signature

        with scratch_folder() as scratch:
            folder = scratch / "predictor"
            folder.mkdir()
            predictor.save(folder)
            signature = infer_signature(example, listed)
            with mlflow.start_run(run_id=run):
                logged = mlflow.pyfunc.log_model(
                    name="predictor",
                    loader_module=_LOADER,
                    data_path=str(folder),
                    signature=signature,
                    input_example=example,
                    pip_requirements=["forewarn"],
                )
            # Leaving `start_run` has ended the run; only its owner may say that it is done.
            self._client.update_run(run, status="RUNNING")
        with contextlib.suppress(MlflowException):
            self._client.create_registered_model(self.table.model)
        version = self._client.create_model_version(
            self.table.model, logged.model_uri, run_id=run, tags=dict(tags)
        )
        return str(version.version)

    def versions(self) -> list[Version]:
        """Return all registered predictors, the newest first."""
        registered = self._client.search_model_versions(f"name = '{self.table.model}'")
        aliases: dict[str, list[str]] = {}
        if registered:
            model = self._client.get_registered_model(self.table.model)
            for alias, number in model.aliases.items():
                aliases.setdefault(str(number), []).append(alias)
        versions = [version_of(entry, aliases.get(str(entry.version), [])) for entry in registered]
        return sorted(versions, key=lambda version: -int(version.number))

    def champion(self) -> Version | None:
        """Return the champion, if there is one."""
        return next((version for version in self.versions() if CHAMPION in version.aliases), None)

    def champion_before(self, moment: int) -> Version | None:
        """Return the newest predictor that was champion and saw nothing from `moment` on."""
        past = [
            (version.trained_at, int(version.number), version)
            for version in self.versions()
            if version.was_champion
            and version.trained_at is not None
            and version.trained_at <= moment
        ]
        return max(past, key=lambda entry: entry[:2])[2] if past else None

    def champion_for(self, moment: int) -> Version | None:
        """Return who makes a list as of `moment`: the champion, or who was it before it was made.

        The present champion has seen what followed an earlier moment, and its list would flatter.
        """
        champion = self.champion()
        if champion is None or (champion.trained_at or 0) > moment:
            return self.champion_before(moment)
        return champion

    def name(self, alias: str, number: str) -> None:
        """Give a version an alias, which it alone has then."""
        self._client.set_registered_model_alias(self.table.model, alias, number)

    def version(self, number: str) -> Version:
        """Return a version by its number.

        Raises
        ------
        RegistryError
            If there is no such version.
        """
        versions = self.versions()
        for version in versions:
            if version.number == number:
                return version
        raise RegistryError(
            f"registered model {self.table.model}: no version {number!r}, expected one of "
            f"{', '.join(version.number for version in versions) or 'none yet'}."
        )

    def mark(self, number: str, tags: Mapping[str, str]) -> None:
        """Tag a version."""
        for name, value in tags.items():
            self._client.set_model_version_tag(self.table.model, number, name, value)

    def promote(self, number: str) -> Version:
        """Make a version the champion, and write down which one it follows.

        Raises
        ------
        RegistryError
            If there is no such version.
        """
        version, before = self.version(number), self.champion()
        if before is not None and before.number != number:
            self.mark(number, {"forewarn.follows": before.number})
        self.mark(number, {"forewarn.champion": "yes"})
        self.name(CHAMPION, number)
        return version

    def rollback(self) -> Version:
        """Make the champion before the present one the champion again.

        Raises
        ------
        RegistryError
            If there is none, or it cannot be loaded.
        """
        now = self.champion()
        before = now and now.tags.get("forewarn.follows")
        if now is None or not before:
            raise RegistryError(
                f"registered model {self.table.model}: no champion before the present one."
            )
        version = self.version(before)
        self.load_version(version)  # a champion that cannot be loaded makes no list
        # What failed in service is no reference for the next challenger.
        self.mark(now.number, {"forewarn.champion": ROLLED_BACK})
        self.name(CHAMPION, before)
        return version

    def load(self, uri: str) -> Predictor:
        """Return a registered predictor, such as models:/gpu-failure@champion.

        Raises
        ------
        RegistryError
            If there is none, or it is no predictor of forewarn.
        """
        try:
            with scratch_folder() as folder:
                downloaded = mlflow.artifacts.download_artifacts(uri, dst_path=str(folder))
                return Predictor.load(Path(downloaded) / "data" / "predictor")
        except (MlflowException, SQLAlchemyError) as error:
            detail = " ".join(str(error).replace(self.table.store, self.address).split())[:160]
            raise RegistryError(f"{uri}: {detail} (`registry.store` {self.address}).") from None
        except (ValueError, OSError) as error:
            raise RegistryError(f"{uri}: {' '.join(str(error).split())}") from None

    def uri_of(self, version: Version) -> str:
        """Return the name by which MLflow knows a version."""
        return f"models:/{self.table.model}/{version.number}"

    def load_version(self, version: Version) -> Predictor:
        """Return the predictor of a version.

        Raises
        ------
        RegistryError
            If it is damaged, or no predictor of forewarn.
        """
        return self.load(self.uri_of(version))


def digest_of(value: object) -> str:
    """Return a short digest of something that JSON can hold."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
