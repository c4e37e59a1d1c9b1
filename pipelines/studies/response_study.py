"""`forewarn study response`: costs and benefits of acting on lists during a simulated month."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.evaluation.simulation.operations.month_plan import (
    LIST_HOUR,
    MonthPlan,
    SimulatedAlert,
)
from forewarn.evaluation.simulation.operations.simulated_cluster import (
    GPUS_PER_MACHINE,
    Cluster,
    MonthTotal,
    StopCosts,
)
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.incidents.loop.ledger_score import (
    costs_from_table,
    score_ledger,
    score_text,
)
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.runtime.timestamps import format_iso, to_timestamps
from forewarn.pipelines.sandbox.simulated_scheduler import SimulatedScheduler, machine_name
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["STRATEGIES", "Outcome", "report_lines", "run_strategy", "true_precision"]

STRATEGIES: Final = ("do nothing", "drain the list", "at random")
"""Strategies that forewarn is compared with; each drains for as long as an alert is valid."""

_POOL: Final = "train"
_STEP: Final = HOUR  # time between two calls of the loop
_POLICY: Final = """
[kinds.at_risk]
likely = { probability = 0.1, step = "drain" }
"""
_SITE: Final = """
[respond]
driver = "slurm"
policy = ["policy.toml"]
lists = "lists"
failures = "failures.parquet"
first_day = "1min"
overrides = 1000000
fleet_rate = 1000000
[respond.pools.train]
mode = "act"
control = {control}
share = 0.1
rack = 4
job = 4
cause = 1000000
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a month under one strategy.

    Attributes
    ----------
    name : str
    total : MonthTotal
    drains : int
        Number of machines taken out of service.
    score : mapping
        forewarn's own response score; empty for other strategies.
    """

    name: str
    total: MonthTotal
    drains: int
    score: dict[str, Any] = field(default_factory=dict)

    def line(self) -> dict[str, Any]:
        """Return a JSON-serializable dict; hours are GPU-hours."""
        total = self.total
        return {
            "strategy": self.name,
            "drains": self.drains,
            "killed": total.killed,
            "emptied_in_time": total.emptied,
            "lost_hours": round(total.lost, 1),
            "isolated_hours": round(total.isolated, 1),
            "cost_hours": round(total.lost + total.isolated, 1),
            "score": self.score or None,
        }


def true_precision(plan: MonthPlan) -> float:
    """Return the share of all alerts that precede a failure, known only in a simulation."""
    return float(np.mean([alert.true for alert in plan.alerts]))


def run_strategy(plan: MonthPlan, name: str, *, seed: int) -> Outcome:
    """Simulate a month with one of `STRATEGIES`, or with `forewarn, control SHARE`."""
    cluster = Cluster(plan, _interruption_costs())
    if name.startswith("forewarn"):
        return _run_forewarn(cluster, name)
    alerts = {"do nothing": (), "drain the list": plan.alerts, "at random": _shuffled(plan, seed)}
    return _drain_alerted(cluster, name, alerts[name])


def _interruption_costs() -> StopCosts:
    costs = costs_from_table(ResponseSite.from_config(None).table.costs)
    unplanned = (costs.detection + costs.scheduling + costs.start) / HOUR
    return StopCosts(unplanned, costs.planned_restart / HOUR, costs.checkpoint / HOUR)


def _shuffled(plan: MonthPlan, seed: int) -> tuple[SimulatedAlert, ...]:
    """Return alerts at the same times for random machines."""
    rng = np.random.default_rng([seed, 1])
    return tuple(SimulatedAlert(int(rng.integers(plan.machines)), a.at, False) for a in plan.alerts)


def _list_times(plan: MonthPlan, name: str) -> Iterator[Nanoseconds]:
    moments = range(plan.start + _STEP, plan.end + 1, _STEP)
    with progress_bar(len(moments), name, "hours") as bar:
        for moment in moments:
            yield Nanoseconds(moment)
            bar.update()


def _drain_alerted(cluster: Cluster, name: str, alerts: Sequence[SimulatedAlert]) -> Outcome:
    """Drain each listed machine for a day, without limits."""
    drains = 0
    for moment in _list_times(cluster.plan, name):
        cluster.advance(moment)
        listed = {a.machine for a in alerts if a.at <= moment < a.at + DAY}
        drains += len(listed - cluster.drained)
        cluster.drained.clear()
        cluster.drained |= listed
    return Outcome(name, cluster.total, drains)


def _run_forewarn(cluster: Cluster, name: str) -> Outcome:
    """Run forewarn's response loop with the files of a site."""
    plan, scheduler = cluster.plan, SimulatedScheduler(cluster, _POOL)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "policy.toml").write_text(_POLICY)
        (root / "my.toml").write_text(_SITE.format(control=float(name.rsplit(" ", 1)[1])))
        site = ResponseSite.from_config(root / "my.toml")
        with site.new_ledger() as ledger:
            responder = Responder(
                site, ledger, site.policy(), scheduler, _Clock(cluster), lambda _about, _words: None
            )
            for moment in _list_times(plan, name):
                cluster.advance(moment)
                _write_list(site.lists, plan, moment)
                _write_failures(site.failures, plan, moment)
                responder.once()
            drains = sum(
                action.step.isolates
                for action in ledger.recent_actions(plan.start)
                if action.started
            )
            score = score_ledger(site, ledger, now=plan.end)
    return Outcome(name, cluster.total, drains, score)


@dataclass(frozen=True, slots=True)
class _Clock:
    """Clock of a cluster."""

    cluster: Cluster

    def now(self) -> int:
        return self.cluster.now

    def wait(self, seconds: float, until: threading.Event) -> bool:
        return until.wait(seconds)


def _write_list(lists: Path, plan: MonthPlan, moment: Nanoseconds) -> None:
    """Write the list of a day at its scheduled time."""
    at = Nanoseconds(moment - moment % DAY + LIST_HOUR)
    alerts = {alert.machine for alert in plan.alerts if alert.at == at}
    path = lists / f"date={format_iso(at)[:10]}" / "at_risk.parquet"
    if moment < at or path.exists():
        return
    path.parent.mkdir(parents=True)
    names = [machine_name(number) for number in range(plan.machines)]
    table = {
        "gpu_serial": [f"{name}-gpu" for name in names],
        "machine_id": names,
        "window_end": to_timestamps([at] * plan.machines),
        "valid_until": to_timestamps([at + DAY] * plan.machines),
        "flagged": [number in alerts for number in range(plan.machines)],
        "probability": np.where([number in alerts for number in range(plan.machines)], 0.2, 0.001),
        "model_version": ["simulated"] * plan.machines,
    }
    _write_table(table, path)


def _write_table(columns: dict[str, Any], path: Path) -> None:
    rows = pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)
    pq.write_table(rows, arrow_path(path))


def _write_failures(path: Path, plan: MonthPlan, moment: Nanoseconds) -> None:
    """Write the failures known so far; each is known as soon as it happens."""
    known = [breakdown for breakdown in plan.breakdowns if breakdown.at <= moment]
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {
        "gpu_serial": [f"{machine_name(b.machine)}-gpu" for b in known],
        "failed_at": to_timestamps([b.at for b in known]),
        "repaired_at": to_timestamps([b.repaired for b in known]),
    }
    _write_table(table, path)


def report_lines(plan: MonthPlan, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a table of all strategies, then forewarn's own response score."""
    yield (
        f"{plan.machines} machines of {GPUS_PER_MACHINE} GPUs, {len(plan.breakdowns)} failures, "
        f"{len(plan.alerts)} alerts, of which {true_precision(plan):.0%} precede a failure"
    )
    yield f"{'':24}{'drains':>8}{'killed':>8}{'emptied':>9}{'lost':>9}{'isolated':>10}{'sum':>9}"
    for outcome in outcomes:
        total = outcome.total
        yield (
            f"{outcome.name:24}{outcome.drains:>8}{total.killed:>8}{total.emptied:>9}"
            f"{total.lost:>9.0f}{total.isolated:>10.0f}{total.lost + total.isolated:>9.0f}"
        )
    yield "(jobs killed; failures on drained machines; GPU-hours lost and isolated)"
    for outcome in outcomes:
        if outcome.score:
            yield f"\n{outcome.name}:\n{score_text(outcome.score)}"
