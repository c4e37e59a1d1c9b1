"""Plots of the backtest report, as matplotlib figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from forewarn.evaluation.prediction.metrics.backtest_metrics import DayMetrics
from forewarn.evaluation.prediction.metrics.calibration_metrics import ProbabilityGroup
from forewarn.pipelines.rendering.svg_figures import (
    COLOURS,
    WIDTH,
    date_ticks,
    figure_style,
    legend_above,
    new_figure,
)
from forewarn.pipelines.rendering.templates import count, finite_number, parse_utc

__all__ = [
    "MethodLine",
    "daily_list_figure",
    "precision_figure",
    "reliability_figure",
    "training_lengths_figure",
]

_MODEL_COLOURS = ("c1", "c2", "c3", "c4")
_MARKERS = "osD^v"


@dataclass(frozen=True, slots=True)
class MethodLine:
    """A method's values over the test windows.

    Parameters
    ----------
    label : str
        Name in the legend.
    starts : sequence of str or Timestamp
        Start of each test window.
    figures : sequence of float or None
        Value for each test window; None leaves a gap.
    kind : {"model", "baseline", "fixed"}
        Style: a line, a grey dashed line, or a dotted line in the first model's colour.
    """

    label: str
    starts: Sequence[Any]
    figures: Sequence[float | None]
    kind: Literal["model", "baseline", "fixed"] = "model"


@figure_style()
def precision_figure(series: Sequence[MethodLine], *, chance: float | None = None) -> Figure:
    """Plot precision over the test windows, one line per method.

    Parameters
    ----------
    series : sequence of MethodLine
        The lines, most important first. Lines without a value are not drawn.
    chance : float, optional
        Precision of a random score, drawn as a horizontal line: 1/9 on the 1:8 protocol.
    """
    times = sorted({time for line in series for time in map(parse_utc, line.starts) if time})
    position = {time: index for index, time in enumerate(times)}
    figure, axes = new_figure(WIDTH, 3.4)
    for line, drawing in zip(series, _drawings(series), strict=True):
        _draw_series(axes, line, position, drawing)
    if chance is not None:
        axes.axhline(chance, color=COLOURS["muted"], linewidth=1, linestyle=(0, (1, 2)))
        axes.annotate(
            f"random {chance:.3f}",
            (1.0, chance),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            color=COLOURS["muted"],
        )
    axes.set_ylim(0.0, 1.03)
    axes.set_ylabel("precision")
    axes.set_xlabel("start of the test window (UTC)")
    date_ticks(axes, times)
    legend_above(axes)
    return figure


def _drawings(series: Sequence[MethodLine]) -> Iterator[dict[str, Any]]:
    """Return colour, stroke and marker of every line; no two lines differ by colour alone."""
    models = 0
    for index, line in enumerate(series):
        marker = _MARKERS[index % len(_MARKERS)]
        if line.kind == "model":
            colour = COLOURS[_MODEL_COLOURS[models % len(_MODEL_COLOURS)]]
            models += 1
            yield {"color": colour, "marker": marker, "linewidth": 2.0}
        elif line.kind == "fixed":
            first = COLOURS[_MODEL_COLOURS[0]]
            yield {"color": first, "marker": marker, "linewidth": 1.2, "linestyle": (0, (1, 1.5))}
        else:
            grey = COLOURS["muted"]
            yield {"color": grey, "marker": marker, "linewidth": 1.4, "linestyle": (0, (4, 2))}


def _draw_series(axes: Axes, line: MethodLine, position: Mapping[Any, int], drawing: Any) -> None:
    """Draw a line with a gap in windows without a value."""
    pairs = zip(map(parse_utc, line.starts), map(finite_number, line.figures), strict=True)
    known = {position[time]: value for time, value in pairs if time and value is not None}
    if not known:
        return
    heights = [known.get(index, np.nan) for index in range(len(position))]
    axes.plot(range(len(position)), heights, label=line.label, markersize=5, **drawing)


@figure_style()
def reliability_figure(bins: Sequence[ProbabilityGroup]) -> Figure:
    """Plot observed against predicted failure rates (reliability diagram) on logarithmic scales.

    Failure probabilities range over several powers of ten, which a linear scale would compress into
    a corner. The number at a point is its count of positives. A group without failures is an open
    triangle at the lower edge.

    Parameters
    ----------
    bins : sequence of ProbabilityGroup
        Groups without a prediction above 0 are left out.
    """
    drawn = [(g.predicted, g.observed, g.positives) for g in bins if g.predicted > 0.0]
    figure, axes = new_figure(4.6, 4.1)
    low, high = _limits(drawn)
    axes.plot([low, high], [low, high], color=COLOURS["muted"], linestyle=(0, (4, 2)))
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    seen = [point for point in drawn if point[1] > 0.0]
    empty = [point[0] for point in drawn if point[1] <= 0.0]
    blue = COLOURS["c1"]
    axes.plot([p[0] for p in seen], [p[1] for p in seen], "o-", color=blue, linewidth=2.0)
    edge = [low * 1.15] * len(empty)
    axes.plot(empty, edge, "v", color=blue, markerfacecolor="none", clip_on=False)
    for (x, y, positives), above in zip(seen, _label_fits_above([p[1] for p in seen]), strict=True):
        axes.annotate(
            count(positives),
            (x, y),
            xytext=(-5, 5) if above else (5, -12),
            textcoords="offset points",
            ha="right" if above else "left",
            size=9,
        )
    _share_ticks(axes, low, high)
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("observed failure rate")
    return figure


def _label_fits_above(heights: Sequence[float]) -> list[bool]:
    """Return for each point of a line whether its label fits above it: at peaks, not in dips."""
    ends = [heights[0], *heights, heights[-1]] if heights else []
    around = zip(ends[:-2], heights, ends[2:], strict=True) if heights else ()
    return [y * y >= before * after for before, y, after in around]


def _limits(points: Sequence[tuple[float, float, int]]) -> tuple[float, float]:
    """Return the common range of both axes."""
    values = [value for x, y, _ in points for value in (x, y) if value > 0.0]
    if not values:
        return 0.001, 1.0
    return max(min(values) / 1.6, 1e-6), min(max(values) * 1.6, 1.0)


def _share_ticks(axes: Axes, low: float, high: float) -> None:
    """Label powers of ten as percentages rather than exponents."""
    steps = (1.0, 3.0) if high < 300.0 * low else (1.0,)  # room for about six labels
    ticks = [t * 10.0**e for e in range(-6, 1) for t in steps if low <= t * 10.0**e <= high]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, labels=[f"{100 * tick:.4g} %" for tick in ticks])
        axis.set_ticks([], minor=True)


@figure_style()
def daily_list_figure(days: Sequence[DayMetrics]) -> Figure:
    """Plot the number of listed GPUs of each day, and how many failed within the horizon.

    Parameters
    ----------
    days : sequence of DayMetrics
    """
    figure, axes = new_figure(WIDTH, 2.4)
    axes.grid(visible=False, axis="x")
    for heights, colour, label in (
        ([day.listed for day in days], "line", "on the list"),
        ([day.hits for day in days], "c1", "failed within the horizon"),
    ):
        axes.bar(range(len(days)), heights, color=COLOURS[colour], width=0.8, label=label)
    axes.set_ylabel("GPUs")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    date_ticks(axes, [pd.Timestamp(day.date, tz="UTC") for day in days])
    legend_above(axes)
    return figure


@figure_style()
def reasons_figure(shares: Mapping[str, float]) -> Figure:
    """Plot the contributions to the scores of a list, the largest first.

    Parameters
    ----------
    shares : mapping of str to float
        Share of all positive contributions, by column.
    """
    figure, axes = new_figure(WIDTH, 0.3 * len(shares) + 0.9)
    axes.grid(visible=False, axis="y")
    axes.barh(range(len(shares)), list(shares.values()), color=COLOURS["c1"])
    axes.set_yticks(range(len(shares)), labels=list(shares))
    axes.invert_yaxis()
    axes.set_xlabel("share of the positive contributions, listed GPUs")
    return figure


@figure_style()
def training_lengths_figure(starts: Sequence[Any], days: Sequence[float | None]) -> Figure:
    """Plot the training span that was chosen for each test window.

    Parameters
    ----------
    starts : sequence of str or Timestamp
        Start of each test window.
    days : sequence of float or None
        Length of the training span, in days.
    """
    times = [time for time in map(parse_utc, starts) if time is not None]
    heights = [finite_number(span) or 0.0 for span in days]
    figure, axes = new_figure(WIDTH, 1.5)
    axes.grid(visible=False, axis="x")
    axes.bar(range(len(heights)), heights, color=COLOURS["c1"], width=0.8)
    levels = sorted({height for height in heights if height > 0.0})
    axes.set_yticks(levels, labels=[f"{level:g}" for level in levels])
    axes.set_ylabel("days")
    date_ticks(axes, times)
    return figure
