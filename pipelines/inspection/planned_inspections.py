"""The plan of inspections, from at-risk lists, past results, and repairs in the ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.time_units import DAY, SECOND, Nanoseconds
from forewarn.pipelines.at_risk.stored_lists import read_lists
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.repairs.repair_events import read_repair_cases
from forewarn.pipelines.inspection.drawn_inspections import (
    BAD_STATUSES,
    DrawnInspections,
    read_drawn,
)
from forewarn.pipelines.inspection.stored_results import read_result_frame
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.inspection.defect_rates import learned_rates
from forewarn.response.inspection.inspection_plan import (
    FoundDefects,
    MachineRisk,
    PlannedCheck,
    PlannedInspection,
    Risk,
    plan_inspections,
)

__all__ = ["MachineEvent", "PlanRequest", "events_from_ledger", "plan_from_files", "plan_lines"]

_BUDGET_SHARE: Final = 0.01  # of the node-hours of a week
_WEEK_HOURS: Final = 7 * 24.0
_EVENT_DAYS: Final = 30.0
_GPU_CATEGORIES: Final = ("gpu", "memory", "fabric")
_ROUTINE: Final = 0.01  # of a machine that nothing speaks against, before results are known
_MAX_LEFT_OUT: Final = 50  # machines in the plan that the budget has no room for
_NEW: Final = 0.05
_COST: Final = 1.0  # node-hours, of a defect that a job of one machine meets
EVENT_PROBABILITIES: Final = {"repaired": 0.15, "incident": 0.1}
"""Until the outcomes of a site are known, by its inspections drawn at random."""


@dataclass(frozen=True, slots=True)
class MachineEvent:
    """A repair or an incident of a machine; `at` is in nanoseconds since 1970 UTC."""

    machine: str
    kind: str
    at: Nanoseconds
    text: str


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is to be planned.

    Attributes
    ----------
    at_risk : Path
        Lists of `score`; the machines of the newest one are the fleet.
    results : Path or None
        Past results: when machines were inspected, and how long checks take.
    plans : Path or None
        Earlier plans: what the machines that they drew at random had is the rate of defects.
    budget_hours : float or None
        Node-hours; by default 1 % of a week.
    max_machines : int or None
    job : tuple of str
        Machines of a job that will start: a defect then costs as many node-hours as it has.
    events : tuple of MachineEvent
    failures : tuple of (str, int)
        Confirmed failures: machine, and nanoseconds since 1970 UTC.
    at : int
        Nanoseconds since 1970 UTC.
    """

    at_risk: Path
    results: Path | None
    plans: Path | None
    budget_hours: float | None
    max_machines: int | None
    job: tuple[str, ...]
    events: tuple[MachineEvent, ...]
    failures: tuple[tuple[str, Nanoseconds], ...]
    at: Nanoseconds


def events_from_ledger(
    config: Path | None, now: Nanoseconds
) -> tuple[list[MachineEvent], list[tuple[str, Nanoseconds]]]:
    """Return repairs and incidents of machines, and confirmed failures; none without a file."""
    if config is None:
        return [], []
    site = ResponseSite.from_config(config)
    with site.ledger_to_look_at() as ledger:
        cases = read_repair_cases(ledger, now)
        recent = ledger.by_number(ledger.opened_since(Nanoseconds(now - 30 * DAY)))
        failures = [(row.machine, row.failed_at) for row in ledger.confirmed_failures()]
    events = [
        MachineEvent(case.machine, "repaired", end, f"back from repair on {format_iso(end)[:10]}")
        for case in cases
        if (end := case.returned_at) is not None
    ]
    events += [
        MachineEvent(
            incident.machine,
            "incident",
            incident.opened_at,
            f"incident {incident.id}: {incident.findings[0].cause}",
        )
        for incident in recent
        if incident.findings and not incident.findings[0].predicts
    ]
    return events, failures


def plan_from_files(request: PlanRequest, checks: Mapping[str, CheckTable]) -> dict[str, Any]:
    """Plan inspections, each line with its reason.

    Raises
    ------
    InputError
        If there is no list, or a file is invalid.
    """
    listed, list_date = _newest_list(request)
    results = None if request.results is None else read_result_frame(request.results)
    planned = _planned_checks(checks, results)
    past = FoundDefects() if results is None else _past_defects(results, request.failures, checks)
    drawn = DrawnInspections()
    if results is not None and request.plans is not None:
        now = pd.Timestamp(request.at, tz="UTC")
        drawn = read_drawn(request.plans, results, checks, until=now)
    routine = _routine_risks(planned, past, drawn)
    healthy = None if results is None else _healthy_days(results, request.at)
    machines = [_machine(name, p, request, healthy, routine) for name, p in listed.items()]
    budget = request.budget_hours
    if budget is None:
        budget = _BUDGET_SHARE * _WEEK_HOURS * len(machines)
    lines = plan_inspections(
        machines,
        planned,
        past,
        budget_minutes=60.0 * budget,
        max_machines=request.max_machines or len(machines),
        seed=format_iso(request.at)[:10],
    )
    left_out = _left_out(machines, lines, planned, past)
    return {
        "at": format_iso(request.at),
        "list": list_date,
        "machines": len(machines),
        "budget_hours": budget,
        "planned_hours": sum(line.minutes for line in lines) / 60.0,
        "checks": [check.name for check in planned],
        "drawn": {"inspected": drawn.machines, "found": drawn.defective},
        "lines": [asdict(line) for line in lines],
        "left_out": {
            "machines": len(left_out),
            "hours": sum(line.minutes for line in left_out) / 60.0,
            "lines": [asdict(line) for line in left_out[:_MAX_LEFT_OUT]],
        },
    }


def _left_out(
    machines: Sequence[MachineRisk],
    lines: Sequence[PlannedInspection],
    planned: Sequence[PlannedCheck],
    past: FoundDefects,
) -> list[PlannedInspection]:
    """Return what a larger budget would have room for, the most worth a minute first."""
    chosen = {line.machine for line in lines}
    rest = [machine for machine in machines if machine.machine not in chosen]
    return plan_inspections(
        rest,
        planned,
        past,
        budget_minutes=len(rest) * sum(check.minutes for check in planned) + 1.0,
        max_machines=len(rest),
        seed="",
        random_share=0.0,
    )


def _routine_risks(
    planned: Sequence[PlannedCheck], past: FoundDefects, drawn: DrawnInspections
) -> tuple[Risk, ...]:
    """Return the risks of a machine that nothing speaks against, by category."""
    measured = sorted({check.category for check in planned})
    assumed = {name: _ROUTINE * weight for name, weight in past.weights(measured).items()}
    shares = {name: past.share_of_all(planned, name) for name in measured}
    reason = "routine"
    if drawn.machines:
        reason = f"routine ({drawn.defective} defects in {drawn.machines} inspections at random)"
    rates = learned_rates(assumed, drawn.by_category, shares)
    return tuple(Risk(reason, rate, (name,)) for name, rate in rates.items())


def _newest_list(request: PlanRequest) -> tuple[dict[str, float], str]:
    """Return the probability of a failure of each machine on the newest list."""
    lists = read_lists(request.at_risk)
    made = lists["window_end"] <= pd.Timestamp(request.at, tz="UTC")
    if "machine_id" not in lists or not made.any():
        raise JobError(
            f"{request.at_risk}: holds no list with machines from before "
            f"{format_iso(request.at)}, expected one."
        )
    date = str(lists.loc[made, "list"].max())
    rows = lists[made & (lists["list"] == date) & lists["machine_id"].notna()]
    chances = rows["probability"].fillna(0.0) if "probability" in rows else rows["flagged"] * 0.1
    healthy = (1.0 - chances).groupby(rows["machine_id"].astype(str)).prod()
    return {str(name): 1.0 - float(chance) for name, chance in healthy.items()}, date


def _planned_checks(
    checks: Mapping[str, CheckTable], results: pd.DataFrame | None
) -> list[PlannedCheck]:
    """Return the weekly checks of one machine, with the minutes that they took, else may take."""
    spent = {} if results is None else _minutes(results)
    return [
        PlannedCheck(
            name,
            check.category,
            max(spent.get(name, check.repeat * check.timeout / SECOND / 60.0), 1e-3),
        )
        for name, check in checks.items()
        if "weekly" in check.when and not {"pair", "ring"} & set(check.conditions)
    ]


def _minutes(results: pd.DataFrame) -> dict[str, float]:
    ran = results[results["seconds"].notna() & (results["status"] != "not_run")]
    single = ran.drop_duplicates(["check", "machine", "run", "timestamp"])
    spent = single.groupby(["check", "machine", "run"])["seconds"].sum()
    medians = spent.groupby("check").median() / 60.0
    return {str(name): float(minutes) for name, minutes in medians.items()}


def _machine(
    name: str,
    chance: float,
    request: PlanRequest,
    inspected: dict[str, dict[str, float]] | None,
    routine: Sequence[Risk],
) -> MachineRisk:
    healthy = (inspected or {}).get(name, {})
    risks = list(routine)
    if chance > 0:
        risks.append(Risk(f"at risk ({chance:.1%})", chance, _GPU_CATEGORIES))
    if inspected is not None and not healthy:
        risks.append(Risk("never inspected", _NEW))
    for event in request.events:
        days = (request.at - event.at) / DAY
        if event.machine == name and 0 <= days < _EVENT_DAYS:
            probability = EVENT_PROBABILITIES[event.kind]
            risks.append(Risk(event.text, probability, days=days))
    if name in request.job:
        cost = len(request.job) * _COST
        risks.append(Risk(f"before a job of {len(request.job)} machines", 0.0))
        return MachineRisk(name, tuple(risks), healthy, cost)
    return MachineRisk(name, tuple(risks), healthy, _COST)


def _healthy_days(results: pd.DataFrame, at: Nanoseconds) -> dict[str, dict[str, float]]:
    """Return the days since the last good result, by machine and check."""
    good = results[results["status"] == "ok"]
    now = pd.Timestamp(at, tz="UTC")
    days: dict[str, dict[str, float]] = defaultdict(dict)
    last = good.groupby(["machine", "check"], as_index=False)["timestamp"].max()
    for machine, check, moment in last.itertuples(index=False, name=None):
        days[str(machine)][str(check)] = (now - pd.Timestamp(moment)) / pd.Timedelta(days=1)
    return days


def _past_defects(
    results: pd.DataFrame,
    failures: Sequence[tuple[str, Nanoseconds]],
    checks: Mapping[str, CheckTable],
) -> FoundDefects:
    """Return which checks found confirmed failures, of those that ran around them.

    From a day before a failure: earlier results say nothing about it. A failure is of the
    categories whose checks found it.
    """
    by_check: dict[tuple[str, str], tuple[int, int]] = {}
    by_category: Counter[str] = Counter()
    for machine, failed_at in failures:
        begin = pd.Timestamp(failed_at, tz="UTC") - pd.Timedelta(days=1)
        near = results["timestamp"].between(begin, begin + pd.Timedelta(days=8))
        rows = results[near & (results["machine"] == machine) & (results["status"] != "not_run")]
        hits = {str(name) for name in rows.loc[rows["status"].isin(BAD_STATUSES), "check"]}
        by_category.update({checks[name].category for name in hits & set(checks)})
        for name in {str(name) for name in rows["check"]} & set(checks):
            key = (name, checks[name].category)
            n_hits, total = by_check.get(key, (0, 0))
            by_check[key] = (n_hits + (name in hits), total + 1)
    return FoundDefects(by_check, by_category)


def plan_lines(plan: Mapping[str, Any]) -> Sequence[str]:
    """Return the plan for people, a line a machine."""
    rows: list[dict[str, Any]] = plan["lines"]
    return [
        f"{len(rows)} of {plan['machines']} machines, {plan['planned_hours']:.1f} of "
        f"{plan['budget_hours']:.1f} node-hours, list of {plan['list']}",
        *(
            f"{row['machine']}: {row['minutes']:.0f} min, {', '.join(row['checks'])}: "
            f"{row['reason']}"
            for row in rows
        ),
    ]
