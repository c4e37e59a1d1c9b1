"""Plot of a detector study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from forewarn.pipelines.rendering.svg_figures import COLOURS, figure_style

__all__ = ["detection_study_plot"]


@figure_style()
def detection_study_plot(study: Mapping[str, Any]) -> Figure:
    """Plot F1 of every method with its interval, and the recall of the first by kind of fault."""
    methods = study["methods"]
    first = next(iter(methods))
    faults = methods[first]["by_fault"]
    figure = Figure(figsize=(9.0, 0.34 * (len(methods) + len(faults)) + 2.2), layout="constrained")
    heights = [len(methods) + 2, len(faults) + 2]
    upper, lower = figure.subplots(2, 1, height_ratios=heights)
    _scores(upper, methods, study["random"]["f1"])
    _recalls(lower, faults, first)
    return figure


def _scores(axes: Axes, methods: Mapping[str, Any], chance: float) -> None:
    for row, figures in enumerate(methods.values()):
        if figures["f1_interval"]:
            axes.plot(figures["f1_interval"], [row, row], color=COLOURS["muted"], linewidth=1.5)
        colour = COLOURS["c1"] if row == 0 else COLOURS["muted"]
        axes.plot([figures["f1"]], [row], "o", color=colour)
        best = "best threshold in hindsight" if row == 0 else None
        axes.plot(
            [figures["in_hindsight"]["f1"]], [row], "|", color=colour, markersize=9, label=best
        )
    axes.axvline(chance, color=COLOURS["c2"], linestyle=":", label="random machine")
    axes.set_yticks(np.arange(len(methods)), list(methods))
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("F1 of the culprit machine, with 95 % interval")
    axes.legend(loc="lower left")


def _recalls(axes: Axes, faults: Mapping[str, Any], method: str) -> None:
    order = sorted(faults, key=lambda name: -faults[name]["pulls"])
    axes.barh(
        np.arange(len(order)), [faults[name]["recall"] for name in order], color=COLOURS["c1"]
    )
    axes.set_yticks(np.arange(len(order)), [f"{name} ({faults[name]['pulls']})" for name in order])
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel(f"recall of {method} by kind of fault (number of pulls)")
