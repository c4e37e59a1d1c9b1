"""HTML page of lost time: of a job, for the person who is called, or of a fleet, for a month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND, SECONDS_PER_HOUR
from forewarn.pipelines.rendering.svg_figures import (
    COLOURS,
    WIDTH,
    figure_style,
    inline_svg,
    legend_above,
    new_figure,
)
from forewarn.pipelines.rendering.templates import count, moment, plural, render_page
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.response.recovery.interruption_losses import RESTART_USES
from forewarn.response.recovery.lost_time import TimeUse
from forewarn.response.state.rung import Rung

__all__ = ["render_lost_page", "write_lost_page"]

_MAX_LISTED = 100
_MAX_JOBS = 20
_USES = [use.value for use in RESTART_USES]
_RUNG_WORDS = {
    Rung.RESTART: "restarted in place",
    Rung.REQUEUE: "requeued",
    Rung.RESUBMIT: "submitted again",
    "none": "not at all",
}
_COLOURS = {
    TimeUse.USEFUL: COLOURS["c3"],
    TimeUse.DETECT: COLOURS["bad"],
    TimeUse.SCHEDULE: COLOURS["warn"],
    TimeUse.INITIALISE: COLOURS["c2"],
    TimeUse.RECOMPUTE: COLOURS["c4"],
    TimeUse.SAVE: COLOURS["c1"],
    TimeUse.WAIT: COLOURS["muted"],
    TimeUse.UNKNOWN: COLOURS["line"],
}


def write_lost_page(report: Mapping[str, Any], path: Path) -> None:
    """Write the page of a report atomically."""
    text = render_lost_page(report)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_lost_page(report: Mapping[str, Any]) -> str:
    """Return a self-contained page.

    Parameters
    ----------
    report : mapping
        Of `job_report` or `fleet_report`.
    """
    is_fleet = "jobs" in report
    losses = sorted(report["interruptions"], key=lambda row: (-row["gpu_ns"], row["at"]))
    name = "the jobs" if is_fleet else report["job"]
    share = report["effective_share"]
    picture = _picture_of_jobs(report["jobs"]) if is_fleet else _picture_of_spans(report["spans"])
    context = {
        "report": report,
        "is_fleet": is_fleet,
        "headline": "No GPU time is known"
        if share is None
        else f"{share:.0%} of the GPU time of {name} was useful",
        "sentences": _sentences(report, losses),
        "tiles": _tiles(report),
        "picture_title": "GPU time by job" if is_fleet else "The life of the job",
        "picture": picture,
        "caption": f"The {_MAX_JOBS} jobs that lost most, share of their GPU time by use."
        if is_fleet
        else "From the start of the first run; each bar is what the time was used for.",
        "losses": [_loss_row(row) for row in losses[:_MAX_LISTED]],
        "n_losses": len(losses),
        "uses": _USES,
        "groups": [
            ("By cause", [_group_row(row) for row in report["by_cause"]]),
            (
                "By how the job went on",
                [_group_row(row | {"key": _RUNG_WORDS[row["key"]]}) for row in report["by_rung"]],
            ),
            ("Machines that cost most", [_group_row(row) for row in report["by_machine"]]),
        ],
        "unread": sorted(report.get("unread", {}).items()),
    }
    return render_page("recovery/lost_page.html", context)


def _sentences(report: Mapping[str, Any], losses: Sequence[Mapping[str, Any]]) -> list[str]:
    if not losses:
        return ["Nothing interrupted it." if "job" in report else "Nothing interrupted them."]
    total = sum(row["gpu_ns"] for row in losses)
    worst = losses[0]
    machines = ", ".join(worst["machines"])
    sentences = [
        f"{plural(len(losses), 'interruption')} cost {_hours(total)} GPU-hours.",
        f"The costliest was that of {moment(worst['at'])}, with {_hours(worst['gpu_ns'])}; cause: "
        f"{worst['cause']}{f' on {machines}' if machines else ''}.",
    ]
    largest = max(RESTART_USES, key=lambda use: report["gpu_ns"][use.value])
    if report["gpu_ns"][largest.value]:
        sentences.append(f"Most of it was time to {largest.value}.")
    return sentences


def _tiles(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    used = ((use, gpu_time) for use, gpu_time in report["gpu_ns"].items() if gpu_time)
    return [
        (_hours(report["elapsed_gpu_ns"]), "GPU-hours elapsed"),
        *((_hours(gpu_time), use) for use, gpu_time in used),
    ]


def _hours(gpu_time: int) -> str:
    return f"{gpu_time / 3.6e12:,.1f}"


def _loss_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "machines": ", ".join(row["machines"]) or "—",
        "rung": _RUNG_WORDS[row["rung"]],
        "cells": _cells(row["seconds"]),
        "gpu_hours": _hours(row["gpu_ns"]),
    }


def _group_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "cells": _cells(row["mean_seconds"]), "gpu_hours": _hours(row["gpu_ns"])}


def _cells(seconds: Mapping[str, float]) -> list[str]:
    return [format_duration(round(seconds[use])) for use in _USES]


@figure_style()
def _picture_of_spans(spans: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw when the life of a job had each use, a row a use."""
    figure, axes = new_figure(WIDTH, 2.6)
    start = parse_moment(spans[0]["begin"])
    bars: dict[str, list[tuple[float, float]]] = {use.value: [] for use in TimeUse}
    for span in spans:
        begin, end = (
            (parse_moment(span[edge]) - start) / (SECONDS_PER_HOUR * SECOND)
            for edge in ("begin", "end")
        )
        bars[span["use"]].append((begin, end - begin))
    uses = [use for use in reversed(TimeUse) if bars[use.value]]
    for row, use in enumerate(uses):
        axes.broken_barh(bars[use.value], (row - 0.35, 0.7), color=_COLOURS[use])
    axes.set_yticks(range(len(uses)), [use.value for use in uses])
    axes.set_xlabel("hours since the start of the first run")
    axes.grid(visible=False, axis="y")
    words = ", ".join(use.value for use in uses)
    return inline_svg(figure, title="The life of the job", description=f"Spans of {words}.")


@figure_style()
def _picture_of_jobs(jobs: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw the share of GPU time by use, a bar a job."""
    shown = [job for job in jobs[:_MAX_JOBS] if job["elapsed_gpu_ns"]][::-1]
    figure, axes = new_figure(WIDTH, 1.0 + 0.3 * max(len(shown), 1))
    left = [0.0] * len(shown)
    for use in TimeUse:
        shares = [job["gpu_ns"][use.value] / job["elapsed_gpu_ns"] for job in shown]
        if any(shares):
            axes.barh(range(len(shown)), shares, left=left, color=_COLOURS[use], label=use.value)
            left = [before + share for before, share in zip(left, shares, strict=True)]
    axes.set_yticks(range(len(shown)), [str(job["job"])[:24] for job in shown])
    axes.set_xlim(0, 1)
    axes.grid(visible=False, axis="y")
    legend_above(axes)
    about = f"Shares of {count(len(shown))} jobs by use."
    return inline_svg(figure, title="GPU time by job", description=about)
