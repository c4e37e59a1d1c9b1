"""Rates at which simulated GPUs begin to fail, by mechanism, and their drift over weeks.

"Trace" is the fault trace of 400 training servers over 349 days (stepfun-ai/InfiniteHBD-Trace,
584 faults); "guess" means that no public figure was found. No value was chosen by its effect on a
model.
"""

from __future__ import annotations

import numpy as np

from forewarn.evaluation.simulation.fleet.defects import MECHANISMS, SUDDEN
from forewarn.evaluation.simulation.fleet.fleet_hardware import FleetLayout
from forewarn.evaluation.simulation.fleet.random_streams import Purpose, ar1_step, random_stream
from forewarn.features.array_types import Float32Array, Float64Array

__all__ = ["FAILURES_PER_GPU_DAY", "FailureRates"]

FAILURES_PER_GPU_DAY = 0.08 / 30
"""One card fails at about 8 % a month (Ant, arXiv 2201.11853), relapses included."""

# Trace, the 217 faults of GPU, fan and power supply: double-bit and single-bit ECC 61; fan and GPU
# temperature 35; power supply 26; PCIe width and P2P bandwidth 28; lost, unknown, timeout, Xid,
# silent corruption 67.
_MIX = np.array([61, 35, 26, 28, 67]) / 217
# Guess, between 0 and the 8 of 10 Xid failures without any precursor of arXiv 2605.09370. Together
# with the sudden faults, about half of all failures have no precursor.
_SILENT = 0.3
# Trace: monthly counts of a class change by factors of 2 to 10 within months (GPUs of unknown
# error: 1 or none in most months, then 14, 8, 9). The memory is a guess.
_MIX_SPREAD, _MIX_MEMORY_DAYS = 0.7, 20.0
# Guess: drivers and workloads also change which symptom a defect shows.
_LEAN_SPREAD, _LEAN_MEMORY_DAYS = 1.0, 20.0

# Trace: faults per node that do not follow a repair within a week have mean 1.00 and variance
# 1.37, as a gamma-mixed Poisson with shape 2.7 has.
_MACHINE_FRAILTY_SHAPE = 2.7
# Guess: risers, connectors and corners of poor air flow; every board put there suffers.
_BAD_SLOTS, _BAD_SLOT_FACTOR = 0.02, 6.0


def _draw_position_frailty(rng: np.random.Generator, layout: FleetLayout) -> Float32Array:
    """Draw the factor of each position on the rate of each mechanism; 1 on average."""
    shape = _MACHINE_FRAILTY_SHAPE
    machines = rng.gamma(shape, 1 / shape, len(layout.machine_names))
    bad = np.where(rng.random(len(layout)) < _BAD_SLOTS, _BAD_SLOT_FACTOR, 1.0)
    slots = bad / (1 + _BAD_SLOTS * (_BAD_SLOT_FACTOR - 1))
    frailty = np.tile(machines[layout.machine], (len(MECHANISMS), 1))
    memory = layout.model_values("memory_frailty")
    frailty[0] *= memory / memory.mean()
    frailty[1:] *= slots  # memory faults belong to the board, not to its slot
    return frailty.astype(np.float32)


class FailureRates:
    """Rates of new fatal defects, by mechanism and position.

    Parameters
    ----------
    layout : FleetLayout
    seed : int
    """

    def __init__(self, layout: FleetLayout, seed: int) -> None:
        self._seed = seed
        rng = random_stream(seed, Purpose.FRAILTY)
        self._frailty = _draw_position_frailty(rng, layout)
        self._mix = (_MIX_SPREAD * rng.standard_normal(len(MECHANISMS))).astype(np.float32)
        self._lean = (_LEAN_SPREAD * rng.standard_normal(len(MECHANISMS))).astype(np.float32)

    def advance(self, day: int) -> None:
        """Let the mix of mechanisms and the leans drift by a day."""
        rng = random_stream(self._seed, Purpose.MIX, day)
        self._mix = ar1_step(rng, self._mix, spread=_MIX_SPREAD, memory_days=_MIX_MEMORY_DAYS)
        self._lean = ar1_step(rng, self._lean, spread=_LEAN_SPREAD, memory_days=_LEAN_MEMORY_DAYS)

    @property
    def shares(self) -> Float64Array:
        """Today's share of each mechanism in all failures; the total rate does not drift."""
        causes = _MIX * np.exp(self._mix.astype(np.float64))
        causes /= causes.sum()
        shares = causes * (1 - _SILENT)
        shares[SUDDEN] = causes[SUDDEN] + _SILENT * causes[:SUDDEN].sum()
        return np.asarray(shares)

    @property
    def leans(self) -> Float64Array:
        """Mean lean of today's new defects, by mechanism, between 0 and 1."""
        return np.asarray(1 / (1 + np.exp(-self._lean.astype(np.float64))))

    def per_day(self, mechanism: int, boards: Float32Array) -> Float32Array:
        """Return the rate of failures a day at each position.

        Parameters
        ----------
        mechanism : int
        boards : ndarray of shape (n_positions,)
            Frailty of the boards at the positions.
        """
        rate = FAILURES_PER_GPU_DAY * self.shares[mechanism]
        return np.asarray(rate * self._frailty[mechanism] * boards, np.float32)
