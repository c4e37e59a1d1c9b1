"""Plot of a prediction study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from forewarn.pipelines.rendering.svg_figures import COLOURS, figure_style

__all__ = ["prediction_study_plot"]

_COLOURS = ("c1", "c2", "c3", "c4", "muted")
_BASELINES = ("random", "last_value", "logistic", "window_gbdt", "rules")


@figure_style()
def prediction_study_plot(study: Mapping[str, Any]) -> Figure:
    """Plot precision by method and strategy, by day since training, and by retraining interval."""
    figure = Figure(figsize=(9.0, 9.5), layout="constrained")
    upper, middle, lower = figure.subplots(3, 1, height_ratios=(2, 1, 1))
    _strategies(upper, study["strategies"]["all days"])
    shown = [name for name in study["by_day"] if name not in _BASELINES]
    days = {name: study["by_day"][name] for name in shown}
    _lines(middle, days, range(1, 1 + max(map(len, days.values()), default=0)))
    middle.set_xlabel("day after training")
    schedules = {n: row for n, row in study["retraining"].items() if row}
    of_methods = {name: [row[name] for row in schedules.values()] for name in shown}
    _lines(lower, of_methods, [int(n) for n in schedules])
    lower.set_xlabel("days between retrainings")
    upper.axvline(study["random"], color=COLOURS["muted"], linestyle=":")
    for axes in (middle, lower):
        axes.axhline(study["random"], color=COLOURS["muted"], linestyle=":")
    return figure


def _strategies(axes: Axes, strategies: Mapping[str, Mapping[str, Any]]) -> None:
    methods = list(strategies["sliding"])
    for number, (name, figures) in enumerate(strategies.items()):
        colour = COLOURS[_COLOURS[number % len(_COLOURS)]]
        rows = [row + 0.14 * (number - 2) for row in range(len(methods))]
        for row, method in zip(rows, methods, strict=True):
            figure = figures.get(method)
            if figure and figure["interval"]:
                axes.plot(figure["interval"], [row, row], color=colour, linewidth=1.2)
        known = [
            (row, figures[method]["precision"])
            for row, method in zip(rows, methods, strict=True)
            if method in figures and figures[method]["precision"] is not None
        ]
        axes.plot([p for _, p in known], [row for row, _ in known], "o", color=colour, label=name)
    axes.set_yticks(np.arange(len(methods)), methods)
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("precision@K with 95 % interval")
    axes.legend(loc="lower right")


def _lines(
    axes: Axes, figures: Mapping[str, Sequence[Mapping[str, Any]]], places: Sequence[int]
) -> None:
    for number, (name, of_method) in enumerate(figures.items()):
        colour = COLOURS[_COLOURS[number % len(_COLOURS)]]
        style = "o-" if number < len(_COLOURS) else "s--"
        precisions = [np.nan if f["precision"] is None else f["precision"] for f in of_method]
        axes.plot(list(places), precisions, style, color=colour, label=name)
    axes.set_ylim(0.0, 1.0)
    axes.set_ylabel("precision@K")
    axes.legend(loc="upper right", fontsize=8)
