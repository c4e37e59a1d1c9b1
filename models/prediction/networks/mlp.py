"""The multilayer perceptron."""

from __future__ import annotations

from typing import Any

from forewarn.models.prediction.networks.base import NetworkModel

__all__ = ["MlpModel"]


class MlpModel(NetworkModel):
    """Two hidden layers on the flattened window and the context (arXiv 2201.11853).

    The paper gives the number of layers, not their widths.
    """

    def build(self, keras: Any, length: int, n_channels: int, n_context: int) -> Any:
        """Return the untrained network."""
        layers, ridge = keras.layers, keras.regularizers.L2(1e-3)
        sequence = layers.Input((length, n_channels), name="sequence")
        context = layers.Input((n_context,), name="context")
        hidden = layers.Concatenate()([layers.Flatten()(sequence), context])
        # A level over a week tells a GPU from all others: with half of the inputs gone at a time
        # the few that failed are not learned by heart.
        hidden = layers.Dropout(0.5)(hidden)
        for units in (16, 8):
            hidden = layers.Dense(units, activation="relu", kernel_regularizer=ridge)(hidden)
            hidden = layers.Dropout(0.2)(hidden)
        log_odds = layers.Dense(1, kernel_regularizer=ridge, name="log_odds")(hidden)
        return keras.Model([sequence, context], log_odds)
