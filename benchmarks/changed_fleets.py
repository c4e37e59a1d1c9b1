"""Simulated fleets of sites that differ in every parameter and in the form of the noise.

Each float constant of the simulator, and each range or mean of floats, is multiplied by its own
log-normal factor. Noise that is normal has the heavy tails of Student's t instead, and noise that
is gamma distributed is log-normal with the same mean and variance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from forewarn.evaluation.simulation import fleet
from forewarn.evaluation.simulation.fleet.random_streams import Purpose
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

__all__ = ["simulate_changed_fleet"]

_SPREAD = 0.4  # standard deviation of the logarithm of a factor
_MAX_SHARE = 0.95
_DEGREES = 4.0  # of freedom of Student's t


class _OtherNoise(np.random.Generator):
    """A generator whose normal and gamma numbers have other distributions of the same variance."""

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        del out
        drawn = self.standard_t(_DEGREES, size) / np.sqrt(_DEGREES / (_DEGREES - 2.0))
        return drawn if size is None else drawn.astype(dtype)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> Any:
        variance = np.log1p(1.0 / np.asarray(shape))
        return self.lognormal(np.log(shape * scale) - variance / 2.0, np.sqrt(variance), size)


def _other_stream(seed: int, purpose: Purpose, day: int = -1000) -> np.random.Generator:
    return _OtherNoise(np.random.PCG64((seed, int(purpose), day + 1000)))


def _changed(value: Any, rng: np.random.Generator) -> Any:
    """Return a constant times a random factor; a share stays one. None: no such constant."""
    factor = float(np.exp(_SPREAD * rng.standard_normal()))
    if isinstance(value, float):
        return min(value * factor, _MAX_SHARE) if 0.0 < value < 1.0 else value * factor
    if isinstance(value, tuple) and value and all(isinstance(v, float) for v in value):
        shares = all(0.0 <= v <= 1.0 for v in value)
        return tuple(min(v * factor, 1.0) if shares else v * factor for v in value)
    if isinstance(value, np.ndarray):
        scaled = value * np.exp(_SPREAD * rng.standard_normal(value.shape))
        return scaled / scaled.sum() * value.sum()
    return None


def _modules() -> Iterator[ModuleType]:
    for module in iter_modules(fleet.__path__):
        yield import_module(f"{fleet.__name__}.{module.name}")


def simulate_changed_fleet(folder: Path, *, n_gpus: int, n_days: int, seed: int) -> None:
    """Simulate a fleet with parameters drawn by the seed; see the docstring of the module."""
    rng = np.random.default_rng((51, seed))
    with ExitStack() as patches:
        for module in _modules():
            for name, value in sorted(vars(module).items()):
                constant = _changed(value, rng) if name.isupper() else None
                if constant is not None:
                    patches.enter_context(patch.object(module, name, constant))
            if hasattr(module, "random_stream"):
                patches.enter_context(patch.object(module, "random_stream", _other_stream))
        simulate_fleet_to(folder, n_gpus=n_gpus, n_days=n_days, seed=seed, progress=False)
