"""HTML page of `forewarn doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from forewarn.features.duration import format_duration
from forewarn.pipelines.doctor.data_problems import advice, find_problems
from forewarn.pipelines.doctor.doctor_plots import failures_figure, records_figure
from forewarn.pipelines.rendering.svg_figures import inline_svg
from forewarn.pipelines.rendering.templates import count, per_hundred, render_page

__all__ = ["render_doctor"]


def render_doctor(report: Mapping[str, Any]) -> str:
    """Render a report as a self-contained page; the same report gives the same bytes."""
    usable = report["usable"] or {}
    tiles = [
        (count(report["gpus"]), "GPUs"),
        (count(report["machines"] or None), "machines"),
        (f"{report['days']:g}", "days"),
        (format_duration(report["cadence_seconds"]), "between records"),
        (f"{per_hundred(report['coverage'])} %", "of the expected records exist"),
        (count(report["failures"]["count"]), "failures"),
        (count(report["failures_without_end"]["count"]), "of them without an end"),
        (f"{per_hundred(usable.get('share'))} %", "of the possible instances are usable"),
    ]
    context = {
        "report": report,
        "advice": advice(report),
        "tiles": tiles,
        "problems": find_problems(report),
        "records_svg": inline_svg(
            records_figure(report["records_by_day"]),
            title="Records by day",
            description=f"{count(report['records'])} records in {report['days']:g} days.",
        ),
        "failures_svg": _failures(report["failures"]["by_month"]),
    }
    return render_page("doctor/doctor_page.html", context)


def _failures(by_month: Mapping[str, Mapping[str, int]]) -> Markup:
    if not by_month:
        return Markup()
    months = "; ".join(f"{month}: {sum(causes.values())}" for month, causes in by_month.items())
    return inline_svg(
        failures_figure(by_month),
        title="Failures by month",
        description=f"Failures by month and cause: {months}.",
    )
