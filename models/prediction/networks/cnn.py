"""The 1D-CNN."""

from __future__ import annotations

from typing import Any

from forewarn.models.prediction.networks.base import NetworkModel

__all__ = ["CnnModel"]


class CnnModel(NetworkModel):
    """Four convolution layers over the window, then two dense layers (arXiv 2201.11853).

    The paper gives the number of layers, not their widths. The context joins the pooled
    convolutions before the dense layers. A window shorter than the kernels is padded.
    """

    def build(self, keras: Any, length: int, n_channels: int, n_context: int) -> Any:
        """Return the untrained network."""
        layers, ridge = keras.layers, keras.regularizers.L2(1e-3)
        sequence = layers.Input((length, n_channels), name="sequence")
        context = layers.Input((n_context,), name="context")
        hidden = layers.SpatialDropout1D(0.1)(sequence)
        for halve in (False, True, False, False):
            hidden = layers.Conv1D(
                12, 3, padding="same", activation="relu", kernel_regularizer=ridge
            )(hidden)
            if halve:
                hidden = layers.MaxPooling1D(2, padding="same")(hidden)
        # What an average dilutes, such as one burst in the window, a maximum keeps.
        pooled = [layers.GlobalAveragePooling1D()(hidden), layers.GlobalMaxPooling1D()(hidden)]
        # A level over a week tells a GPU from all others: with half of the inputs gone at a time
        # the few that failed are not learned by heart.
        joined = layers.Dropout(0.5)(layers.Concatenate()([*pooled, context]))
        joined = layers.Dense(8, activation="relu", kernel_regularizer=ridge)(joined)
        joined = layers.Dropout(0.2)(joined)
        log_odds = layers.Dense(1, kernel_regularizer=ridge, name="log_odds")(joined)
        return keras.Model([sequence, context], log_odds)
