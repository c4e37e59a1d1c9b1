from __future__ import annotations

import numpy as np

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.trees.window_statistics import WindowStatsGbdt


def inputs() -> ModelInputs:
    sequence = np.array([[[2, 0], [6, 0], [4, 0]], [[0, 3], [5, 1], [7, 3]]], dtype=np.uint8)
    context = np.array([[9, 1, 0], [8, 0, 1]], dtype=np.uint8)
    names = ("age", "category:gpu_type=V100", "category:gpu_type=T4")
    return ModelInputs(sequence, context, ("a", "b"), names, (10, 10), (10, 2, 2))


def test_statistics_ignore_missing_values() -> None:
    model = WindowStatsGbdt(seed=0)
    rows = [
        dict(zip(model.names(inputs()), row, strict=True))
        for row in model.table(inputs()).astype(float).tolist()
    ]
    first, second = rows
    assert (first["a mean"], first["a min"], first["a max"]) == (4.0, 2.0, 6.0)
    assert np.isclose(first["a std"], np.sqrt(8 / 3))
    assert (first["a last"], first["a change"]) == (4.0, 2.0)
    assert (second["a mean"], second["a std"], second["a min"]) == (6.0, 1.0, 5.0)
    assert second["a last"] == 7.0
    assert np.isnan(second["a change"])
    assert (second["b min"], second["b max"], second["b change"]) == (1.0, 3.0, 0.0)


def test_missing_channel_has_nan_statistics() -> None:
    model = WindowStatsGbdt(seed=0)
    row = dict(zip(model.names(inputs()), model.table(inputs())[0], strict=True))
    assert all(np.isnan(value) for name, value in row.items() if name.startswith("b "))


def test_only_categories_of_context_are_used() -> None:
    model = WindowStatsGbdt(seed=0)
    assert model.names(inputs())[12:] == ("category:gpu_type=V100", "category:gpu_type=T4")
    assert model.table(inputs())[:, 12:].tolist() == [[1.0, 0.0], [0.0, 1.0]]
