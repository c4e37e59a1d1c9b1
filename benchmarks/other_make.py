"""Simulates a fleet of another make: other defects, other rates, heavy-tailed noise.

    python -m benchmarks.other_make --out FLEETS/5103 --gpus 1200 --days 60 --seed 5103

Constants of the simulator are replaced, so that symptoms are shorter and of other strength, other
mechanisms fail, fewer failures come without symptoms, and errors cluster more. Sensors get
additional noise by Student's t with 2.5 degrees of freedom, and a tenth of the power readings is
missing. The values were fixed before any score on such a fleet was seen.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from forewarn.evaluation.simulation.fleet import counters, defects, failure_rates, sensors
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

_CONSTANTS: dict[ModuleType, dict[str, Any]] = {
    defects: {
        "_MEDIAN_DAYS": (2.0, 3.0, 4.0, 5.0),
        "_LENGTH_SPREAD": 0.6,
        "_FATAL_REACH": (0.6, 1.0),
        "_BENIGN_REACH": (0.05, 0.7),
        "_CURVE_SPREAD": 0.2,
        "_STRENGTH_SPREAD": 0.9,
    },
    failure_rates: {
        "FAILURES_PER_GPU_DAY": 0.06 / 30,
        "_MIX": np.array([20, 30, 60, 70, 37]) / 217,
        "_SILENT": 0.1,
        "_MIX_SPREAD": 0.3,
    },
    counters: {"_BURSTINESS": 0.15, "_ECC_LOG": (1.0, 2.0), "_REPLAY_LOG": (0.0, 3.5)},
    sensors: {"_HOTTER": 0.2, "_DIPS": 0.25, "_OSCILLATION": 0.3, "_CELSIUS_NOISE": 1.2},
}
_NOISE = {"temperature_gpu": 1.0, "power_draw": 6.0, "clock_sm": 20.0}
_DEGREES_OF_FREEDOM = 2.5
_MISSING_POWER = 0.1


def _add_noise(path: Path, rng: np.random.Generator) -> None:
    """Add heavy-tailed noise to the records of a day."""
    frame = pd.read_parquet(path)
    for name, scale in _NOISE.items():
        noise = scale * rng.standard_t(_DEGREES_OF_FREEDOM, len(frame))
        values = (frame[name].astype("float64") + noise).clip(lower=0.0)
        if pd.api.types.is_integer_dtype(frame[name].dtype):
            values = values.round()
        frame[name] = values.astype(frame[name].dtype)
    lost = rng.random(len(frame)) < _MISSING_POWER
    frame["power_draw"] = frame["power_draw"].mask(lost)
    frame.to_parquet(path, index=False)


def main() -> None:
    """Write the fleet like `forewarn simulate fleet`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    for name, default in (("gpus", 1200), ("days", 60), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    for module, values in _CONSTANTS.items():
        for name, value in values.items():
            getattr(module, name)  # fails if the simulator has no such constant
            setattr(module, name, value)
    simulate_fleet_to(args.out, n_gpus=args.gpus, n_days=args.days, seed=args.seed)
    rng = np.random.default_rng(args.seed)
    for path in sorted(args.out.glob("records/date=*/*.parquet")):
        _add_noise(path, rng)


if __name__ == "__main__":
    main()
