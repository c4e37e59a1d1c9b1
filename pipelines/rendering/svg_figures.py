"""Pictures of matplotlib in one style, and as SVG whose colours follow the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from forewarn.pipelines.rendering.templates import day

__all__ = [
    "COLOURS",
    "WIDTH",
    "date_ticks",
    "figure_style",
    "inline_svg",
    "legend_above",
    "new_figure",
]

# Name of the page's CSS variable -> colour where there is no page (a notebook, a file).
COLOURS = {
    "text": "#1a1f26",
    "muted": "#55606e",
    "line": "#d5dae1",
    "card": "#ffffff",
    "bad": "#b3261e",
    "warn": "#8a5300",
    "c1": "#0b5cad",
    "c2": "#c2410c",
    "c3": "#1c7c4f",
    "c4": "#7b3fa0",
}
WIDTH = 5.6  # inches: text keeps a readable size where a phone shrinks the picture
_MAX_DATES = 7  # that fit side by side under a picture on a phone
_STYLE: dict[str, Any] = {
    "font.size": 10.5,
    "font.sans-serif": ["DejaVu Sans"],
    "axes.labelsize": 10.5,
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["text"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "date.converter": "concise",
    "grid.color": COLOURS["line"],
    "text.color": COLOURS["text"],
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "xtick.color": COLOURS["text"],
    "ytick.color": COLOURS["text"],
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "svg.fonttype": "none",  # text stays text: small, selectable, in the reader's font
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}

# Draw in our style whatever a site's matplotlibrc says; a context and a decorator.
figure_style = partial(style.context, ["default", _STYLE])


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Make an empty figure of some inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def inline_svg(figure: Figure, *, title: str, description: str) -> Markup:
    """Write a figure as an SVG element for the inside of a page.

    Equal figures with equal titles give equal bytes. Colours of `COLOURS` become CSS variables,
    which a page defines for light and for dark screens.

    Parameters
    ----------
    figure : Figure
        Its background becomes transparent.
    title, description : str
        Read by a screen reader. Pictures with different titles share no id.
    """
    buffer = io.StringIO()
    with figure_style(), mpl.rc_context({"svg.hashsalt": title}), warnings.catch_warnings():
        # The reader's fonts draw the text, so what our layout font lacks does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA, transparent=True)
    svg = buffer.getvalue()
    svg = re.sub(r"\n\s*", "\n", svg[svg.index("<svg") :])
    svg = re.sub(r"(?s)<defs>\s*<style.*?</defs>", "", svg, count=1)  # for all pictures: page_style
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # every picture has an axes_1
    svg = re.sub(r'(?<= d=")[^"]*', _shorten, svg)
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable}, {colour})")
    label = escape(f"{title}. {description}")
    return Markup(svg.replace("<svg", f'<svg class="picture" role="img" aria-label="{label}"', 1))


def _shorten(path: re.Match[str]) -> str:
    """Write a path with tenths of a point instead of millionths."""
    return re.sub(r"(\.\d)\d+", r"\1", path[0]).replace(" \n", "").rstrip()


def date_ticks(axes: Axes, times: Sequence[Any]) -> None:
    """Label at most seven of the test windows with their day."""
    every = max(1, -(-len(times) // _MAX_DATES))
    axes.set_xticks(range(0, len(times), every))
    axes.set_xticklabels([f"{time.day} {day(time).split()[1][:3]}" for time in times[::every]])


def legend_above(axes: Axes) -> None:
    """Put the legend over the picture, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
