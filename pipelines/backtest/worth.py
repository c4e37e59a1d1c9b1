"""The part of a report that asks whether acting on the list is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from forewarn.pipelines.rendering.drawing import COLOURS, WIDTH, inline_svg, own_style
from forewarn.pipelines.rendering.templates import (
    amount,
    count,
    number,
    per_hundred,
    plural,
)

__all__ = ["worth_figure", "worth_section"]

_WAYS = {
    "nothing": "Nothing",
    "rules": "The list of the fixed rules",
    "top_share": "The whole daily list",
    "top_k": "The paper's top K",
}
_LEAST_TOP = {"precision": 0.01, "failures_caught": 1.0}  # of a scale, where all values are 0


def worth_section(report: Mapping[str, Any], lead: str) -> dict[str, Any]:
    """Return sentences, picture and rows of the leading strategy; empty without its curve."""
    by_strategy = report.get("worth")
    worth = by_strategy.get(lead) if isinstance(by_strategy, Mapping) else None
    if not isinstance(worth, Mapping) or not worth.get("curve"):
        return {}
    sentences = _worth_words(worth, report)
    return {
        "sentences": sentences,
        "failures": number(worth.get("failures")),
        "ways": _ways(worth),
        "svg": inline_svg(
            worth_figure(worth),
            title="What lists of each length are worth",
            description=" ".join(sentences),
        ),
    }


def _worth_words(worth: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    """Say what production would have listed, and what that and the top K would have brought."""
    chosen, costs = worth["chosen"], worth.get("costs")
    text = (
        f"The list would have held {amount(chosen['listed_per_day'], 1)} GPUs a day: "
        f"{plural(chosen['alerts'], 'alert')} in {plural(worth['days'], 'day')}, of which "
        f"{per_hundred(chosen['precision'])} of 100 failed, and {count(chosen['failures_caught'])} "
        f"of {plural(worth['failures'], 'failure')} caught."
    )
    if not isinstance(costs, Mapping):
        return [
            text,
            "No prices are set in [list], so nobody can say whether acting on it would have paid.",
        ]
    top_k, k = worth["ways"]["top_k"], number(report.get("k"))
    share = "K" if k is None else f"{100 * k:g} % of the fleet"
    return [
        text,
        f"At the prices of this site it would have {_brought(chosen)} a month, and was empty on "
        f"{plural(worth['empty_days'], 'day')}.",
        f"Draining the paper's top K ({share} a day) would have {_brought(top_k)} a month.",
    ]


def _brought(figures: Mapping[str, Any]) -> str:
    """Say what was saved, or what it cost, with the interval of the same sign."""
    hours = number(figures["gpu_hours"]) or 0.0
    bounds = figures.get("gpu_hours_interval")
    text = f"{'saved' if hours >= 0 else 'cost'} {count(abs(hours))} GPU-hours"
    if bounds is None:
        return text
    low, high = sorted((number(bound) or 0.0) * (1 if hours >= 0 else -1) for bound in bounds)
    return f"{text} ({count(low)} to {count(high)})"


def _ways(worth: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that compare ways to act; none without prices."""
    if not worth.get("costs"):
        return []
    rows = [(_WAYS[name], figures) for name, figures in worth["ways"].items() if name in _WAYS]
    rows.append(("What its chance justifies", worth["chosen"]))
    return [
        {
            "label": label,
            "alerts": figures["alerts"],
            "precision": figures["precision"],
            "caught": figures["failures_caught"],
            "hours": figures["gpu_hours"],
            "low": (figures["gpu_hours_interval"] or (None, None))[0],
            "high": (figures["gpu_hours_interval"] or (None, None))[1],
        }
        for label, figures in rows
    ]


@own_style()
def worth_figure(worth: Mapping[str, Any]) -> Figure:
    """Draw precision, failures caught and GPU-hours against the length of the list.

    Parameters
    ----------
    worth : mapping
        What `list_worth` gave.
    """
    panels = [
        ("precision", "precision", "precision_interval"),
        ("failures_caught", "failures caught", ""),
    ]
    if worth.get("costs"):
        panels.append(("gpu_hours", "GPU-hours a month", "gpu_hours_interval"))
    figure = Figure(figsize=(WIDTH, 1.55 * len(panels) + 0.5), layout="constrained")
    drawn = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (key, label, bounds) in zip(drawn, panels, strict=True):
        _draw_panel(axes, worth, key, bounds)
        axes.set_ylabel(label)
    drawn[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    drawn[1].yaxis.set_major_locator(MaxNLocator(integer=True))
    drawn[-1].set_xlabel("GPUs listed a day")
    drawn[-1].set_xticks(_ticks(worth["curve"]))
    drawn[-1].set_xticks([], minor=True)
    drawn[-1].xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    drawn[-1].yaxis.set_major_formatter(FuncFormatter(lambda hours, _: f"{hours:,.0f}"))
    return figure


def _ticks(curve: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return round lengths of lists up to the longest."""
    longest = max(point["listed_per_day"] for point in curve)
    return [step * 10.0**e for e in range(6) for step in (1, 3) if step * 10**e <= longest]


def _draw_panel(axes: Axes, worth: Mapping[str, Any], key: str, bounds: str) -> None:
    """Draw one figure of the curve with its interval, and the chosen point."""
    curve: Sequence[Mapping[str, Any]] = worth["curve"]
    lengths = [point["listed_per_day"] for point in curve]
    values = [np.nan if point[key] is None else point[key] for point in curve]
    axes.set_xscale("log")
    if bounds:
        ends = [point[bounds] or (np.nan, np.nan) for point in curve]
        low, high = zip(*ends, strict=True)
        axes.fill_between(lengths, low, high, color=COLOURS["line"], linewidth=0)
    axes.plot(lengths, values, color=COLOURS["c1"], linewidth=2.0)
    if key == "gpu_hours":
        axes.axhline(0.0, color=COLOURS["muted"], linewidth=1)
    else:
        axes.set_ylim(0.0, max(axes.get_ylim()[1], _LEAST_TOP[key]))
    chosen = worth["chosen"]
    if chosen[key] is not None and chosen["listed_per_day"]:
        x = chosen["listed_per_day"]
        if bounds and chosen[bounds]:
            axes.plot([x, x], chosen[bounds], color=COLOURS["c2"], linewidth=1.6)
        axes.plot([x], [chosen[key]], "D", color=COLOURS["c2"], markersize=6)
