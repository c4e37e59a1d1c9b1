"""Section of the backtest report about the net benefit of acting on the list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from forewarn.evaluation.prediction.metrics.net_benefit import (
    BenefitAtLength,
    ListBenefit,
    NetBenefit,
)
from forewarn.pipelines.rendering.svg_figures import COLOURS, WIDTH, figure_style, inline_svg
from forewarn.pipelines.rendering.templates import (
    amount,
    count,
    per_hundred,
    plural,
)

__all__ = ["benefit_plot", "benefit_section"]

_WAYS = {
    "nothing": "Nothing",
    "rules": "The list of the fixed rules",
    "top_share": "The whole daily list",
    "top_k": "The paper's top K",
}
_MIN_AXIS_TOP = {
    "precision": 0.01,
    "failures_caught": 1.0,
}  # upper end of an axis if all values are 0


def benefit_section(worth: ListBenefit | None, k: float) -> dict[str, Any]:
    """Return sentences, plot and rows for the leading strategy; empty without a curve."""
    if worth is None:
        return {}
    sentences = _benefit_text(worth, k)
    return {
        "sentences": sentences,
        "failures": worth.failures,
        "ways": _ways(worth),
        "svg": inline_svg(
            benefit_plot(worth),
            title="Net benefit by list length",
            description=" ".join(sentences),
        ),
    }


def _benefit_text(worth: ListBenefit, k: float) -> list[str]:
    """Return length and benefit of the production list and of the top K."""
    chosen = worth.chosen.worth
    text = (
        f"The list would have held {amount(worth.chosen.listed_per_day, 1)} GPUs a day: "
        f"{plural(chosen.alerts, 'alert')} in {plural(worth.days, 'day')}, of which "
        f"{per_hundred(chosen.precision)} of 100 failed, and {count(chosen.failures_caught)} "
        f"of {plural(worth.failures, 'failure')} caught."
    )
    if worth.costs is None:
        return [
            text,
            "No costs are set in [list], so the net benefit of acting on it is unknown.",
        ]
    return [
        text,
        f"At the costs of this site it would have {_savings_text(chosen)} a month. It was empty on "
        f"{plural(worth.empty_days, 'day')}.",
        f"Draining the paper's top K ({100 * k:g} % of the fleet a day) would have "
        f"{_savings_text(worth.ways['top_k'])} a month.",
    ]


def _savings_text(figures: NetBenefit) -> str:
    """Return the GPU-hours saved or lost, with the interval."""
    hours, bounds = figures.gpu_hours or 0.0, figures.gpu_hours_interval
    text = f"{'saved' if hours >= 0 else 'cost'} {count(abs(hours))} GPU-hours"
    if bounds is None:
        return text
    low, high = sorted(bound * (1 if hours >= 0 else -1) for bound in bounds)
    return f"{text} ({count(low)} to {count(high)})"


def _ways(worth: ListBenefit) -> list[tuple[str, NetBenefit]]:
    """Return the table of alternatives; empty without costs."""
    if worth.costs is None:
        return []
    ways = [(_WAYS[name], figures) for name, figures in worth.ways.items()]
    return [*ways, ("What the probability justifies", worth.chosen.worth)]


@figure_style()
def benefit_plot(worth: ListBenefit) -> Figure:
    """Plot precision, failures caught and GPU-hours against the length of the list.

    Parameters
    ----------
    worth : ListBenefit
    """
    panels = [
        ("precision", "precision", "precision_interval"),
        ("failures_caught", "failures caught", ""),
    ]
    if worth.costs is not None:
        panels.append(("gpu_hours", "GPU-hours a month", "gpu_hours_interval"))
    figure = Figure(figsize=(WIDTH, 1.55 * len(panels) + 0.5), layout="constrained")
    drawn = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (key, label, bounds) in zip(drawn, panels, strict=True):
        _draw_panel(axes, worth, key, bounds)
        axes.set_ylabel(label)
    drawn[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    drawn[1].yaxis.set_major_locator(MaxNLocator(integer=True))
    drawn[-1].set_xlabel("GPUs listed a day")
    drawn[-1].set_xticks(_ticks(worth.curve))
    drawn[-1].set_xticks([], minor=True)
    drawn[-1].xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    drawn[-1].yaxis.set_major_formatter(FuncFormatter(lambda hours, _: f"{hours:,.0f}"))
    return figure


def _ticks(curve: Sequence[BenefitAtLength]) -> list[float]:
    """Return round list lengths up to the longest."""
    longest = max(point.listed_per_day for point in curve)
    return [step * 10.0**e for e in range(6) for step in (1, 3) if step * 10**e <= longest]


def _draw_panel(axes: Axes, worth: ListBenefit, key: str, bounds: str) -> None:
    """Draw one metric with its interval, and the point of the production list."""
    lengths = [point.listed_per_day for point in worth.curve]
    values = [getattr(point.worth, key) for point in worth.curve]
    values = [np.nan if value is None else value for value in values]
    axes.set_xscale("log")
    if bounds:
        ends = [getattr(point.worth, bounds) or (np.nan, np.nan) for point in worth.curve]
        low, high = zip(*ends, strict=True)
        axes.fill_between(lengths, low, high, color=COLOURS["line"], linewidth=0)
    axes.plot(lengths, values, color=COLOURS["c1"], linewidth=2.0)
    if key == "gpu_hours":
        axes.axhline(0.0, color=COLOURS["muted"], linewidth=1)
    else:
        axes.set_ylim(0.0, max(axes.get_ylim()[1], _MIN_AXIS_TOP[key]))
    x, chosen = worth.chosen.listed_per_day, getattr(worth.chosen.worth, key)
    if chosen is not None and x:
        if bounds and (span := getattr(worth.chosen.worth, bounds)):
            axes.plot([x, x], span, color=COLOURS["c2"], linewidth=1.6)
        axes.plot([x], [chosen], "D", color=COLOURS["c2"], markersize=6)
