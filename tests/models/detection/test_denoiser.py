from __future__ import annotations

import numpy as np
import pytest

from forewarn.models.detection.denoiser import HIDDEN, LATENT, LstmVae
from forewarn.models.detection.fitting.denoiser_training import (
    build_vae,
    fit_lstm_vae,
    weights_from_keras,
)
from forewarn.models.detection.windows import Windows
from forewarn.models.tensorflow_runtime import fresh_keras

LENGTH = 8
Floats = np.ndarray


def random_weights(n_parts: int, scale: float, seed: int = 0) -> dict[str, Floats]:
    shapes = {
        "encoder_kernel": (n_parts, 4 * HIDDEN),
        "encoder_recurrent": (HIDDEN, 4 * HIDDEN),
        "encoder_bias": (4 * HIDDEN,),
        "mean_kernel": (HIDDEN, LATENT),
        "mean_bias": (LATENT,),
        "decoder_kernel": (LATENT, 4 * HIDDEN),
        "decoder_recurrent": (HIDDEN, 4 * HIDDEN),
        "decoder_bias": (4 * HIDDEN,),
        "output_kernel": (HIDDEN, n_parts),
        "output_bias": (n_parts,),
    }
    generator = np.random.default_rng(seed)
    return {
        name: (scale * generator.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_scores_match_keras(n_parts: int, scale: float) -> None:
    keras = fresh_keras(0)
    encoder, decoder = build_vae(keras, LENGTH, n_parts)
    generator = np.random.default_rng(1)
    for variable in [*encoder.trainable_variables, *decoder.trainable_variables]:
        variable.assign(scale * generator.standard_normal(variable.shape))
    series = generator.normal(0.5, 0.5, (n_parts, 5, 90)).astype(np.float32)
    ours = LstmVae(LENGTH, weights_from_keras(encoder, decoder)).reconstruct(series)
    n_windows = 90 - LENGTH + 1
    windows = Windows.from_series(series, LENGTH, np.arange(n_windows)).apart()
    windows = windows.transpose(0, 2, 1).reshape(-1, LENGTH, n_parts)
    theirs = decoder.predict(encoder.predict(windows, verbose=0)[0], verbose=0)
    wanted = theirs.reshape(n_windows, 5, LENGTH * n_parts).transpose(0, 2, 1)
    assert np.abs(ours - wanted).max() < 1e-5


def test_window_is_independent_of_others() -> None:
    model = LstmVae(LENGTH, random_weights(1, 0.5))
    series = np.random.default_rng(2).random((1, 7, 300)).astype(np.float32)
    whole = model.reconstruct(series)
    assert np.array_equal(model.reconstruct(series[:, 3:4])[:, :, 0], whole[:, :, 3])
    assert np.array_equal(model.reconstruct(series[:, :, 100:])[:50], whole[100:150])


def test_missing_samples_affect_own_windows_only() -> None:
    model = LstmVae(LENGTH, random_weights(1, 0.5))
    series = np.random.default_rng(3).random((1, 4, 60)).astype(np.float32)
    holed = series.copy()
    holed[0, 2, 30] = np.nan
    found, whole = model.reconstruct(holed), model.reconstruct(series)
    assert np.isfinite(found).all()
    assert np.array_equal(found[:23], whole[:23])
    assert np.array_equal(np.delete(found, 2, axis=2), np.delete(whole, 2, axis=2))


def test_too_few_samples_give_no_windows() -> None:
    model = LstmVae(LENGTH, random_weights(1, 0.5))
    assert model.reconstruct(np.zeros((1, 3, 5), np.float32)).shape == (0, 8, 3)


def test_training_learns_shape_without_noise() -> None:
    generator = np.random.default_rng(0)
    level = generator.uniform(0.2, 0.8, (4000, 1, 1)).astype(np.float32)
    clean = np.repeat(level, LENGTH, axis=1)
    noisy = clean + 0.05 * generator.standard_normal(clean.shape).astype(np.float32)
    model, error = fit_lstm_vae(noisy, seed=0)
    found = model.reconstruct(noisy.transpose(2, 0, 1))[0].T
    assert np.mean((found - clean[:, :, 0]) ** 2) < 0.5 * 0.05**2
    assert error < 2 * 0.05**2
    again, _ = fit_lstm_vae(noisy, seed=0)
    assert all(np.array_equal(again.weights[n], w) for n, w in model.weights.items())
