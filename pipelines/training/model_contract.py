"""The contract of failure models as tests, for authors of plug-in models.

`forewarn.models.prediction.failure_model` has the text of each clause. In a test of a plug-in::

    @pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
    def test_model_meets_contract(clause):
        clause(MyModel)

A clause raises AssertionError if the class does not meet it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int8Array, Int64Array
from forewarn.features.errors import InputError
from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.features.time_units import DAY
from forewarn.models.prediction.hyperparameters import hyperparameters_of
from forewarn.models.prediction.model_catalogue import ModelClass

__all__ = [
    "CLAUSES",
    "HELD_OUT",
    "LEARNING_CLAUSES",
    "TRAINING",
    "TRAINING_LIBRARIES",
    "area_under_curve",
    "check_contract",
    "fitted_once",
    "fitted_with_other_seed",
    "sample",
]

TRAINING_LIBRARIES = ("keras", "lightgbm", "sklearn", "tensorflow", "torch", "xgboost", "catboost")
_SUFFIXES = {".json", ".keras", ".npz", ".skops", ".txt"}
_LEVELS = 16
_SEED = 3

Clause = Callable[[ModelClass], None]


@dataclass(frozen=True)
class Sample:
    """Instances to fit and score."""

    inputs: ModelInputs
    labels: Int8Array
    weights: Float32Array
    ends: Int64Array

    @property
    def arguments(self) -> tuple[ModelInputs, Int8Array, Float32Array, Int64Array]:
        """The arguments of `fit`."""
        return self.inputs, self.labels, self.weights, self.ends


def sample(
    n: int = 240, *, length: int = 4, n_channels: int = 5, n_context: int = 6, seed: int = 0
) -> Sample:
    """Return noise except in the first channel: positives are five buckets higher."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 3 == 0).astype(np.int8)
    sequence = rng.integers(0, 11, (n, length, n_channels), dtype=np.uint8)
    sequence[labels == 1, :, 0] += 5
    inputs = ModelInputs(
        sequence,
        rng.integers(0, _LEVELS, (n, n_context), dtype=np.uint8),
        tuple(f"channel{i}" for i in range(n_channels)),
        tuple(f"category:{i}" if i % 2 else f"context{i}" for i in range(n_context)),
        (_LEVELS,) * n_channels,
        (_LEVELS,) * n_context,
    )
    weights = np.where(labels == 1, 2.0, 1.0).astype(np.float32)
    return Sample(inputs, labels, weights, rng.integers(0, 15 * DAY, n))


TRAINING = sample()
HELD_OUT = sample(1_100, seed=1)


def _fitted(model_class: ModelClass, some: Sample = TRAINING, **options: Any) -> Any:
    model = model_class(**{"seed": _SEED, "purge": DAY, "positive_weight": 1.0} | options)
    return model.fit(*some.arguments)


@cache
def _cached(model_class: Any, number: int) -> Any:
    """Return the fit of a number; only the second has another seed, which must change no other."""
    if number:
        _cached(model_class, number - 1)
    return _fitted(model_class, seed=_SEED + (number == 1))


def fitted_once(model_class: Any) -> Any:
    """Return one fitted model, shared by the clauses that do not change it."""
    return _cached(model_class, 0)


def fitted_with_other_seed(model_class: Any) -> Any:
    """Return a shared model with another seed."""
    return _cached(model_class, 1)


def _fitted_again(model_class: Any) -> Any:
    """Return a model that was fitted after one with another seed."""
    return _cached(model_class, 2)


def _saved(model: Any) -> dict[str, bytes]:
    """Save a model; return the content of each file."""
    with TemporaryDirectory() as folder:
        model.save(Path(folder))
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _loaded(model_class: ModelClass, model: Any) -> Any:
    with TemporaryDirectory() as folder:
        model.save(Path(folder))
        return model_class.load(Path(folder))


def _blinded(inputs: ModelInputs) -> ModelInputs:
    """Return the instances with every value missing."""
    sequence, context = np.zeros_like(inputs.sequence), np.zeros_like(inputs.context)
    return replace(inputs, sequence=sequence, context=context)


def area_under_curve(labels: Int8Array, scores: Float64Array) -> float:
    """Return the area under the ROC curve; ties count half.

    >>> area_under_curve(np.array([0, 1, 0], np.int8), np.array([0.1, 0.9, 0.9]))
    0.75
    """
    positive, negative = scores[labels == 1], scores[labels == 0]
    above = (positive[:, None] > negative).sum() + 0.5 * (positive[:, None] == negative).sum()
    return float(above / (len(positive) * len(negative)))


def _area(model: Any) -> float:
    return area_under_curve(HELD_OUT.labels, model.score(HELD_OUT.inputs))


def hyperparameters_are_declared(model_class: ModelClass) -> None:
    """Construct the model with every hyperparameter at its default."""
    declared = hyperparameters_of(model_class)
    for name, item in declared.items():
        assert not item.problem(item.default), f"the default of `{name}` is outside of its range"
    defaults: dict[str, Any] = {name: item.default for name, item in declared.items()}
    _fitted(model_class, **defaults)


def fit_changes_no_input(model_class: ModelClass) -> None:
    """Fit and score; the arrays stay as they are."""
    small = sample(60, length=1)
    arrays: list[Any] = [small.inputs.sequence, small.inputs.context, *small.arguments[1:]]
    before = [array.copy() for array in arrays]
    model = model_class(seed=_SEED, purge=DAY, positive_weight=1.0)
    assert model.fit(*small.arguments) is model, "`fit` has to return the model"
    model.score(small.inputs)
    for array, copy in zip(arrays, before, strict=True):
        assert np.array_equal(array, copy), "`fit` or `score` changed its arguments"


def same_seed_gives_same_scores(model_class: ModelClass) -> None:
    """Fit twice, with a fit of another seed in between."""
    first = fitted_once(model_class)
    expected = first.score(HELD_OUT.inputs)
    assert np.array_equal(_fitted_again(model_class).score(HELD_OUT.inputs), expected)
    assert np.array_equal(first.score(HELD_OUT.inputs), expected)


def weights_count(model_class: ModelClass) -> None:
    """Fit on data of which half has the opposite label and no weight."""
    lies = np.arange(len(TRAINING.labels)) % 2 == 0
    labels = np.where(lies, 1 - TRAINING.labels, TRAINING.labels).astype(np.int8)
    weights = np.where(lies, 1e-6, 1.0).astype(np.float32)
    model = _fitted(model_class, replace(TRAINING, labels=labels, weights=weights))
    assert _area(model) > 0.8, "`weights` are ignored"


def positive_weight_raises_scores(model_class: ModelClass) -> None:
    """Fit noisy labels with ten times the weight of the positives."""
    labels = np.where(
        np.arange(len(TRAINING.labels)) % 4 == 0, 1 - TRAINING.labels, TRAINING.labels
    )
    noisy = replace(TRAINING, labels=labels.astype(np.int8))
    usual, heavy = (
        _fitted(model_class, noisy, positive_weight=weight).score(HELD_OUT.inputs).mean()
        for weight in (1.0, 10.0)
    )
    assert heavy > usual + 0.02, "`positive_weight` is ignored"


def one_class_is_refused(model_class: ModelClass) -> None:
    """Fit on labels of one class."""
    for label in (0, 1):
        labels = np.full_like(TRAINING.labels, label)
        try:
            _fitted(model_class, replace(TRAINING, labels=labels))
        except ValueError as error:
            refusal = str(error)
        else:
            refusal = ""
        assert "`labels`" in refusal, "`fit` has to refuse labels of one class, and name `labels`"


def smallest_inputs_are_accepted(model_class: ModelClass) -> None:
    """Fit on one record of one channel, without context."""
    small = sample(90, length=1, n_channels=1, n_context=0)
    model = _fitted(model_class, small)
    scores = model.score(small.inputs)
    assert scores.shape == (90,)
    assert np.isfinite(scores).all()
    assert np.array_equal(_loaded(model_class, model).score(small.inputs), scores)


def signal_is_learned(model_class: ModelClass) -> None:
    """Find the channel that tells the classes apart."""
    assert _area(fitted_once(model_class)) > 0.8


def shuffled_labels_teach_nothing(model_class: ModelClass) -> None:
    """Fit on shuffled labels."""
    labels = np.random.default_rng(5).permutation(TRAINING.labels)
    assert 0.3 < _area(_fitted(model_class, replace(TRAINING, labels=labels))) < 0.7


def scores_are_probabilities(model_class: ModelClass) -> None:
    """Check shape, type and range."""
    scores = fitted_once(model_class).score(HELD_OUT.inputs)
    assert scores.shape == (len(HELD_OUT.inputs),)
    assert scores.dtype == np.float64
    assert ((scores >= 0.0) & (scores <= 1.0)).all()


def scores_do_not_depend_on_batch(model_class: ModelClass) -> None:
    """Score every seventh instance alone, in reverse order."""
    model, rows = fitted_once(model_class), np.arange(len(HELD_OUT.inputs))[::-7]
    together = model.score(HELD_OUT.inputs)[rows]
    assert np.allclose(model.score(HELD_OUT.inputs.select(rows)), together, atol=1e-6)


def no_instances_no_scores(model_class: ModelClass) -> None:
    """Score nothing."""
    scores = fitted_once(model_class).score(HELD_OUT.inputs.select(slice(0, 0)))
    assert scores.shape == (0,)


def missing_values_are_scored(model_class: ModelClass) -> None:
    """Score missing values, then fit on nothing else."""
    few = _blinded(HELD_OUT.inputs.select(slice(0, 5)))
    assert np.isfinite(fitted_once(model_class).score(few)).all()
    inputs = _blinded(TRAINING.inputs)
    scores = _fitted(model_class, replace(TRAINING, inputs=inputs)).score(inputs)
    assert np.isfinite(scores).all()
    assert np.ptp(scores) < 1e-6


def other_columns_are_refused(model_class: ModelClass) -> None:
    """Score with the context in another order, before and after loading."""
    model = fitted_once(model_class)
    names = HELD_OUT.inputs.context_names
    swapped = replace(HELD_OUT.inputs, context_names=names[::-1])
    for fitted in (model, _loaded(model_class, model)):
        try:
            fitted.score(swapped)
        except InputError:
            continue
        raise AssertionError("`score` has to call `InputColumns.refuse_others`")


def files_are_native(model_class: ModelClass) -> None:
    """Look at the names of the files."""
    suffixes = {Path(name).suffix for name in _saved(fitted_once(model_class))}
    assert suffixes <= _SUFFIXES, f"expected files of {sorted(_SUFFIXES)}, got {sorted(suffixes)}"


def same_seed_saves_same_bytes(model_class: ModelClass) -> None:
    """Compare the files of two fits, and of one model saved twice."""
    first = fitted_once(model_class)
    once = _saved(first)
    assert _saved(first) == once, "saving twice gives other bytes"
    assert _saved(_fitted_again(model_class)) == once, "two fits with one seed save other bytes"


def loaded_model_is_equal(model_class: ModelClass) -> None:
    """Save, load, save and load."""
    model = fitted_once(model_class)
    again = _loaded(model_class, model)
    assert _saved(again) == _saved(model), "a loaded model saves other bytes"
    scores = _loaded(model_class, again).score(HELD_OUT.inputs)
    assert np.array_equal(scores, model.score(HELD_OUT.inputs))


def loading_needs_no_training_library(model_class: ModelClass) -> None:
    """Load and score in a new process; look at the modules that it imported."""
    allowed = set(getattr(model_class, "needs", ()))
    refused = sorted(set(TRAINING_LIBRARIES) - allowed)
    module, name = model_class.__module__, model_class.__qualname__  # type: ignore[attr-defined]
    with TemporaryDirectory() as folder:
        fitted_once(model_class).save(Path(folder))
        code = (
            f"import sys\nfrom pathlib import Path\nfrom {module} import {name.split('.')[0]}\n"
            "from forewarn.pipelines.training.model_contract import HELD_OUT\n"
            f"{name}.load(Path({folder!r})).score(HELD_OUT.inputs)\n"
            f"print(sorted(set({refused!r}) & set(sys.modules)))"
        )
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
    assert run.stdout.strip() == "[]", (
        f"expected no training library but those in `needs`, got {run.stdout.strip()} "
        f"{run.stderr[-500:]}"
    )


LEARNING_CLAUSES: tuple[Clause, ...] = (
    weights_count,
    positive_weight_raises_scores,
    one_class_is_refused,
    signal_is_learned,
    scores_do_not_depend_on_batch,
    missing_values_are_scored,
    other_columns_are_refused,
)
"""The clauses that a model without learning, such as a random one, does not meet."""

CLAUSES: tuple[Clause, ...] = (
    hyperparameters_are_declared,
    fit_changes_no_input,
    same_seed_gives_same_scores,
    smallest_inputs_are_accepted,
    shuffled_labels_teach_nothing,
    scores_are_probabilities,
    no_instances_no_scores,
    files_are_native,
    same_seed_saves_same_bytes,
    loaded_model_is_equal,
    loading_needs_no_training_library,
    *LEARNING_CLAUSES,
)


def check_contract(model_class: ModelClass) -> None:
    """Check all clauses.

    Raises
    ------
    AssertionError
        If the class does not meet one.
    """
    for clause in CLAUSES:
        clause(model_class)
