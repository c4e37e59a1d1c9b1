"""The LSTM."""

from __future__ import annotations

from typing import Any

from forewarn.models.prediction.networks.base import NetworkModel

__all__ = ["LstmModel"]


class LstmModel(NetworkModel):
    """One LSTM layer of hidden size 10 (arXiv 2201.11853); the context joins its last state."""

    def build(self, keras: Any, length: int, n_channels: int, n_context: int) -> Any:
        """Return the untrained network."""
        layers, ridge = keras.layers, keras.regularizers.L2(1e-3)
        sequence = layers.Input((length, n_channels), name="sequence")
        context = layers.Input((n_context,), name="context")
        hidden = layers.SpatialDropout1D(0.1)(sequence)
        hidden = layers.LSTM(10, kernel_regularizer=ridge)(hidden)
        joined = layers.Dropout(0.1)(layers.Concatenate()([hidden, context]))
        log_odds = layers.Dense(1, kernel_regularizer=ridge, name="log_odds")(joined)
        return keras.Model([sequence, context], log_odds)
