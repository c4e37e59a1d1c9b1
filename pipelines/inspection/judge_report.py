"""The judgement of results as a JSON object, and as lines for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from forewarn.features.inspection.check_table import CheckTable
from forewarn.models.inspection.judgement import WEEKLY_FALSE_ALARMS, Judgement, judge
from forewarn.pipelines.inspection.stored_results import (
    check_units,
    read_accepted,
    read_result_frame,
    require_same_hardware,
)

__all__ = ["BAD_STATES", "judge_files", "report_lines", "unit_row"]

BAD_STATES = ("failed", "defective")
_LISTED_STATES = (*BAD_STATES, "suspect", "degraded", "blind", "not_run")
_BASES = {
    "fleet": "the fleet",
    "scatter": "the scatter of the fleet",
    "own": "its accepted values",
    "siblings": "its siblings",
}


def judge_files(
    path: Path,
    checks: Mapping[str, CheckTable],
    accepted: Path | None,
    *,
    false_alarms: float = WEEKLY_FALSE_ALARMS,
) -> dict[str, Any]:
    """Read and judge results.

    Parameters
    ----------
    path : Path
        Results of `inspect run`.
    checks : mapping of str to CheckTable
    accepted : Path or None
        Folder of certificates.
    false_alarms : float, optional
        Wanted false alarms a machine and run.

    Returns
    -------
    dict
        `verdicts` holds the units that are not ok, the worst first.

    Raises
    ------
    InputError
        If results are invalid, or of other hardware.
    """
    results, before = read_result_frame(path), read_accepted(accepted)
    check_units(results, checks, path)
    changed = require_same_hardware(results, before, path)
    judgement = judge(results, checks, before, false_alarms=false_alarms)
    units = judgement.units
    order = {state: number for number, state in enumerate(_LISTED_STATES)}
    listed = units[units["state"] != "ok"].sort_values(
        "state", key=lambda states: states.map(order), kind="stable"
    )
    return {
        "at": None if results.empty else results["timestamp"].max().isoformat(),
        "machines": int(results["machine"].nunique()),
        "results": len(results),
        "states": units["state"].value_counts().to_dict(),
        "bad_machines": sorted(set(units.loc[units["state"].isin(BAD_STATES), "machine"])),
        "verdicts": [unit_row(row, checks) for _, row in listed.iterrows()],
        "criteria": _criteria(judgement),
        "false_alarm_rate": judgement.false_alarms.rate,
        "false_alarms": asdict(judgement.false_alarms),
        "other_hardware": changed,
        "undefined_checks": sorted(set(units["check"]) - set(checks)),
    }


def unit_row(row: pd.Series[Any], checks: Mapping[str, CheckTable]) -> dict[str, Any]:
    """Return a judged unit as JSON; `similarity` is one minus the distance to the reference."""
    check = checks.get(row["check"])
    numbers = {name: _number(row[name]) for name in ("value", "reference", "distance", "limit")}
    distance = numbers["distance"]
    is_area = row["compared"] in ("fleet", "own")
    return {
        "machine": row["machine"],
        "slot": row["slot"] or None,
        "check": row["check"],
        "state": row["state"],
        "compared": row["compared"] or None,
        **numbers,
        "similarity": None if distance is None or not is_area else 1.0 - distance,
        "unit": None if check is None else check.value.unit,
        "category": None if check is None else check.category,
        "level": "note" if check is None else check.level,
        "runs": int(row["runs"]),
        "why": _why(row, check),
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _why(row: pd.Series[Any], check: CheckTable | None) -> str:
    """Say in words what decided."""
    unit = "" if check is None or check.value.unit in ("1", "digest") else f" {check.value.unit}"
    text = str(row["text"]) if isinstance(row["text"], str) else ""
    match row["compared"]:
        case "limit":
            return f"{row['value']:.6g}{unit} is outside the limit {row['limit']:.6g}{unit}"
        case "siblings" if row["runs"]:
            return "differs from its siblings, from what was accepted, or between repeats"
        case "siblings":
            return "equal to its siblings"
        case "status":
            return text or f"the check is {row['state']}"
        case "":
            return "not compared: too few machines and no accepted values"
        case compared:
            far = f"{row['distance']:.1%} from {_BASES[compared]}"
            return f"{far}, criterion {row['limit']:.1%}, reference {row['reference']:.6g}{unit}"


def _criteria(judgement: Judgement) -> list[dict[str, Any]]:
    return [
        {key: _number(value) if isinstance(value, float) else value for key, value in row.items()}
        for row in map(asdict, judgement.criteria)
    ]


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the report for people, the worst units first."""
    counts = ", ".join(f"{number} {state}" for state, number in report["states"].items())
    lines = [f"{report['machines']} machines, {report['results']} results: {counts or 'none'}"]
    for row in report["verdicts"]:
        name = row["machine"] + (f" {row['slot']}" if row["slot"] else "")
        lines.append(f"{row['state']:9} {name} {row['check']}: {row['why']}")
    alarms = report["false_alarms"]
    if alarms["learned_from"]:
        lines.append(
            f"false alarms of such a run: {alarms['requested']:.2g} requested, "
            f"{alarms['expected']:.2g} expected, at most {alarms['bound']:.2g} with 95 % "
            f"confidence; criteria learned from {alarms['learned_from']:,} units"
        )
    lines += [
        f"useless: {row['check']} ({row['units']} units): its values differ more on one machine "
        f"({row['repeat_spread']:.1%}) than machines do ({row['unit_spread']:.1%})"
        for row in report["criteria"]
        if row["useless"]
    ]
    lines += [
        f"{machine}: accepted with other hardware, its own values are not used"
        for machine in report["other_hardware"]
    ]
    lines += [f"no definition of check {name}" for name in report["undefined_checks"]]
    return lines
