"""Names of the models, for those who need no model: a configuration, the command line."""

from __future__ import annotations

__all__ = ["BASELINE_NAMES", "MODEL_NAMES"]

MODEL_NAMES = ("cnn", "mlp", "gbdt", "lstm")
BASELINE_NAMES = ("random", "last_value", "logistic", "window_gbdt")
