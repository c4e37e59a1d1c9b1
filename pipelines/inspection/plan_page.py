"""The page of a plan of inspections: what to run where and why, and what had no room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forewarn.features.time_units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from forewarn.pipelines.rendering.templates import NO_VALUE, amount, plural, render_page
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["render_plan_page", "write_plan_page"]

_MAX_LINES: Final = 500
_MINUTES_PER_HOUR: Final = SECONDS_PER_HOUR / SECONDS_PER_MINUTE


def write_plan_page(plan: Mapping[str, Any], path: Path) -> None:
    """Write the page of a plan atomically."""
    text = render_plan_page(plan)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_plan_page(plan: Mapping[str, Any]) -> str:
    """Return a self-contained page.

    Parameters
    ----------
    plan : mapping
        Of `plan_from_files`.
    """
    lines, left_out = plan["lines"], plan["left_out"]
    by_risk = [line for line in lines if not line["is_random"]]
    at_random = [line for line in lines if line["is_random"]]
    context = {
        "plan": plan,
        "headline": f"{plural(len(lines), 'machine')} to inspect",
        "sentences": _sentences(plan, by_risk, at_random),
        "tiles": [
            (f"{amount(plan['planned_hours'], 1)} h", f"of {amount(plan['budget_hours'], 1)} h"),
            (len(by_risk), "by risk"),
            (len(at_random), "drawn at random"),
            (left_out["machines"], "left out"),
        ],
        "by_risk": _rows(by_risk),
        "at_random": _rows(at_random),
        "left_out": _rows(left_out["lines"]),
    }
    return render_page("inspection/plan_page.html", context)


def _sentences(
    plan: Mapping[str, Any], by_risk: list[dict[str, Any]], at_random: list[dict[str, Any]]
) -> list[str]:
    left_out, drawn = plan["left_out"], plan["drawn"]
    expected = sum(line["probability"] for line in (*by_risk, *at_random))
    sentences = [
        f"They are of {plural(plan['machines'], 'machine')}, and {amount(expected, 1)} of them are "
        "expected to have a defect."
    ]
    if drawn["inspected"]:
        sentences.append(
            f"Of {plural(drawn['inspected'], 'inspection')} that earlier plans drew at random, "
            f"{drawn['found']} found a defect; machines without a reason are rated by that."
        )
    if left_out["machines"]:
        sentences.append(
            f"{plural(left_out['machines'], 'machine')} with {amount(left_out['hours'], 1)} h of "
            "checks had no room in the plan."
        )
    return sentences


def _rows(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**line, "per_minute": _per_minute(line)} for line in lines[:_MAX_LINES]]


def _per_minute(line: Mapping[str, Any]) -> str:
    """Return the saved minutes a minute; what was drawn at random has no worth of that kind."""
    if line["is_random"]:
        return NO_VALUE
    return f"{_MINUTES_PER_HOUR * line['worth'] / line['minutes']:.2g}"
