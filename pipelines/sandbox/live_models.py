"""The models of a live demonstration: trained in another process, and compared by the gate."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.at_risk.fleet_scoring import BUILTIN_RULES, load_predictor
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.console.console_site import ModelVersion
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.training.retrain import retrain

__all__ = ["LiveModels", "RetrainedModel"]

_CHAMPION = "models:/gpu-failure@champion"


@dataclass(frozen=True, slots=True)
class RetrainedModel:
    """Result of a retraining; `text` is what the gate said."""

    version: str
    promoted: bool
    at: Nanoseconds
    text: str


def _prepare_process() -> None:
    """Let SIGTERM end the process in order: a progress bar has a lock that is to be removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process with the console


def _retrain(config: Path, at: Nanoseconds) -> RetrainedModel:
    """Retrain as `forewarn retrain` does."""
    from forewarn.pipelines.storage.registry.model_registry import Registry

    settings = load_settings(config)
    job = open_job(config.parent / settings.site.records, settings)
    outcome = retrain(job, at, Registry.from_settings(settings, create=True))
    text = "passed" if outcome.promoted else "refused: " + "; ".join(outcome.reasons)
    return RetrainedModel(outcome.version, outcome.promoted, at, text)


@dataclass(slots=True)
class LiveModels:
    """The champion, and the retraining that runs.

    Attributes
    ----------
    config : Path
        Configuration of the site.
    champion : Predictor or None
        None: the built-in rules make the lists.
    """

    config: Path
    champion: Predictor | None = None
    _history: list[RetrainedModel] = field(default_factory=list)
    _running: Future[RetrainedModel] | None = None
    _pool: ProcessPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        # Another process: training must not slow down the clock, and MLflow never loads here.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_prepare_process)

    def start(self, at: Nanoseconds) -> bool:
        """Start a retraining; return False if the last one still runs."""
        if self._running is not None:
            return False
        self._running = self._pool.submit(_retrain, self.config, at)
        return True

    def result(self, *, wait: bool = False) -> RetrainedModel | str | None:
        """Return the retraining that has ended, or why it failed; None while none has.

        A promoted model is the champion from now on.
        """
        if self._running is None or not (wait or self._running.done()):
            return None
        running, self._running = self._running, None
        try:
            model = running.result()
        except InputError as error:
            return str(error)
        self._history.append(model)
        if model.promoted:
            self.champion = load_predictor(_CHAMPION, load_settings(self.config))
        return model

    @property
    def name(self) -> str:
        """What makes the lists."""
        return BUILTIN_RULES if self.champion is None else self.champion.version

    def versions(self) -> list[ModelVersion]:
        """Return the trained models, newest first."""
        promoted = [model.version for model in self._history if model.promoted]
        champion = promoted[-1] if promoted else ""
        roles = {model.version: "challenger" for model in self._history[-1:]}
        roles |= {champion: "champion"}
        return [
            ModelVersion(
                name=f"version {model.version}",
                role=roles.get(model.version, ""),
                trained_at=format_iso(model.at),
                gate=model.text,
            )
            for model in reversed(self._history)
        ]

    def close(self) -> None:
        """Stop the process of the retraining, and wait until it has ended."""
        if self._running is not None:
            with suppress(OSError):
                for process in list(getattr(self._pool, "_processes", {}).values()):
                    process.terminate()
        self._pool.shutdown(cancel_futures=True)
