from __future__ import annotations

import numpy as np
import pytest

from forewarn.features.detection.metric_limits import MetricLimits


def test_limits_scale_without_clipping() -> None:
    limits = MetricLimits("power_draw", 100.0, 700.0)
    found = limits.scale(np.array([100.0, 400.0, 700.0, 1000.0, 40.0], np.float32))
    assert found == pytest.approx([0.0, 0.5, 1.0, 1.5, -0.1])


def test_log_applies_to_values_and_limits() -> None:
    limits = MetricLimits("pfc", 0.0, 20_000.0, log=True)
    found = limits.scale(np.array([0.0, 20_000.0, 99.0, -3.0], np.float32))
    assert found == pytest.approx([0.0, 1.0, np.log(100) / np.log(20_001), 0.0], abs=1e-6)


def test_non_finite_values_become_missing() -> None:
    found = MetricLimits("x").scale(np.array([np.nan, np.inf, -np.inf], np.float32))
    assert np.isnan(found).all()
