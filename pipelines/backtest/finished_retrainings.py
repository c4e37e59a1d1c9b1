"""Finished retrainings of a backtest: their scores, and the state that later ones need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.prediction.instances import Instances
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.model_catalogue import ModelCatalogue
from forewarn.models.prediction.trained_recipe import TrainedRecipe
from forewarn.pipelines.backtest.progress_folder import ProgressFolder
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.pipelines.storage.registry.recipe_folder import load_recipe, save_recipe

__all__ = ["FinishedRetrainings", "SavedRecipes"]

_WINDOW, _FIXED = "window.npz", "fixed"
_RECIPE, _AGE_WEIGHTED = "recipe", "fading"
_ARRAYS = ("gpu", "end", "label")


@dataclass(frozen=True, slots=True)
class SavedRecipes:
    """Trained recipes of an unfinished retraining (`TrainingCache`).

    Attributes
    ----------
    progress : ProgressFolder
    settings : WalkForwardSettings
    catalogue : ModelCatalogue
    kind : str
        Distinguishes recipes of one span with and without age weighting.
    """

    progress: ProgressFolder
    settings: WalkForwardSettings
    catalogue: ModelCatalogue
    kind: str = _RECIPE

    def _name(self, moment: int, training_span: Nanoseconds) -> str:
        return f"{self.kind}-{moment}-{training_span}"

    def recall(self, moment: int, training_span: Nanoseconds) -> TrainedRecipe | None:
        """Return the recipe that an interrupted backtest trained last, or None."""
        name = self._name(moment, training_span)
        if self.progress.facts(name) is None:
            return None
        return load_recipe(self.progress.path(name), training_span, self.catalogue)

    def keep(self, moment: int, trained: TrainedRecipe) -> None:
        """Store a recipe until its retraining is finished."""

        def write(folder: Path) -> Mapping[str, Any]:
            save_recipe(folder, trained, self.settings.recipe.cascade_model)
            return {}

        self.progress.keep(self._name(moment, trained.training_span), write)

    def age_weighted(self) -> SavedRecipes:
        """Return the cache of recipes with age weighting."""
        return SavedRecipes(self.progress, self.settings, self.catalogue, _AGE_WEIGHTED)


@dataclass(frozen=True, slots=True)
class FinishedRetrainings:
    """Finished retrainings in a folder.

    Attributes
    ----------
    progress : ProgressFolder
    strategies : sequence of str
        Strategies whose scores are stored.
    """

    progress: ProgressFolder
    strategies: Sequence[str]

    def path(self, moment: int) -> Path:
        """Return the folder of a retraining."""
        return self.progress.path(_name(moment))

    def keep(self, moment: int, walk: WalkForward, frames: Mapping[str, pd.DataFrame]) -> None:
        """Store a retraining, scored (`frames` by strategy) or skipped (empty).

        The backtest continues with the stored state, just as it would after an interruption.
        """
        window = walk.windows[-1] if frames else None
        facts: dict[str, Any] = {"moment": moment, "span_in_use": walk.span_in_use, "fixed": None}
        first = walk.fixed if Strategy.FIXED in self.strategies else None
        first = None if self._has_fixed() else first

        def write(folder: Path) -> Mapping[str, Any]:
            for strategy, frame in frames.items():
                table = pa.Table.from_pandas(frame, preserve_index=False)
                file = folder / f"{strategy}.parquet"
                pq.write_table(table, arrow_path(file), compression="zstd")
            if window is not None:
                # The stub of savez assigns any keyword to `allow_pickle`.
                np.savez(folder / _WINDOW, **_arrays_of(window))  # type: ignore[arg-type]
                facts["by_span"], facts["by_strategy"] = _described(window)
            if first is not None:
                (folder / _FIXED).mkdir()
                save_recipe(folder / _FIXED, first, walk.settings.recipe.cascade_model)
                facts["fixed"] = first.training_span
            return facts

        self.progress.keep(_name(moment), write)
        for kind in (_RECIPE, _AGE_WEIGHTED):
            self.progress.drop(
                f"{kind}-*"
            )  # a finished retraining needs no model except the first one
        if window is not None:
            walk.windows[-1] = self._window(moment, facts)

    def restore(self, moment: int, walk: WalkForward) -> bool | None:
        """Restore the state after a finished retraining.

        Returns
        -------
        bool or None
            Whether it was scored rather than skipped; None if it is not finished or damaged.
        """
        facts = self.progress.facts(_name(moment))
        if facts is None:
            return None
        walk.span_in_use = facts["span_in_use"]
        if "by_span" in facts:
            walk.windows.append(self._window(moment, facts))
        return "by_span" in facts

    def restore_fixed(self, walk: WalkForward) -> None:
        """Load the recipe of the first retraining, before another one is trained."""
        for path in sorted(self.progress.folder.glob(f"retraining-*/{_FIXED}")):
            if walk.fixed is None:
                facts = self.progress.facts(path.parent.name)
                span = None if facts is None else facts["fixed"]
                catalogue = walk.trainer.catalogue
                walk.fixed = None if span is None else load_recipe(path, span, catalogue)

    def frames_of(self, strategy: str) -> list[Path]:
        """Return the score files of a strategy, in order of time."""
        return sorted(self.progress.folder.glob(f"retraining-*/{strategy}.parquet"))

    def _has_fixed(self) -> bool:
        return any(self.progress.folder.glob(f"retraining-*/{_FIXED}"))

    def _window(self, moment: int, facts: Mapping[str, Any]) -> WindowScores:
        with np.load(self.path(moment) / _WINDOW, allow_pickle=False) as arrays:
            return _window_of(moment, arrays, facts)


def _name(moment: int) -> str:
    return f"retraining-{format_iso(moment)[:19].replace(':', '')}"


def _arrays_of(window: WindowScores) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that later retrainings need."""
    arrays = {name: getattr(window.instances, name) for name in _ARRAYS}
    arrays |= {"hashes": window.hashes, "tested": window.tested}
    for name in ("machine", "compared"):
        values = getattr(window, name)
        arrays |= {} if values is None else {name: values}
    for number, scores in enumerate(window.by_span.values()):
        arrays |= {f"span_{number}_{name}": values for name, values in scores.items()}
    for strategy, (_, scores) in window.by_strategy.items():
        arrays[f"blend_{strategy}"] = scores["blend"]
    return arrays


def _described(window: WindowScores) -> tuple[list[Any], list[Any]]:
    """Return the spans, strategies and names of the stored scores."""
    spans = [[span, list(scores)] for span, scores in window.by_span.items()]
    return spans, [[strategy, span] for strategy, (span, _) in window.by_strategy.items()]


def _window_of(
    moment: int, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]
) -> WindowScores:
    gpu, end, label = (arrays[name] for name in _ARRAYS)
    rows = np.broadcast_to(np.int64(-1), len(gpu))  # row numbers are not stored
    return WindowScores(
        moment,
        Instances(rows, gpu, end, label),
        arrays["hashes"],
        arrays["tested"],
        {
            Nanoseconds(span): {name: arrays[f"span_{number}_{name}"] for name in names}
            for number, (span, names) in enumerate(facts["by_span"])
        },
        {
            strategy: (Nanoseconds(span), {"blend": arrays[f"blend_{strategy}"]})
            for strategy, span in facts["by_strategy"]
        },
        arrays.get("machine"),
        arrays.get("compared"),
    )
