"""Each clause of the contract refuses a model that breaks it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from forewarn.models.prediction import failure_model
from forewarn.models.prediction.linear.logistic_model import LogisticModel
from forewarn.pipelines.training import model_contract
from forewarn.pipelines.training.model_contract import CLAUSES, check_contract


class WritesInput(LogisticModel):
    def fit(self, inputs: Any, labels: Any, weights: Any, ends: Any) -> Self:
        weights *= 2
        return super().fit(inputs, labels, weights, ends)


class DrawsFromClock(LogisticModel):
    def fit(self, inputs: Any, labels: Any, weights: Any, ends: Any) -> Self:
        super().fit(inputs, labels, weights, ends)
        noise = np.random.default_rng().random()
        self.fit_ = self.fit_._replace(intercept=self.fit_.intercept + noise)
        return self


class IgnoresWeights(LogisticModel):
    def fit(self, inputs: Any, labels: Any, weights: Any, ends: Any) -> Self:
        return super().fit(inputs, labels, np.ones_like(weights), ends)


class IgnoresPositiveWeight(LogisticModel):
    def __init__(self, *, seed: int, purge: int = 0, positive_weight: float = 1.0) -> None:
        del positive_weight
        super().__init__(seed=seed, purge=purge)


class AcceptsOneClass(LogisticModel):
    def fit(self, inputs: Any, labels: Any, weights: Any, ends: Any) -> Self:
        labels = labels if np.ptp(labels) else 1 - (np.arange(len(labels)) % 2).astype(np.int8)
        return super().fit(inputs, labels, weights, ends)


class NeedsContext(LogisticModel):
    def fit(self, inputs: Any, labels: Any, weights: Any, ends: Any) -> Self:
        assert inputs.context.shape[1], "no context"
        return super().fit(inputs, labels, weights, ends)


class LearnsNothing(LogisticModel):
    def score(self, inputs: Any) -> Any:
        self.columns_.refuse_others(inputs.columns)
        return np.full(len(inputs), 0.5)


class KnowsTheAnswer(LogisticModel):
    def score(self, inputs: Any) -> Any:
        return inputs.sequence[:, -1, 0] / 16.0


class ScoresAboveOne(LogisticModel):
    def score(self, inputs: Any) -> Any:
        return 2.0 * super().score(inputs)


class ScalesByBatch(LogisticModel):
    def score(self, inputs: Any) -> Any:
        scores = super().score(inputs)
        return scores * (1.0 - 1e-3 * len(scores))


class NeedsInstances(LogisticModel):
    def score(self, inputs: Any) -> Any:
        assert len(inputs), "nothing to score"
        return super().score(inputs)


class FailsOnMissing(LogisticModel):
    def score(self, inputs: Any) -> Any:
        scores = super().score(inputs)
        return np.where(inputs.sequence.any(axis=(1, 2)), scores, np.nan)


class AcceptsOtherColumns(LogisticModel):
    def score(self, inputs: Any) -> Any:
        columns = self.columns_
        named = replace(inputs, sequence_names=columns.sequence, context_names=columns.context)
        return super().score(named)


class SavesPickle(LogisticModel):
    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / "model.pkl").write_bytes(b"")


class SavesClock(LogisticModel):
    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / "saved.txt").write_text(str(time.monotonic_ns()))


class LoadsRounded(LogisticModel):
    @classmethod
    def load(cls, folder: Path) -> Self:
        model = super().load(folder)
        model.fit_ = model.fit_._replace(intercept=round(model.fit_.intercept, 2))
        return model


class HasNoDefault(LogisticModel):
    def __init__(self, *, seed: int, leaves: int, positive_weight: float = 1.0) -> None:
        super().__init__(seed=seed + leaves, positive_weight=positive_weight)


BROKEN: dict[str, type[LogisticModel]] = {
    "hyperparameters_are_declared": HasNoDefault,
    "positive_weight_raises_scores": IgnoresPositiveWeight,
    "fit_changes_no_input": WritesInput,
    "same_seed_gives_same_scores": DrawsFromClock,
    "weights_count": IgnoresWeights,
    "one_class_is_refused": AcceptsOneClass,
    "smallest_inputs_are_accepted": NeedsContext,
    "signal_is_learned": LearnsNothing,
    "shuffled_labels_teach_nothing": KnowsTheAnswer,
    "scores_are_probabilities": ScoresAboveOne,
    "scores_do_not_depend_on_batch": ScalesByBatch,
    "no_instances_no_scores": NeedsInstances,
    "missing_values_are_scored": FailsOnMissing,
    "other_columns_are_refused": AcceptsOtherColumns,
    "files_are_native": SavesPickle,
    "same_seed_saves_same_bytes": SavesClock,
    "loaded_model_is_equal": LoadsRounded,
}


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_clause_refuses_model_that_breaks_it(clause: Callable[[Any], None]) -> None:
    if clause.__name__ != "loading_needs_no_training_library":  # see below
        with pytest.raises((AssertionError, ValueError)):
            clause(BROKEN[clause.__name__])


def test_text_of_contract_names_each_clause() -> None:
    text = failure_model.__doc__ or ""
    assert [clause.__name__ for clause in CLAUSES if f"`{clause.__name__}`" not in text] == []


def test_correct_model_passes_all_clauses() -> None:
    check_contract(LogisticModel)


@pytest.mark.parametrize(("needs", "passes"), [((), False), (("sklearn",), True)])
def test_training_library_has_to_be_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: tuple[str, ...], passes: bool
) -> None:
    (tmp_path / f"site_model_{len(needs)}.py").write_text(
        "from forewarn.models.prediction.linear.logistic_model import LogisticModel\n"
        "class SiteModel(LogisticModel):\n"
        f"    needs = {needs!r}\n"
        "    @classmethod\n"
        "    def load(cls, folder):\n"
        "        import sklearn\n"
        "        return super().load(folder)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = __import__(f"site_model_{len(needs)}")
    if passes:
        model_contract.loading_needs_no_training_library(module.SiteModel)
    else:
        with pytest.raises(AssertionError, match=r"those in `needs`, got \['sklearn'\]"):
            model_contract.loading_needs_no_training_library(module.SiteModel)
