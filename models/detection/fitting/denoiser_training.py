"""Training of LSTM-VAE denoisers in Keras, without labels (Minder, section 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.models.detection.denoiser import HIDDEN, LATENT, LstmVae
from forewarn.models.tensorflow_runtime import fresh_keras, tensorflow

__all__ = ["build_vae", "fit_lstm_vae", "weights_from_keras"]


_EPOCHS = 30
_BATCH = 256
_LEARNING_RATE = 1e-2
_FINAL_RATE = 3e-4
# Weight of the Kullback-Leibler divergence in the loss. The reconstruction error has to fall below
# 1e-4 on metrics scaled to one; with a weight of one the latent variables would carry nothing.
_DIVERGENCE = 1e-5


def build_vae(keras: Any, length: int, n_parts: int) -> tuple[Any, Any]:
    """Return encoder (windows to mean and log variance) and decoder (latent to windows)."""
    layers = keras.layers
    # Unrolled: the overhead of a loop of eight steps exceeds its arithmetic.
    windows = layers.Input((length, n_parts))
    hidden = layers.LSTM(HIDDEN, unroll=True, name="encoder")(windows)
    mean = layers.Dense(LATENT, name="mean")(hidden)
    spread = layers.Dense(LATENT, name="log_variance")(hidden)
    encoder = keras.Model(windows, [mean, spread])
    latent = layers.Input((LATENT,))
    repeated = layers.RepeatVector(length)(latent)
    states = layers.LSTM(HIDDEN, return_sequences=True, unroll=True, name="decoder")(repeated)
    decoder = keras.Model(latent, layers.Dense(n_parts, name="output")(states))
    return encoder, decoder


def fit_lstm_vae(windows: Float32Array, *, seed: int) -> tuple[LstmVae, float]:
    """Fit a denoiser to windows of mostly healthy machines.

    Parameters
    ----------
    windows : ndarray of shape (n, length, parts), float32
        Scaled, without missing samples.
    seed : int

    Returns
    -------
    LstmVae
    float
        Mean squared error of the reconstruction.
    """
    keras, tf = fresh_keras(seed), tensorflow()
    _, length, n_parts = windows.shape
    encoder, decoder = build_vae(keras, length, n_parts)
    steps = -(-len(windows) // _BATCH)
    rate = keras.optimizers.schedules.CosineDecay(
        _LEARNING_RATE, _EPOCHS * steps, alpha=_FINAL_RATE / _LEARNING_RATE
    )
    optimizer = keras.optimizers.Adam(rate)
    variables = [*encoder.trainable_variables, *decoder.trainable_variables]
    optimizer.build(variables)

    def step(batch: Any, noise: Any) -> None:
        with tf.GradientTape() as tape:
            mean, spread = encoder(batch, training=True)
            decoded = decoder(mean + tf.exp(0.5 * spread) * noise, training=True)
            error = tf.reduce_mean(tf.square(decoded - batch))
            divergence = tf.reduce_mean(tf.square(mean) + tf.exp(spread) - 1.0 - spread)
            loss = error + _DIVERGENCE * divergence
        optimizer.apply(tape.gradient(loss, variables), variables)

    shapes = [tf.TensorSpec((None, length, n_parts)), tf.TensorSpec((None, LATENT))]
    compiled = tf.function(step, input_signature=shapes, autograph=False, jit_compile=False)
    generator = np.random.default_rng(seed)
    for _ in range(_EPOCHS):
        order = generator.permutation(len(windows))
        for rows in np.array_split(order, steps):
            noise = generator.standard_normal((len(rows), LATENT), dtype=np.float32)
            compiled(windows[rows], noise)
    fitted = LstmVae(length, weights_from_keras(encoder, decoder))
    return fitted, _error(fitted, windows)


def weights_from_keras(encoder: Any, decoder: Any) -> dict[str, Float32Array]:
    """Return the weights under the names that `LstmVae` expects."""
    weights: dict[str, Float32Array] = {}
    for name in ("encoder", "decoder"):
        layer = (encoder if name == "encoder" else decoder).get_layer(name)
        kernel, recurrent, bias = layer.get_weights()
        weights |= {f"{name}_kernel": kernel, f"{name}_recurrent": recurrent, f"{name}_bias": bias}
    for name, model in (("mean", encoder), ("output", decoder)):
        kernel, bias = model.get_layer(name).get_weights()
        weights |= {f"{name}_kernel": kernel, f"{name}_bias": bias}
    return {name: np.asarray(values, dtype=np.float32) for name, values in weights.items()}


def _error(fitted: LstmVae, windows: Float32Array) -> float:
    """Return the mean squared reconstruction error of the windows."""
    n, length, n_parts = windows.shape
    reconstructed = fitted.reconstruct(np.ascontiguousarray(windows.transpose(2, 0, 1)))
    originals = windows.reshape(n, length * n_parts).T
    return float(np.mean((reconstructed[0] - originals) ** 2))
