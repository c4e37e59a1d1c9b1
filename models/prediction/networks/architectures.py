"""Network architectures: a 1D-CNN, a multilayer perceptron and an LSTM."""

from __future__ import annotations

from typing import Any

from forewarn.models.prediction.networks.network_model import NetworkModel

__all__ = ["CnnModel", "LstmModel", "MlpModel"]


def _inputs(layers: Any, length: int, n_channels: int, n_context: int) -> tuple[Any, Any]:
    sequence = layers.Input((length, n_channels), name="sequence")
    return sequence, layers.Input((n_context,), name="context")


class CnnModel(NetworkModel):
    """Four convolution layers over the window, then two dense layers (arXiv 2201.11853).

    The paper gives the number of layers but not their widths. The context is concatenated with the
    pooled convolutions before the dense layers. A window shorter than the kernels is padded.
    """

    def build(self, keras: Any, length: int, n_channels: int, n_context: int) -> Any:
        """Return the untrained network."""
        layers, ridge = keras.layers, keras.regularizers.L2(self.l2)
        sequence, context = _inputs(layers, length, n_channels, n_context)
        hidden = layers.SpatialDropout1D(0.1)(sequence)
        for halve in (False, True, False, False):
            hidden = layers.Conv1D(
                12, 3, padding="same", activation="relu", kernel_regularizer=ridge
            )(hidden)
            if halve:
                hidden = layers.MaxPooling1D(2, padding="same")(hidden)
        # Max pooling keeps short bursts in the window, which average pooling dilutes.
        pooled = [layers.GlobalAveragePooling1D()(hidden), layers.GlobalMaxPooling1D()(hidden)]
        # A level over a week tells a GPU from all others: with half of the inputs gone at a time
        # the few that failed are not learned by heart.
        joined = layers.Dropout(0.5)(layers.Concatenate()([*pooled, context]))
        joined = layers.Dense(8, activation="relu", kernel_regularizer=ridge)(joined)
        joined = layers.Dropout(0.2)(joined)
        log_odds = layers.Dense(1, kernel_regularizer=ridge, name="log_odds")(joined)
        return keras.Model([sequence, context], log_odds)


class MlpModel(NetworkModel):
    """Two hidden layers on the flattened window and the context (arXiv 2201.11853).

    The paper gives the number of layers, not their widths.
    """

    def build(self, keras: Any, length: int, n_channels: int, n_context: int) -> Any:
        """Return the untrained network."""
        layers, ridge = keras.layers, keras.regularizers.L2(self.l2)
        sequence, context = _inputs(layers, length, n_channels, n_context)
        hidden = layers.Concatenate()([layers.Flatten()(sequence), context])
        # A level over a week tells a GPU from all others: with half of the inputs gone at a time
        # the few that failed are not learned by heart.
        hidden = layers.Dropout(0.5)(hidden)
        for units in (16, 8):
            hidden = layers.Dense(units, activation="relu", kernel_regularizer=ridge)(hidden)
            hidden = layers.Dropout(0.2)(hidden)
        log_odds = layers.Dense(1, kernel_regularizer=ridge, name="log_odds")(hidden)
        return keras.Model([sequence, context], log_odds)


class LstmModel(NetworkModel):
    """One LSTM layer of hidden size 10 (arXiv 2201.11853); the context joins its last state."""

    def build(self, keras: Any, length: int, n_channels: int, n_context: int) -> Any:
        """Return the untrained network."""
        layers, ridge = keras.layers, keras.regularizers.L2(self.l2)
        sequence, context = _inputs(layers, length, n_channels, n_context)
        hidden = layers.SpatialDropout1D(0.1)(sequence)
        hidden = layers.LSTM(10, kernel_regularizer=ridge)(hidden)
        joined = layers.Dropout(0.1)(layers.Concatenate()([hidden, context]))
        log_odds = layers.Dense(1, kernel_regularizer=ridge, name="log_odds")(joined)
        return keras.Model([sequence, context], log_odds)
