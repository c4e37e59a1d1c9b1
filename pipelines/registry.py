"""The registry: experiments and predictors in MLflow, by default in one SQLite file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.features.errors import InputError
from forewarn.models.predictor import Predictor
from forewarn.pipelines.settings import RegistryTable

# Read by MLflow when it is first imported: nothing is sent anywhere, no progress bars in logs.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

import mlflow
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

__all__ = ["CHALLENGER", "CHAMPION", "Registry", "RegistryError", "Version"]

CHAMPION, CHALLENGER = "champion", "challenger"
_LOADER = "forewarn.pipelines.served"
_PARTS = 200  # values that MLflow takes in one call


class RegistryError(InputError):
    """A registry that cannot be used, or that does not hold what was asked for."""


@dataclass(frozen=True, slots=True)
class Version:
    """One registered predictor.

    Attributes
    ----------
    number : str
    name : str
        `Predictor.version`.
    trained_at : int
        Nanoseconds since 1970 UTC.
    length : int
        Training length in nanoseconds.
    aliases : tuple of str
    was_champion : bool
        It is or was the champion.
    tags : mapping
    """

    number: str
    name: str
    trained_at: int
    length: int
    aliases: tuple[str, ...]
    was_champion: bool
    tags: Mapping[str, str]


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
    def experiment(self) -> str:
        """Id of the experiment; made if it is not there."""
        if self._experiment is None:
            self._experiment = self._find_experiment()
        return self._experiment

    def _find_experiment(self) -> str:
        name = self.table.experiment
        try:
            found = self._client.get_experiment_by_name(name)
            if found is not None:
                return str(found.experiment_id)
            place = None
            if "://" not in self.table.store:
                place = (Path(self.table.store).resolve() / "artifacts").as_uri()
            return str(self._client.create_experiment(name, artifact_location=place))
        except MlflowException as error:
            detail = " ".join(str(error).split())[:160]
            raise RegistryError(f"`registry.store` {self.table.store}: {detail}.") from None

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

    def abandon(self, tags: Mapping[str, str]) -> None:
        """End the runs of these tags that a killed process left running."""
        for run in self.find(tags, status="RUNNING"):
            self._client.set_terminated(run.info.run_id, "KILLED")

    def find(self, tags: Mapping[str, str], *, status: str = "FINISHED") -> list[Run]:
        """Return the runs with these tags, the newest first."""
        wanted = [f"tags.`{name}` = '{value}'" for name, value in tags.items()]
        wanted.append(f"attributes.status = '{status}'")
        return list(
            self._client.search_runs(
                [self.experiment], " and ".join(wanted), order_by=["attributes.start_time DESC"]
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

        found = [(name, value, 0) for name, value in (metrics or {}).items()]
        values = [
            Metric(name, float(value), 0, step)
            for name, value, step in [*found, *series]
            if value is not None
        ]
        given = [Param(name, str(value)[:500]) for name, value in (params or {}).items()]
        for start in range(0, max(len(values), len(given)), _PARTS):
            end = start + _PARTS
            self._client.log_batch(run, metrics=values[start:end], params=given[start:end])

    def tag(self, run: str, tags: Mapping[str, str]) -> None:
        """Mark a run."""
        for name, value in tags.items():
            self._client.set_tag(run, name, value)

    def attach(self, run: str, folder: Path, place: str | None = None) -> None:
        """Keep all files of a folder with a run."""
        self._client.log_artifacts(run, str(folder), place)

    @contextlib.contextmanager
    def attached(self, run: str, place: str) -> Iterator[Path]:
        """Yield a folder with what was attached to a run at `place`."""
        with tempfile.TemporaryDirectory() as folder:
            yield Path(self._client.download_artifacts(run, place, folder))

    # --- the registered model --------------------------------------------------------------------

    def register(
        self, run: str, predictor: Predictor, example: Any, tags: Mapping[str, str]
    ) -> str:
        """Register a predictor as a new version and return its number.

        Parameters
        ----------
        run : str
        predictor : Predictor
        example : DataFrame
            Records of a few GPUs, as the input example.
        tags : mapping
        """
        from mlflow.models import infer_signature

        from forewarn.pipelines.served import Served

        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "predictor"
            folder.mkdir()
            predictor.save(folder)
            signature = infer_signature(example, Served(predictor).predict(example))
            with mlflow.start_run(run_id=run):
                logged = mlflow.pyfunc.log_model(
                    name="predictor",
                    loader_module=_LOADER,
                    data_path=str(folder),
                    signature=signature,
                    input_example=example,
                    pip_requirements=["forewarn"],
                )
        with contextlib.suppress(MlflowException):
            self._client.create_registered_model(self.table.model)
        version = self._client.create_model_version(
            self.table.model, logged.model_uri, run_id=run, tags=dict(tags)
        )
        return str(version.version)

    def versions(self) -> list[Version]:
        """Return all registered predictors, the newest first."""
        found = self._client.search_model_versions(f"name = '{self.table.model}'")
        aliases: dict[str, list[str]] = {}
        if found:
            model = self._client.get_registered_model(self.table.model)
            for alias, number in model.aliases.items():
                aliases.setdefault(str(number), []).append(alias)
        versions = [_version(one, aliases.get(str(one.version), [])) for one in found]
        return sorted(versions, key=lambda one: -int(one.number))

    def champion(self) -> Version | None:
        """Return the champion, if there is one."""
        return next((one for one in self.versions() if CHAMPION in one.aliases), None)

    def champion_before(self, moment: int) -> Version | None:
        """Return the newest predictor that was champion and saw nothing from `moment` on."""
        past = [one for one in self.versions() if one.was_champion and one.trained_at <= moment]
        return max(past, key=lambda one: (one.trained_at, int(one.number)), default=None)

    def name(self, alias: str, number: str) -> None:
        """Give a version an alias, which it alone has then."""
        self._client.set_registered_model_alias(self.table.model, alias, number)

    def promote(self, number: str) -> Version:
        """Make a version the champion, and write down which one it follows.

        Raises
        ------
        RegistryError
            If there is no such version.
        """
        mine = next((one for one in self.versions() if one.number == number), None)
        if mine is None:
            raise RegistryError(
                f"registered model {self.table.model}: no version {number!r}, expected one of "
                f"{', '.join(one.number for one in self.versions()) or 'none yet'}."
            )
        before = self.champion()
        if before is not None and before.number != number:
            self._client.set_model_version_tag(
                self.table.model, number, "forewarn.follows", before.number
            )
        self._client.set_model_version_tag(self.table.model, number, "forewarn.champion", "yes")
        self.name(CHAMPION, number)
        return mine

    def rollback(self) -> Version:
        """Make the champion before the present one the champion again.

        Raises
        ------
        RegistryError
            If there is none.
        """
        now = self.champion()
        before = now and now.tags.get("forewarn.follows")
        if now is None or not before:
            raise RegistryError(
                f"registered model {self.table.model}: no champion before the present one."
            )
        # What failed in service is no reference for the next challenger.
        self._client.set_model_version_tag(
            self.table.model, now.number, "forewarn.champion", "rolled back"
        )
        self.name(CHAMPION, before)
        return next(one for one in self.versions() if one.number == before)

    def load(self, uri: str) -> Predictor:
        """Return a registered predictor, such as models:/gpu-failure@champion.

        Raises
        ------
        RegistryError
            If there is none, or it is no predictor of forewarn.
        """
        try:
            with tempfile.TemporaryDirectory() as folder:
                place = mlflow.artifacts.download_artifacts(uri, dst_path=folder)
                return Predictor.load(Path(place) / "data" / "predictor")
        except MlflowException as error:
            detail = " ".join(str(error).split())[:160]
            raise RegistryError(f"{uri}: {detail} (`registry.store` {self.table.store}).") from None
        except (ValueError, OSError) as error:
            raise RegistryError(f"{uri}: {error}") from None

    def load_version(self, version: Version) -> Predictor:
        """Return the predictor of a version."""
        return self.load(f"models:/{self.table.model}/{version.number}")


def _version(found: Any, aliases: Sequence[str]) -> Version:
    tags = dict(found.tags)
    return Version(
        number=str(found.version),
        name=tags.get("forewarn.version", ""),
        trained_at=int(tags.get("forewarn.at", 0)),
        length=int(tags.get("forewarn.length", 0)),
        aliases=tuple(sorted(aliases)),
        was_champion=tags.get("forewarn.champion") == "yes",
        tags=tags,
    )


def digest_of(value: object) -> str:
    """Return a short digest of something that JSON can hold."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
