"""Names of the models, importable without loading any model."""

from __future__ import annotations

__all__ = [
    "BASELINE_NAMES",
    "CASCADE_FIRST",
    "LINEAR",
    "MODEL_NAMES",
    "NETWORK_NAMES",
    "RESERVED_NAMES",
    "START_PREFIX",
    "TREE_NAMES",
    "model_kind",
]

LINEAR = "linear"  # may vote together with the ensemble members
MODEL_NAMES = ("cnn", "mlp", "gbdt", "lstm", LINEAR)
NETWORK_NAMES = ("cnn", "mlp", "lstm")  # trained by Keras
TREE_NAMES = ("gbdt", "window_gbdt")
BASELINE_NAMES = ("random", "last_value", "logistic", "window_gbdt")
CASCADE_FIRST = "cascade_first"  # the cascade's first model, with its own loss
START_PREFIX = "start_"  # prefix for models trained at another site
# Names of scores, ensembles and tables, which no plug-in model may have.
RESERVED_NAMES = frozenset(
    {*MODEL_NAMES, *BASELINE_NAMES, CASCADE_FIRST}
    | {"parallel", "cascade", "blend", "rules", "probability", "plugins"}
)


def model_kind(name: str, cascade_model: str) -> str:
    """Return the kind of model behind the name of a score.

    Examples
    --------
    >>> model_kind("start_gbdt", "cnn"), model_kind("cascade_first", "cnn")
    ('gbdt', 'cnn')
    """
    return cascade_model if name == CASCADE_FIRST else name.removeprefix(START_PREFIX)
