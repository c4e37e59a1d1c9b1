"""Plots of `forewarn doctor`: records by day, failures by month."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from forewarn.pipelines.rendering.svg_figures import (
    COLOURS,
    WIDTH,
    date_ticks,
    figure_style,
    legend_above,
    new_figure,
)
from forewarn.pipelines.rendering.templates import parse_utc, visible

__all__ = ["failures_figure", "records_figure"]

_CAUSES = ("c1", "c2", "c3", "c4")


@figure_style()
def records_figure(by_day: Mapping[str, int]) -> Figure:
    """Plot the number of records of each day, including days without records.

    Parameters
    ----------
    by_day : mapping of ISO date to number of records
    """
    days = np.arange(min(by_day), np.datetime64(max(by_day)) + np.timedelta64(1, "D"))
    figure, axes = new_figure(WIDTH, 2.0)
    axes.grid(visible=False, axis="x")
    heights = [by_day.get(str(day), 0) for day in days]
    axes.bar(range(len(days)), heights, color=COLOURS["c1"], width=0.8)
    axes.set_ylabel("records")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    date_ticks(axes, [parse_utc(str(day)) for day in days])
    return figure


@figure_style()
def failures_figure(by_month: Mapping[str, Mapping[str, int]]) -> Figure:
    """Plot the failures of each month, stacked by cause; rare causes are combined.

    Parameters
    ----------
    by_month : mapping of "YYYY-MM" to failures by cause
    """
    totals: dict[str, int] = {}
    for causes in by_month.values():
        for cause, n in causes.items():
            totals[cause] = totals.get(cause, 0) + n
    named = sorted(totals, key=lambda cause: (-totals[cause], cause))[: len(_CAUSES)]
    figure, axes = new_figure(WIDTH, 2.2)
    axes.grid(visible=False, axis="x")
    below = np.zeros(len(by_month))
    for cause, colour in zip(named, _CAUSES, strict=False):
        heights = np.array([causes.get(cause, 0) for causes in by_month.values()])
        label = visible(cause, limit=30)
        axes.bar(range(len(by_month)), heights, 0.6, below, color=COLOURS[colour], label=label)
        below += heights
    rest = np.array([sum(causes.values()) for causes in by_month.values()]) - below
    if rest.any():
        axes.bar(range(len(rest)), rest, 0.6, below, color=COLOURS["muted"], label="others")
    axes.set_xticks(range(len(by_month)), labels=list(by_month))
    axes.set_ylabel("failures")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    legend_above(axes)
    return figure
