"""The model registry: an experiment and the predictors registered from its runs."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sqlalchemy.exc import SQLAlchemyError

from forewarn.features.time_units import SECOND
from forewarn.models.prediction.model_catalogue import BUILTIN, ModelCatalogue
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.runtime.clock import SystemClock
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder
from forewarn.pipelines.storage.registry.mlflow_experiment import Experiment, RegistryError
from forewarn.pipelines.storage.registry.registered_version import (
    ROLLED_BACK,
    Version,
    version_from_mlflow,
)

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature

    from forewarn.pipelines.config.settings import Settings

__all__ = ["CHALLENGER", "CHAMPION", "Registry", "RegistryError"]

CHAMPION, CHALLENGER = "champion", "challenger"
_LOADER = "forewarn.pipelines.training.mlflow_model"
_ENDED = {"forewarn.champion_until", "forewarn.replaced_by"}
_MODEL_DESCRIPTION = (
    "Predicts which GPUs fail within the horizon. Input: records, as in the folder of records. "
    "Output: the at-risk list just after the last record."
)


@dataclass(slots=True)
class Registry(Experiment):
    """One experiment and one registered model.

    Attributes
    ----------
    catalogue : ModelCatalogue
        Models that predictors may load.
    """

    catalogue: ModelCatalogue = BUILTIN

    @classmethod
    def from_settings(cls, settings: Settings, *, create: bool = False) -> Self:
        """Return the registry of a site; with `create`, make it if there is none."""
        return cls(settings.registry, create=create, catalogue=settings.models.catalogue)

    def register(
        self,
        run: str,
        predictor: Predictor,
        example: pd.DataFrame,
        signature: ModelSignature,
        tags: Mapping[str, str],
    ) -> str:
        """Register a predictor as a new version and return its number.

        Parameters
        ----------
        run : str
        predictor : Predictor
        example : DataFrame
            Records of a few GPUs, as the input example.
        signature : ModelSignature
        tags : mapping
        """
        import mlflow

        with scratch_folder() as scratch:
            folder = scratch / "predictor"
            folder.mkdir()
            predictor.save(folder)
            with mlflow.start_run(run_id=run):
                logged = mlflow.pyfunc.log_model(
                    name="predictor",
                    loader_module=_LOADER,
                    data_path=str(folder),
                    signature=signature,
                    input_example=example,
                    pip_requirements=_requirements(predictor),
                )
            # Leaving `start_run` has ended the run; only its owner may mark it as finished.
            self._client.update_run(run, status="RUNNING")
        with contextlib.suppress(mlflow.MlflowException):
            self._client.create_registered_model(self.table.model, description=_MODEL_DESCRIPTION)
        registered = self._client.create_model_version(
            self.table.model,
            logged.model_uri,
            run_id=run,
            tags=dict(tags),
            model_id=logged.model_id,  # a server refuses a source without it
        )
        return str(registered.version)

    def versions(self) -> list[Version]:
        """Return all registered predictors, the newest first."""
        registered = self._client.search_model_versions(f"name = '{self.table.model}'")
        aliases: dict[str, list[str]] = {}
        if registered:
            model = self._client.get_registered_model(self.table.model)
            for alias, number in model.aliases.items():
                aliases.setdefault(str(number), []).append(alias)
        versions = [
            version_from_mlflow(entry, aliases.get(str(entry.version), [])) for entry in registered
        ]
        return sorted(versions, key=lambda version: -int(version.number))

    def champion(self) -> Version | None:
        """Return the champion, if there is one."""
        return next((version for version in self.versions() if CHAMPION in version.aliases), None)

    def champion_before(self, moment: int) -> Version | None:
        """Return the newest former or current champion trained only on data before `moment`."""
        past = [
            (version.trained_at, int(version.number), version)
            for version in self.versions()
            if version.was_champion
            and version.trained_at is not None
            and version.trained_at <= moment
        ]
        return max(past, key=lambda entry: entry[:2])[2] if past else None

    def champion_for(self, moment: int) -> Version | None:
        """Return the predictor for a list as of `moment`: the champion, or a former champion.

        A champion trained on later data would make a list that is too good.
        """
        champion = self.champion()
        if champion is None or (champion.trained_at or 0) > moment:
            return self.champion_before(moment)
        return champion

    def name(self, alias: str, number: str) -> None:
        """Assign an alias to a version, and to no other."""
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
            f"{', '.join(version.number for version in versions) or 'none'}."
        )

    def mark(self, number: str, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        for name, value in tags.items():
            self._client.set_model_version_tag(self.table.model, number, name, value)

    def describe_version(self, number: str, text: str) -> None:
        """Set the description of a version."""
        self._client.update_model_version(self.table.model, number, description=text)

    def promote(self, number: str) -> Version:
        """Make a version the champion, and record its predecessor and the time.

        Raises
        ------
        RegistryError
            If there is no such version.
        """
        version, before = self.version(number), self.champion()
        if before is not None and before.number != number:
            self.mark(number, {"forewarn.follows": before.number})
        self.mark(number, {"forewarn.champion": "yes"})
        self._replace(before, version)
        return version

    def _replace(self, before: Version | None, version: Version) -> None:
        """Change the champion, and record since and until when on both versions."""
        now = format_iso(SystemClock().now() // SECOND * SECOND)
        number = version.number
        if before is None or before.number != number:
            self.mark(number, {"forewarn.champion_since": now})
            for name in _ENDED & version.tags.keys():  # it was champion before
                self._client.delete_model_version_tag(self.table.model, number, name)
        if before is not None and before.number != number:
            ended = {"forewarn.champion_until": now, "forewarn.replaced_by": number}
            self.mark(before.number, ended)
        self.name(CHAMPION, number)

    def rollback(self) -> Version:
        """Make the previous champion the champion again.

        Raises
        ------
        RegistryError
            If there is none, or it cannot be loaded.
        """
        now = self.champion()
        before = now and now.tags.get("forewarn.follows")
        if now is None or not before:
            raise RegistryError(
                f"registered model {self.table.model}: there is no previous champion."
            )
        version = self.version(before)
        self.load_version(
            version
        )  # fails if the version cannot be loaded, as it would then make no list
        # A version that failed in service is no reference for the next challenger.
        self.mark(now.number, {"forewarn.champion": ROLLED_BACK})
        self._replace(now, version)
        return version

    def load(self, uri: str) -> Predictor:
        """Return a registered predictor, such as models:/gpu-failure@champion.

        Raises
        ------
        RegistryError
            If there is none, or it is not a forewarn predictor.
        """
        import mlflow

        try:
            with scratch_folder() as folder:
                downloaded = mlflow.artifacts.download_artifacts(uri, dst_path=str(folder))
                return Predictor.load(Path(downloaded) / "data" / "predictor", self.catalogue)
        except (mlflow.MlflowException, SQLAlchemyError) as error:
            detail = " ".join(str(error).replace(self.table.store, self.address).split())[:160]
            raise RegistryError(
                f"{uri}: {detail} (`registry.store` {self.address}; `forewarn models list` shows "
                "what is there, and `--model builtin:rules` needs no model).",
                is_transient=True,
            ) from None
        except (ValueError, OSError) as error:
            detail = " ".join(str(error).split())
            is_transient = isinstance(error, OSError)
            raise RegistryError(f"{uri}: {detail}", is_transient=is_transient) from None

    def uri_of(self, version: Version) -> str:
        """Return the MLflow URI of a version."""
        return f"models:/{self.table.model}/{version.number}"

    def load_version(self, version: Version) -> Predictor:
        """Return the predictor of a version.

        Raises
        ------
        RegistryError
            If it is damaged, or not a forewarn predictor.
        """
        return self.load(self.uri_of(version))


def _requirements(predictor: Predictor) -> list[str]:
    """Return the packages that loading a predictor needs, with their versions."""
    packages = [f"forewarn[score] {importlib.metadata.version('forewarn')}"]
    return ["==".join(item.split()) for item in (*packages, *predictor.packages.values())]
