"""Matplotlib figures in one style, and as SVG in the colours of the page."""

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

# CSS variable of the page -> colour to use without a page (in a notebook or a file).
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
WIDTH = 5.6  # inches: text stays readable when a phone shrinks the picture
_MAX_DATES = 7  # that fit side by side below a picture on a phone
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
    "text.parse_math": False,  # a dollar sign in a name is not math
    "xtick.color": COLOURS["text"],
    "ytick.color": COLOURS["text"],
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "svg.fonttype": "none",  # text stays text: small, selectable, in the reader's font
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}

# Draws in this style regardless of a site's matplotlibrc; a context manager and a decorator.
figure_style = partial(style.context, ["default", _STYLE])


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def inline_svg(figure: Figure, *, title: str, description: str) -> Markup:
    """Return a figure as an SVG element to embed in a page.

    Equal figures with equal titles give identical bytes. Colours of `COLOURS` become CSS variables,
    which a page defines for light and dark screens.

    Parameters
    ----------
    figure : Figure
        Its background is made transparent.
    title, description : str
        For screen readers. Pictures with different titles share no id.
    """
    buffer = io.StringIO()
    with figure_style(), mpl.rc_context({"svg.hashsalt": title}), warnings.catch_warnings():
        # The reader's fonts render the text, so glyphs missing in the layout font do not matter.
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
    """Round the coordinates of a path to tenths of a point."""
    return re.sub(r"(\.\d)\d+", r"\1", path[0]).replace(" \n", "").rstrip()


def date_ticks(axes: Axes, times: Sequence[Any]) -> None:
    """Label at most seven of the test windows with their day."""
    every = max(1, -(-len(times) // _MAX_DATES))
    axes.set_xticks(range(0, len(times), every))
    axes.set_xticklabels([f"{time.day} {day(time).split()[1][:3]}" for time in times[::every]])


def legend_above(axes: Axes) -> None:
    """Put the legend above the plot."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
