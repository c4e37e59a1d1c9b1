"""Names of the models, for those who need no model: a configuration, the command line."""

from __future__ import annotations

__all__ = [
    "BASELINE_NAMES",
    "CASCADE_FIRST",
    "LINEAR",
    "MODEL_NAMES",
    "NETWORK_NAMES",
    "START_PREFIX",
    "TREE_NAMES",
    "model_kind",
]

LINEAR = "linear"  # may vote beside the others in what ranks the list
MODEL_NAMES = ("cnn", "mlp", "gbdt", "lstm", LINEAR)
NETWORK_NAMES = ("cnn", "mlp", "lstm")  # which Keras trains
TREE_NAMES = ("gbdt", "window_gbdt")
BASELINE_NAMES = ("random", "last_value", "logistic", "window_gbdt")
CASCADE_FIRST = "cascade_first"  # the cascade's first model, which has a loss of its own
START_PREFIX = "start_"  # before the name of a model that another site trained


def model_kind(name: str, cascade_model: str) -> str:
    """Return the kind of model behind the name of a score.

    Examples
    --------
    >>> kind_of("start_gbdt", "cnn"), kind_of("cascade_first", "cnn")
    ('gbdt', 'cnn')
    """
    return cascade_model if name == CASCADE_FIRST else name.removeprefix(START_PREFIX)
