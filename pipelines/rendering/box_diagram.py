"""Draws diagrams of boxes and arrows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import copysign, dist

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from forewarn.pipelines.rendering.svg_figures import COLOURS, figure_style

__all__ = ["HEIGHT", "Box", "draw_boxes"]

HEIGHT = 36.0
_EDGE = 10.0
_BOW = 8.0  # bend of an arrow, which separates arrows in opposite directions


@dataclass(frozen=True, slots=True)
class Box:
    """A box: its upper left corner in points, right of and below that of the picture."""

    x: float
    y: float
    title: str
    words: str
    colour: str = "muted"


@figure_style()
def draw_boxes(
    boxes: Sequence[Box], arrows: Iterable[tuple[Box, Box]], *, width: float, right: float = _EDGE
) -> Figure:
    """Draw boxes of equal width and the arrows between them.

    Parameters
    ----------
    boxes : sequence of Box
    arrows : iterable of (Box, Box)
    width : float
        Width of a box, in points.
    right : float
        Space on the right, for arrows within the last column.
    """
    size = max(box.x for box in boxes) + width + right, max(box.y for box in boxes) + HEIGHT + _EDGE
    figure = Figure(figsize=(size[0] / 72.0, size[1] / 72.0))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0.0, size[0]), ylim=(size[1], 0.0))
    axes.set_axis_off()
    patches = {box: _patch(box, width) for box in boxes}
    for start, end in arrows:
        axes.add_patch(_arrow(start, end, patches))
    for box in boxes:
        axes.add_patch(patches[box])
        axes.text(box.x + 9.0, box.y + 15.0, box.title, size=10.0, weight="bold")
        axes.text(box.x + 9.0, box.y + 28.0, box.words, size=8.5, color=COLOURS["muted"])
    return figure


def _patch(box: Box, width: float) -> FancyBboxPatch:
    return FancyBboxPatch(
        (box.x, box.y),
        width,
        HEIGHT,
        boxstyle="round,pad=0,rounding_size=6",
        facecolor=COLOURS["card"],
        edgecolor=COLOURS[box.colour],
        linewidth=1.2 if box.colour == "muted" else 2.5,
        zorder=2,
    )


def _arrow(start: Box, end: Box, patches: dict[Box, FancyBboxPatch]) -> FancyArrowPatch:
    """Return an arrow between box centres, bent around boxes in the same row or column."""
    width = patches[start].get_width()
    centres = [(box.x + width / 2.0, box.y + HEIGHT / 2.0) for box in (start, end)]
    length, bow = dist(*centres), _BOW
    if start.x == end.x and length > 2.0 * HEIGHT:
        bow = copysign(0.75 * width, start.y - end.y)  # to the right, up or down
    elif start.y == end.y and length > 2.0 * width:
        bow = -0.72 * HEIGHT
    return FancyArrowPatch(
        *centres,
        patchA=patches[start],
        patchB=patches[end],
        connectionstyle=f"arc3,rad={2.0 * bow / length:.4f}",
        arrowstyle="-|>,head_length=5,head_width=2.5",
        mutation_scale=1.0,
        color=COLOURS["muted"],
        zorder=1,
    )
