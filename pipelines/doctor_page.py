"""The page of `forewarn doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from forewarn.features.duration import duration_in_words
from forewarn.pipelines.doctor_words import findings, verdict
from forewarn.pipelines.drawing import inline_svg
from forewarn.pipelines.fleet_pictures import failures_figure, records_figure
from forewarn.pipelines.pages import count, per_hundred, render_page

__all__ = ["render_doctor"]


def render_doctor(found: Mapping[str, Any]) -> str:
    """Write what `examine` found as a page that stands alone; the same gives the same bytes."""
    usable = found["usable"] or {}
    tiles = [
        (count(found["gpus"]), "GPUs"),
        (count(found["machines"] or None), "machines"),
        (f"{found['days']:g}", "days"),
        (duration_in_words(found["cadence_seconds"]), "from record to record"),
        (f"{per_hundred(found['coverage'])} %", "of the expected records are there"),
        (count(found["failures"]["count"]), "failures"),
        (f"{per_hundred(usable.get('share'))} %", "of the possible instances are usable"),
    ]
    context = {
        "found": found,
        "verdict": verdict(found),
        "tiles": tiles,
        "findings": findings(found),
        "records_svg": inline_svg(
            records_figure(found["records_by_day"]),
            name="records",
            title="Records by day",
            description=f"{count(found['records'])} records in {found['days']:g} days.",
        ),
        "failures_svg": _failures(found["failures"]["by_month"]),
    }
    return render_page("doctor_page.html", context)


def _failures(by_month: Mapping[str, Mapping[str, int]]) -> Markup:
    if not by_month:
        return Markup()
    said = "; ".join(f"{month}: {sum(causes.values())}" for month, causes in by_month.items())
    return inline_svg(
        failures_figure(by_month),
        name="failures",
        title="Failures by month",
        description=f"Failures by month and cause: {said}.",
    )
