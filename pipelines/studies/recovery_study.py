"""`forewarn study recovery`: what each mechanism saves a large job in a simulated year."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import mean_interval
from forewarn.evaluation.simulation.recovery.fault_plan import (
    GPUS_PER_MACHINE,
    FaultPlan,
    FaultRates,
    Predictions,
    plan_faults,
)
from forewarn.evaluation.simulation.recovery.recovery_method import (
    PhaseTimes,
    RecoveryMethod,
    cumulative_methods,
)
from forewarn.evaluation.simulation.recovery.simulated_job import USES, JobYear, simulate_job
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.response.recovery.checkpoint_advice import best_interval_seconds, move_pays_from

__all__ = [
    "RATES",
    "SIZES",
    "SimulatedSite",
    "break_even_figures",
    "mechanism_figures",
    "rate_figures",
    "study_lines",
    "year_figures",
]

RATES: Final = {"Llama 3": 3.8, "RSC-1": 6.5, "DLRover": 21.6}
"""Interruptions per 1,000 machine-days (FaultRates)."""
SIZES: Final = (128, 512, 2_048, 8_192, 16_384)
"""GPUs of the jobs of `rate_figures`."""
_UNITS: Final = 16  # parts by which a job can shrink
_PRECISIONS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_RECALLS: Final = (0.1, 0.3, 0.6)
_SECONDS_PER_HOUR: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """What a job meets.

    Attributes
    ----------
    days : int
    rate : float
        Interruptions per 1,000 machine-days.
    spares : float
        Share of the job's machines.
    predictions : Predictions
    """

    days: int = 360
    rate: float = RATES["RSC-1"]
    spares: float = 0.05
    predictions: Predictions = field(default_factory=lambda: Predictions(0.078, 0.107))

    def plan(self, gpus: int, seed: int) -> FaultPlan:
        """Draw the faults and alerts of a job."""
        rates = FaultRates(per_thousand_machine_days=self.rate)
        return plan_faults(
            gpus // GPUS_PER_MACHINE,
            self.days * 24.0,
            seed=seed,
            rates=rates,
            predictions=self.predictions,
        )

    def methods(self, plan: FaultPlan) -> dict[str, RecoveryMethod]:
        """Return the methods for a job."""
        rates = FaultRates(per_thousand_machine_days=self.rate)
        hourly = rates.per_hour(plan.machines)
        young = _interval(hourly)
        unforeseen = hourly * (1 - self.predictions.recall * (1 - rates.software))
        alerts = _alerts_by_day(plan)
        daily = [
            _interval(unforeseen + count * self.predictions.precision / 24) for count in alerts
        ]
        unit = max(1, plan.machines // _UNITS)
        return cumulative_methods(lambda _: young, lambda day: daily[day], unit)

    def run(self, plan: FaultPlan, method: RecoveryMethod, seed: int) -> JobYear:
        """Simulate a job."""
        return simulate_job(
            plan, method, spares=max(1, round(self.spares * plan.machines)), seed=seed
        )


def _interval(rate_per_hour: float) -> float:
    """Return the best hours between two checkpoints of the short kind."""
    save = PhaseTimes().short_save * _SECONDS_PER_HOUR
    best = best_interval_seconds(save, rate_per_hour / _SECONDS_PER_HOUR)
    return best / _SECONDS_PER_HOUR


def _alerts_by_day(plan: FaultPlan) -> list[int]:
    """Return the number of alerts that are valid on each day."""
    days = math.ceil(plan.hours / 24)
    counts = np.zeros(days + 1, dtype=np.int64)
    raised = np.clip(np.ceil(plan.alert_at / 24).astype(np.int64), 0, days)
    np.add.at(counts, raised, 1)
    return [int(count) for count in counts]


def year_figures(site: SimulatedSite, gpus: int, name: str, seed: int) -> dict[str, Any]:
    """Return what a job's time is used for with one method."""
    plan = site.plan(gpus, seed)
    year = site.run(plan, site.methods(plan)[name], seed)
    hours = year.machine_hours.sum(axis=0) * GPUS_PER_MACHINE
    return {
        "gpus": gpus,
        "days": site.days,
        "method": name,
        "seed": seed,
        "effective_share": year.effective_share,
        "gpu_hours": {use: float(total) for use, total in zip(USES, hours, strict=True)},
        "interruptions": year.interruptions,
        "planned_stops": year.planned,
    }


def mechanism_figures(
    site: SimulatedSite, sizes: Sequence[int], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Return a row for each size and method, with the difference from the method before it.

    `moves at once` is compared with `moves at stops`, and so is `shrinking`, which does not include
    it. Intervals are of the paired differences of months, resampled with all seeds.
    """
    rows: list[dict[str, Any]] = []
    with progress_bar(len(sizes) * len(seeds), "study", "job") as bar:
        for gpus in sizes:
            shares: dict[str, list[npt.NDArray[np.float64]]] = {}
            stops: dict[str, list[int]] = {}
            for seed in seeds:
                plan = site.plan(gpus, seed)
                for name, method in site.methods(plan).items():
                    year = site.run(plan, method, seed)
                    shares.setdefault(name, []).append(_useful_by_block(year))
                    stops.setdefault(name, []).append(year.interruptions + year.planned)
                bar.update()
            rows += _compared(gpus, site.days, shares, stops)
    return rows


def _useful_by_block(year: JobYear) -> npt.NDArray[np.float64]:
    hours = year.machine_hours
    return np.asarray(hours[:, 0] / hours.sum(axis=1))


def _compared(
    gpus: int,
    days: int,
    shares: Mapping[str, Sequence[npt.NDArray[np.float64]]],
    stops: Mapping[str, Sequence[int]],
) -> Iterator[dict[str, Any]]:
    before: npt.NDArray[np.float64] | None = None
    for name, by_seed in shares.items():
        values = np.concatenate(by_seed)
        row: dict[str, Any] = {
            "gpus": gpus,
            "method": name,
            "effective_share": float(values.mean()),
            "lost_gpu_hours": float((1 - values.mean()) * gpus * days * 24),
            "stops": float(np.mean(stops[name])),
            "gain": None if before is None else float((values - before).mean()),
            "gain_interval": None if before is None else mean_interval(values - before),
        }
        yield row
        before = before if name == "+ moves at once" else values


def rate_figures(
    site: SimulatedSite, sizes: Sequence[int], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the mean effective share before and after all mechanisms, by size and rate."""
    rows: list[dict[str, Any]] = []
    for source, rate in RATES.items():
        at_rate = replace(site, rate=rate)
        for gpus in sizes:
            plans = [at_rate.plan(gpus, seed) for seed in seeds]
            for name in ("poll and resubmit", "+ Young", "+ escalation"):
                years = [
                    at_rate.run(plan, at_rate.methods(plan)[name], seed)
                    for plan, seed in zip(plans, seeds, strict=True)
                ]
                share = float(np.mean([year.effective_share for year in years]))
                row = {"rate": source, "gpus": gpus, "method": name, "effective_share": share}
                rows.append(row)
    return rows


def break_even_figures(site: SimulatedSite, gpus: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Return what moves gain at other precisions and recalls, and which precision they need.

    A move at once costs a checkpoint and a planned restart; it spares an unplanned one with the
    recomputation of half an interval.
    """
    rows: list[dict[str, Any]] = []
    for recall in _RECALLS:
        for precision in _PRECISIONS:
            listed = replace(site, predictions=Predictions(precision, recall))
            gains: dict[str, list[float]] = {"+ moves at stops": [], "+ moves at once": []}
            for seed in seeds:
                plan = listed.plan(gpus, seed)
                methods = listed.methods(plan)
                base = listed.run(plan, methods["+ daily advice"], seed).effective_share
                for name, values in gains.items():
                    share = listed.run(plan, methods[name], seed).effective_share
                    values.append(share - base)
            means = {name.removeprefix("+ "): float(np.mean(v)) for name, v in gains.items()}
            rows.append({"precision": precision, "recall": recall, "gains": means})
    return {"gpus": gpus, "rows": rows, "needed_precision": _needed_precision(site, gpus)}


def _needed_precision(site: SimulatedSite, gpus: int) -> float:
    """Return the precision above which a move at once pays, by its expected loss alone."""
    times = PhaseTimes()
    rates = FaultRates(per_thousand_machine_days=site.rate)
    interval = _interval(rates.per_hour(gpus // GPUS_PER_MACHINE))
    restart = times.check + times.pods_one + times.short_load
    return move_pays_from(times.short_save + restart, times.watch + restart + interval / 2)


def study_lines(rows: Sequence[Mapping[str, Any]], break_even: Mapping[str, Any]) -> Iterator[str]:
    """Yield the results as tables."""
    yield f"{'GPUs':>7}  {'':20}{'ETTR':>7}{'lost GPU-hours':>16}{'stops':>8}  gain, 95 % interval"
    for row in rows:
        gain = ""
        if row["gain"] is not None:
            low, high = row["gain_interval"]
            gain = f"{row['gain']:+.4f} [{low:+.4f}, {high:+.4f}]"
        yield (
            f"{row['gpus']:>7,}  {row['method']:20}{row['effective_share']:>7.4f}"
            f"{row['lost_gpu_hours']:>16,.0f}{row['stops']:>8.0f}  {gain}"
        )
    yield ""
    yield f"Gain of moves over daily advice, {break_even['gpus']:,} GPUs:"
    yield f"{'recall':>7}{'precision':>11}{'at stops':>10}{'at once':>9}"
    for row in break_even["rows"]:
        gains = row["gains"]
        yield (
            f"{row['recall']:>7.2f}{row['precision']:>11.2f}"
            f"{gains['moves at stops']:>+10.4f}{gains['moves at once']:>+9.4f}"
        )
    yield f"A move at once needs a precision of {break_even['needed_precision']:.2f}."
