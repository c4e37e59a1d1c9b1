"""The report of repair cases: stages with their ages, and repeat offenders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from forewarn.features.time_units import (
    SECOND,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
    Nanoseconds,
)
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.repair.board_or_chassis import Culprit, Separation
from forewarn.response.repair.repair_case import RepairCase, RepairStage
from forewarn.response.repair.repeat_offenders import repeat_offenders

__all__ = ["repair_lines", "repair_report", "span_text"]


def repair_report(
    cases: Sequence[RepairCase],
    now: Nanoseconds,
    separations: Sequence[Separation] = (),
    *,
    everything: bool = False,
) -> dict[str, Any]:
    """Return the report as JSON.

    Parameters
    ----------
    cases : sequence of RepairCase
    now : int
        Nanoseconds since 1970 UTC.
    separations : sequence of Separation, optional
        Those of `find_separations`.
    everything : bool, optional
        Include the cases that have ended.
    """
    is_open = [case for case in cases if case.returned_at is None]
    shown = list(cases) if everything else is_open
    stages = Counter(case.stage.value for case in is_open)
    return {
        "at": format_iso(now),
        "open": len(is_open),
        "ended": len(cases) - len(is_open),
        "complete": sum(not case.missing for case in cases if case.returned_at is not None),
        "by_stage": {s.value: stages[s.value] for s in RepairStage if stages[s.value]},
        "mean_stage_seconds": _mean_ages(cases, now),
        "cases": [_case(case, now) for case in sorted(shown, key=lambda case: case.opened_at)],
        "offenders": [
            {
                "kind": offender.kind,
                "name": offender.name,
                "cases": list(offender.cases),
                "since": format_iso(offender.since),
                "why": offender.why,
            }
            for offender in repeat_offenders(cases, now)
        ],
        "separations": [
            asdict(row) | {"at": format_iso(row.at), "culprit": row.culprit.value}
            for row in separations
        ],
    }


def _mean_ages(cases: Sequence[RepairCase], now: Nanoseconds) -> dict[str, float]:
    """Return the mean length of each stage over the cases that have ended."""
    ages = [case.ages(now) for case in cases if case.returned_at is not None]
    return {
        stage.value: mean(age[stage] for age in ages if stage in age) / SECOND
        for stage in RepairStage
        if any(stage in age for age in ages)
    }


def _case(case: RepairCase, now: Nanoseconds) -> dict[str, Any]:
    end = now if case.returned_at is None else case.returned_at
    ages = case.ages(end)
    return {
        "case": case.number,
        "machine": case.machine,
        "incidents": list(case.incidents),
        "gpu_serials": list(case.gpu_serials),
        "slots": list(case.slots),
        "stage": case.stage.value,
        "opened_at": format_iso(case.opened_at),
        "returned_at": None if case.returned_at is None else format_iso(case.returned_at),
        "age_seconds": (end - case.opened_at) / SECOND,
        "stage_age_seconds": ages.get(case.stage, 0) / SECOND,
        "stages": {stage.value: format_iso(at) for stage, at in case.stages.items()},
        "stage_seconds": {stage.value: age / SECOND for stage, age in ages.items()},
        "missing": [stage.value for stage in case.missing],
        "ticket": next((e.detail for e in case.events if e.stage is RepairStage.TICKET), None),
        "cause": case.events[0].detail,
    }


def span_text(seconds: float) -> str:
    """Format an age in the unit in which repairs are thought of.

    Examples
    --------
    >>> span_text(5 * 86_400), span_text(5 * 3_600), span_text(90)
    ('5.0 days', '5.0 h', '2 min')
    """
    if seconds >= 2 * SECONDS_PER_DAY:
        return f"{seconds / SECONDS_PER_DAY:.1f} days"
    if seconds >= SECONDS_PER_HOUR:
        return f"{seconds / SECONDS_PER_HOUR:.1f} h"
    return f"{seconds / SECONDS_PER_MINUTE:.0f} min"


def repair_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report for people."""
    stages = ", ".join(f"{number} {stage}" for stage, number in report["by_stage"].items())
    yield f"{report['open']} open{f': {stages}' if stages else ''}; {report['ended']} ended"
    for row in report["cases"]:
        age, stage_age = (span_text(row[name]) for name in ("age_seconds", "stage_age_seconds"))
        serials = f" {', '.join(row['gpu_serials'])}" if row["gpu_serials"] else ""
        missing = f"; nothing recorded of {', '.join(row['missing'])}" if row["missing"] else ""
        yield (
            f"case {row['case']} {row['machine']}{serials}: {row['stage']} for {stage_age}, "
            f"open for {age}{missing}"
            if row["returned_at"] is None
            else f"case {row['case']} {row['machine']}{serials}: returned after {age}{missing}"
        )
    for offender in report["offenders"]:
        yield (
            f"repeat offender: {offender['kind']} {offender['name']}, {offender['why']}; needs a "
            "board swap or a named approver to return"
        )
    for row in report["separations"]:
        if row["culprit"] in (Culprit.BOARD, Culprit.CHASSIS):
            yield (
                f"{row['culprit']} at fault: GPU {row['gpu_serial']} left {row['machine']} "
                f"{row['slot']} on {row['at'][:10]}; since then {row['board_incidents']} incidents "
                f"in {row['board_days']:.0f} days elsewhere, {row['slot_incidents']} in "
                f"{row['slot_days']:.0f} days in its slot"
            )
