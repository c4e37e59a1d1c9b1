"""A fleet whose machines get defects, most of them latent before a job meets them.

Defects of a machine come at its own rate, drawn once. A latent one is met by a job after some days,
unless an inspection finds it first; a sudden one is met at once, and no inspection can find it. A
repair takes its time, and sometimes leaves the defect or brings another one. Each machine draws
from a stream of its own, so strategies are compared on the same machines and the same first
defects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.features.inspection.check_table import CheckCategory

__all__ = ["CATEGORY_SHARES", "DetectionChances", "FleetRates", "InspectedFleet"]

CATEGORY_SHARES: Final[dict[CheckCategory, float]] = {
    "gpu": 0.35,
    "memory": 0.2,
    "fabric": 0.15,
    "network": 0.15,
    "storage": 0.05,
    "cpu": 0.1,
}
"""Shares of defects; an at-risk list made of GPU telemetry can see the first three."""

DetectionChances = dict[str, float]

_LISTED: Final = frozenset({"gpu", "memory", "fabric"})
_NEVER: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class FleetRates:
    """Rates of the simulation; times in days.

    Attributes
    ----------
    machines : int
    days_between_defects : float
        Of a machine, on average.
    frailty : float
        Shape of the gamma distribution of rates over machines; smaller is more unequal.
    sudden : float
        Share of defects without a latent phase.
    latent_days : float
        Mean time until a job meets a latent defect.
    repair_days : float
    failed_repairs : float
        Share of repairs after which the machine has a latent defect.
    separation : float
        By how many deviations the list's score of a listed defect exceeds that of a healthy
        machine; 0: the list knows nothing.
    """

    machines: int = 500
    days_between_defects: float = 150.0
    frailty: float = 0.7
    sudden: float = 0.5
    latent_days: float = 15.0
    repair_days: int = 8
    failed_repairs: float = 0.15
    separation: float = 2.0


@dataclass(slots=True)
class InspectedFleet:
    """State of a fleet on a day; call `next_day`, then `inspect`.

    Attributes
    ----------
    rates : FleetRates
    seed : int
    day : int
    defect : Int64Array of shape (n_machines,)
        Number of the category of a latent defect, -1 without.
    back_at : Int64Array
        Day from which a machine is in service; a machine under repair has a later one.
    repaired_at, incident_at : Int64Array
        Day of the last return from repair, and of the last incident; -1 before the first.
    category_at_repair : Int64Array
        Of the defect of the last repair, -1 without.
    incidents, prevented, false_drains, machine_days : int
        Defects met by jobs, defects found before, machines drained without one, and days that
        machines were in service.
    """

    rates: FleetRates
    seed: int
    day: int = -1
    defect: Int64Array = field(init=False)
    back_at: Int64Array = field(init=False)
    repaired_at: Int64Array = field(init=False)
    incident_at: Int64Array = field(init=False)
    category_at_repair: Int64Array = field(init=False)
    incidents: int = 0
    prevented: int = 0
    false_drains: int = 0
    machine_days: int = 0
    _streams: list[np.random.Generator] = field(init=False, repr=False)
    _frailties: Float64Array = field(init=False, repr=False)
    _next_defect: Int64Array = field(init=False, repr=False)
    _met_at: Int64Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Draw the machines and their first defects."""
        n = self.rates.machines
        self._streams = [np.random.default_rng([self.seed, number]) for number in range(n)]
        shape = self.rates.frailty
        self._frailties = np.array([stream.gamma(shape, 1 / shape) for stream in self._streams])
        self.defect = np.full(n, -1)
        self.back_at = np.zeros(n, dtype=np.int64)
        self.repaired_at, self.incident_at = np.full(n, -1), np.full(n, -1)
        self.category_at_repair = np.full(n, -1)
        self._met_at = np.full(n, _NEVER)
        self._next_defect = np.array([self._days_to_defect(number, 0) for number in range(n)])

    @property
    def in_service(self) -> BoolArray:
        """Tell which machines are not under repair."""
        return self.back_at <= self.day

    def next_day(self) -> None:
        """Let a day pass: repairs end, defects appear, and jobs meet them."""
        self.day += 1
        for machine in np.flatnonzero(self.back_at == self.day):
            self._return(int(machine))
        for machine in np.flatnonzero(self.in_service & (self._next_defect <= self.day)):
            self._appear(int(machine))
        for machine in np.flatnonzero(self.in_service & (self._met_at <= self.day)):
            self.incidents += 1
            self.incident_at[machine] = self.day
            self._repair(int(machine))
        self.machine_days += int(self.in_service.sum())

    def inspect(self, machine: int, chances: DetectionChances, false_alarm: float) -> int | None:
        """Inspect a machine; return the category of what it has, and send it to repair.

        Parameters
        ----------
        machine : int
        chances : dict of str to float
            Probability that the checks find a defect, by category.
        false_alarm : float
            Probability that a machine without a defect is drained.
        """
        category = int(self.defect[machine])
        draw = float(self._streams[machine].random())
        if category < 0:
            self.false_drains += draw < false_alarm
            if draw < false_alarm:
                self._repair(machine)
            return None
        if draw >= chances.get(list(CATEGORY_SHARES)[category], 0.0):
            return None
        self.prevented += 1
        self._repair(machine)
        return category

    def will_meet(self) -> Int64Array:
        """Return the day on which a job will meet the latent defect of each machine."""
        return np.where(self.in_service, self._met_at, _NEVER)

    def listed_probabilities(self) -> Float64Array:
        """Return the at-risk list: a calibrated probability of a latent defect of each machine.

        By Bayes from a normal score; the list cannot see defects of other parts than GPUs.
        """
        names = list(CATEGORY_SHARES)
        visible = np.array([c >= 0 and names[c] in _LISTED for c in self.defect.tolist()])
        noise = np.random.default_rng([self.seed, 1 << 40, self.day]).standard_normal(len(visible))
        separation = self.rates.separation
        score = noise + separation * visible
        rates = self.rates
        share = sum(part for name, part in CATEGORY_SHARES.items() if name in _LISTED)
        prior = share * (1 - rates.sudden) * rates.latent_days / rates.days_between_defects
        odds = prior / (1 - prior) * np.exp(separation * score - separation**2 / 2)
        return np.asarray(odds / (1 + odds))

    # --- events of one machine --------------------------------------------------------------------

    def _days_to_defect(self, machine: int, since: int) -> int:
        mean = self.rates.days_between_defects / max(float(self._frailties[machine]), 1e-3)
        return since + 1 + int(min(self._streams[machine].exponential(mean), 1e6))

    def _appear(self, machine: int) -> None:
        stream = self._streams[machine]
        shares = np.array(list(CATEGORY_SHARES.values()))
        self.defect[machine] = int(stream.choice(len(shares), p=shares / shares.sum()))
        sudden = stream.random() < self.rates.sudden
        wait = stream.exponential(self.rates.latent_days)
        self._met_at[machine] = self.day if sudden else self.day + 1 + int(wait)
        self._next_defect[machine] = _NEVER

    def _repair(self, machine: int) -> None:
        self.category_at_repair[machine] = self.defect[machine]
        self.back_at[machine] = self.day + self.rates.repair_days
        self.defect[machine], self._met_at[machine] = -1, _NEVER
        self._next_defect[machine] = _NEVER

    def _return(self, machine: int) -> None:
        self.repaired_at[machine] = self.day
        if self._streams[machine].random() < self.rates.failed_repairs:
            self._appear(machine)
            self._met_at[machine] = max(self._met_at[machine], self.day + 1)
        else:
            self._next_defect[machine] = self._days_to_defect(machine, self.day)
