"""Charts as small SVG images: the GPU, its peers in the background, and event codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxTransformFrom, BboxTransformTo

from forewarn.features.xid_severity import severity
from forewarn.pipelines.at_risk.channel_charts import Chart
from forewarn.pipelines.at_risk.channel_names import title
from forewarn.pipelines.rendering.svg_figures import COLOURS, figure_style, inline_svg
from forewarn.pipelines.rendering.templates import plural

__all__ = ["draw_chart"]

_WIDTH, _HEIGHT = 4.2, 1.4  # inches
_BOTTOM, _TOP = 0.17, 0.85  # vertical range of the lines, as a share of the height
_MAX_LABELS, _MAX_MARKS, _MIN_LABEL_DISTANCE = 4, 40, 0.18


@figure_style()
def draw_chart(chart: Chart) -> Markup:
    """Draw a small chart; return an empty string if the GPU has no reading."""
    if not np.isfinite(chart.own).any():
        return Markup()
    figure = Figure(figsize=(_WIDTH, _HEIGHT))
    for artist in (*_marks(chart), *_lines(chart, figure), *_time_labels(chart)):
        figure.add_artist(artist)
    events = f"; {plural(len(chart.marks), 'event')}" if chart.marks else ""
    words = f"The last {chart.span}: {chart.limits}{events}."
    return inline_svg(figure, title=chart.title, description=words)


def _lines(chart: Chart, figure: Figure) -> Iterator[Line2D]:
    """Yield a line for each peer and for the GPU; using an Axes would take three times as long."""
    low, high = chart.extent
    levels = BboxTransformFrom(Bbox.from_extents(0.0, low, 1.0, high if high > low else low + 1.0))
    to_figure = levels + BboxTransformTo(Bbox.from_extents(0.0, _BOTTOM, 1.0, _TOP))
    line = partial(Line2D, transform=to_figure + figure.transFigure)
    for peer in chart.peers:
        across = np.linspace(0.0, 1.0, len(peer))
        yield line(across, peer, color=COLOURS["muted"], linewidth=0.8, alpha=0.55)
    across = np.linspace(0.0, 1.0, len(chart.own))
    yield line(across, chart.own, color=COLOURS["bad"], linewidth=1.6)


def _time_labels(chart: Chart) -> Iterator[Text]:
    grey = COLOURS["muted"]
    yield Text(0.0, 0.03, f"{chart.span} ago", color=grey)
    yield Text(1.0, 0.03, "now", color=grey, horizontalalignment="right")


def _marks(chart: Chart) -> Iterator[Artist]:
    """Yield a vertical line for each event, and the labels."""
    amber = COLOURS["warn"]
    for x, label in _choose_labels(chart.marks):
        yield Line2D([x, x], [_BOTTOM, _TOP], color=amber, linewidth=0.8, linestyle="--")
        yield Text(x, _TOP + 0.03, label, color=amber, horizontalalignment=_label_alignment(x))


def _label_alignment(x: float) -> Literal["left", "right"]:
    """Return the alignment of a label; late labels end at their line."""
    return "right" if x > 0.8 else "left"


def _choose_labels(marks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Keep the labels that have room, most severe codes first."""
    shown = list(marks[-_MAX_MARKS:])
    begins = [x - _MIN_LABEL_DISTANCE if _label_alignment(x) == "right" else x for x, _ in shown]
    graves = sorted(range(len(shown)), key=lambda i: (-_gravity(shown[i][1]), -shown[i][0]))
    labelled: set[int] = set()
    for i in graves:
        apart = all(abs(begins[i] - begins[other]) > _MIN_LABEL_DISTANCE for other in labelled)
        if apart and len(labelled) < _MAX_LABELS:
            labelled.add(i)
    return [(x, label if i in labelled else "") for i, (x, label) in enumerate(shown)]


def _gravity(label: str) -> float:
    name, _, code = label.rpartition(" ")
    known = name == title("xid") and code.isdigit()
    return float(severity(np.array([int(code)], np.float32))[0]) if known else 0.0
