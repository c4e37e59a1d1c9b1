"""Faults of a simulated job that do not depend on how it recovers, and alerts before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["GPUS_PER_MACHINE", "FaultKind", "FaultPlan", "FaultRates", "Predictions", "plan_faults"]

GPUS_PER_MACHINE = 8
"""GPUs per machine."""
_ALERT_HOURS = 24.0  # an alert is valid for a day

FloatArray = npt.NDArray[np.float64]


class FaultKind:
    """Kinds of faults.

    `EXPLICIT`: a machine fails, and an error names it. `HANG`: a machine fails in silence, and the
    job hangs. `SOFTWARE`: no machine is the cause.
    """

    EXPLICIT, HANG, SOFTWARE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often a job's machines fail, and for how long.

    Attributes
    ----------
    per_thousand_machine_days : float
        Interruptions by all causes: 6.5 on Meta's RSC-1, 3.8 of Llama 3 (419 in 54 days on 2,048
        machines), 21.6 at DLRover's 0.27 % of GPUs a day.
    software : float
        Share without a machine as the cause: 54 of 419 of Llama 3.
    hang : float
        Share that is silent: dropped network cards, optical cables and unreachable machines in
        Minder's seven months.
    repair_median_hours, repair_spread : float
        Lognormal; median 0.85 and nine tenths within 12.9 days (InfiniteHBD's traces).
    repair_limit_hours : float
        A machine that is not repaired by then is replaced.
    again : float
        Share of repaired machines that fault again within `again_hours` (InfiniteHBD's traces).
    again_hours : float
    """

    per_thousand_machine_days: float = 6.5
    software: float = 0.13
    hang: float = 0.126
    repair_median_hours: float = 0.85 * 24
    repair_spread: float = 2.12
    repair_limit_hours: float = 30 * 24
    again: float = 0.34
    again_hours: float = 7 * 24

    def per_hour(self, machines: int) -> float:
        """Return the interruptions of a job in an hour."""
        return self.per_thousand_machine_days / 1_000 * machines / 24


@dataclass(frozen=True, slots=True)
class Predictions:
    """Quality of the daily list: share of alerts that come true, and of faults with an alert."""

    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults and alerts of a job, in order of time.

    Attributes
    ----------
    machines : int
        Of the job.
    hours : float
    at : ndarray of shape (n_faults,)
    slot : ndarray of shape (n_faults,)
        Place in the job of the machine that fails; whichever machine has it then.
    kind : ndarray of shape (n_faults,)
        Of `FaultKind`.
    chance : ndarray of shape (n_faults,)
        Uniform; decides whether a method finds the machine.
    repair : ndarray of shape (n_faults,)
        Hours.
    again : ndarray of shape (n_faults,)
        Hours in service after which the repaired machine faults again; infinite if it does not.
    alert_at : ndarray of shape (n_alerts,)
    alert_slot : ndarray of shape (n_alerts,)
    alert_fault : ndarray of shape (n_alerts,)
        Number of the fault; -1 of a false alert.
    """

    machines: int
    hours: float
    at: FloatArray
    slot: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    chance: FloatArray
    repair: FloatArray
    again: FloatArray
    alert_at: FloatArray
    alert_slot: npt.NDArray[np.int64]
    alert_fault: npt.NDArray[np.int64]


def plan_faults(
    machines: int,
    hours: float,
    *,
    seed: int,
    rates: FaultRates | None = None,
    predictions: Predictions | None = None,
) -> FaultPlan:
    """Draw the faults of a job and the alerts before them.

    Faults that a machine has again after its repair are not among them: whether they hit the job
    depends on what was done. The rate of first faults is lower by their share.

    Parameters
    ----------
    machines : int
    hours : float
    seed : int
        The same seed gives the same faults at any quality of the predictions.
    rates : FaultRates, optional
    predictions : Predictions, optional
        No alerts without them.
    """
    rates = rates or FaultRates()
    rng = np.random.default_rng([seed, machines])
    first_share = 1 - (1 - rates.software) * rates.again
    count = int(rng.poisson(rates.per_hour(machines) * first_share * hours))
    at = np.sort(rng.uniform(0, hours, count))
    software = rates.software / first_share
    hang = (1 - software) * rates.hang / (1 - rates.software)
    kind = rng.choice(3, count, p=(1 - software - hang, hang, software))
    repair = rates.repair_median_hours * np.exp(rates.repair_spread * rng.standard_normal(count))
    does_again = rng.random(count) < rates.again
    plan_at = rng.uniform(0, rates.again_hours, count)
    slot = rng.integers(machines, size=count)
    chance = rng.random(count)
    alerts = _alerts(rng, machines, hours, at, slot, kind, predictions)
    return FaultPlan(
        machines,
        hours,
        at,
        slot,
        kind,
        chance,
        np.minimum(repair, rates.repair_limit_hours),
        np.where(does_again, plan_at, np.inf),
        *alerts,
    )


def _alerts(
    rng: np.random.Generator,
    machines: int,
    hours: float,
    at: FloatArray,
    slot: npt.NDArray[np.int64],
    kind: npt.NDArray[np.int64],
    predictions: Predictions | None,
) -> tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw alerts for some faults of machines, and false ones according to the precision."""
    lead = rng.uniform(0, _ALERT_HOURS, len(at))
    chance = rng.random(len(at))
    if predictions is None:
        return np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64)
    foreseen = np.flatnonzero((kind != FaultKind.SOFTWARE) & (chance < predictions.recall))
    n_false = int(rng.poisson(len(foreseen) * (1 / predictions.precision - 1)))
    alert_at = np.concatenate([at[foreseen] - lead[foreseen], rng.uniform(0, hours, n_false)])
    alert_slot = np.concatenate([slot[foreseen], rng.integers(machines, size=n_false)])
    alert_fault = np.concatenate([foreseen, np.full(n_false, -1)])
    order = np.argsort(alert_at, kind="stable")
    return alert_at[order], alert_slot[order], alert_fault[order]
