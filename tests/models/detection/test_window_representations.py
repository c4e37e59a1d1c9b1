from __future__ import annotations

import numpy as np

from forewarn.models.detection.pairwise_distances import distance_sums
from forewarn.models.detection.window_representations import WindowMeans, fit_moments


def series(seed: int) -> np.ndarray:
    """Two metrics of eight machines: one periodic, one noise."""
    generator = np.random.default_rng(seed)
    found = generator.normal(0.5, 0.02, (2, 8, 400)).astype(np.float32)
    found[0] += 0.2 * np.sin(np.arange(400) / 3.0).astype(np.float32)
    return found


def test_outlier_has_largest_mahalanobis_distance() -> None:
    moments = fit_moments([series(seed) for seed in range(5)], 8)
    pull = series(9)
    pull[1, 3] -= 0.2
    windows = moments.reconstruct(pull)
    sums = distance_sums(windows, np.ones((len(windows), 8), dtype=bool), "euclidean")
    assert (sums.argmax(axis=1) == 3).mean() > 0.9


def test_moments_are_standardized() -> None:
    """Unscaled, kurtosis would dominate every component."""
    moments = fit_moments([series(seed) for seed in range(5)], 8)
    vectors = (
        moments.reconstruct(series(9)).transpose(0, 2, 1).reshape(-1, moments.whitening.shape[1])
    )
    assert np.allclose(vectors.std(axis=0), 1.0, atol=0.4)


def test_means_match_windows() -> None:
    pull = series(1)
    found = WindowMeans(8).reconstruct(pull)
    assert found.shape == (393, 2, 8)
    assert np.allclose(found[5, 1, 3], pull[1, 3, 5:13].mean(), atol=1e-6)
