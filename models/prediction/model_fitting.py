"""Fitting of all models of a recipe to one training set."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock

from forewarn.features.threads import n_threads
from forewarn.models.prediction.ensembles import CASCADE_FIRST
from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.model_catalogue import BUILTIN, ModelCatalogue
from forewarn.models.prediction.model_names import NETWORK_NAMES, TREE_NAMES, model_kind
from forewarn.models.prediction.training_set import Recipe, TrainingSet

__all__ = ["fit_model", "fit_models"]

# A linear fit limits the number of BLAS threads for the whole process. Fits that run at the same
# time would give results that depend on timing.
_BLAS_LOCK = Lock()


def fit_model(
    recipe: Recipe, name: str, training: TrainingSet, catalogue: ModelCatalogue = BUILTIN
) -> FailureModel:
    """Fit one model; `cascade_first` is the cascade's first model, with its own positive weight."""
    weight = recipe.positive_weight
    if name == CASCADE_FIRST:
        name, weight = recipe.cascade_model, recipe.cascade_positive_weight
    model = catalogue.make(
        name,
        seed=recipe.seed,
        purge=recipe.horizon,
        positive_weight=weight,
        hyperparameters=recipe.hyperparameters.get(name),
    )
    if training.few is not None and not getattr(model, "large_training_set", False):
        training = training.few
    return model.fit(training.inputs, training.labels, training.weights, training.ends)


def fit_models(
    recipe: Recipe,
    training: TrainingSet,
    names: Sequence[str],
    catalogue: ModelCatalogue = BUILTIN,
) -> dict[str, FailureModel]:
    """Fit the networks one after another and, on the other cores, the remaining models.

    Keras uses process-wide random generators, so two networks must not be fitted at the same time.
    Linear models, baselines and plug-in models are fitted one at a time. Trees have their own
    tables and are fitted in parallel, one per core.

    Returns
    -------
    dict of str to FailureModel
        In the order of `names`; see `fit_model`.
    """
    # Networks and linear models import different parts of scikit-learn. If two threads import it at
    # the same time, each may see a partially initialized module.
    import sklearn.metrics  # noqa: F401  # loaded for that alone

    kinds = {name: model_kind(name, recipe.cascade_model) for name in names}
    networks = [name for name in names if kinds[name] in NETWORK_NAMES]
    # Trees take longest and start first.
    rest = [name for name in names if name not in networks]
    rest.sort(key=lambda name: kinds[name] not in TREE_NAMES)

    def fit(name: str) -> FailureModel:
        alone = kinds[name] not in (*NETWORK_NAMES, *TREE_NAMES)
        with _BLAS_LOCK if alone else nullcontext():
            return fit_model(recipe, name, training, catalogue)

    with ThreadPoolExecutor(max(1, n_threads() - bool(networks))) as pool:
        others = {name: pool.submit(fit, name) for name in rest}
        try:
            models = {name: fit(name) for name in networks}
            models |= {name: other.result() for name, other in others.items()}
        finally:
            for other in others.values():
                other.cancel()
    return {name: models[name] for name in names}
