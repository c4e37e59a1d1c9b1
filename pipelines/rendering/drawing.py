"""Drawing in one style: figures of our size, colours that a page can change, SVG for a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from forewarn.pipelines.rendering.templates import day, draw_svg

__all__ = [
    "COLOURS",
    "WIDTH",
    "date_ticks",
    "inline_svg",
    "legend_above",
    "new_figure",
    "own_style",
]

# Name of the page's CSS variable -> colour where there is no page (a notebook, a file).
COLOURS = {
    "text": "#1a1f26",
    "muted": "#55606e",
    "line": "#d5dae1",
    "c1": "#0b5cad",
    "c2": "#c2410c",
    "c3": "#1c7c4f",
    "c4": "#7b3fa0",
}
WIDTH = 5.6  # inches: text keeps a readable size where a phone shrinks the picture
_TICKS = 7  # dates that fit side by side under a picture on a phone
_STYLE: dict[str, Any] = {
    "font.size": 10.5,
    "axes.labelsize": 10.5,
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["text"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.color": COLOURS["line"],
    "text.color": COLOURS["text"],
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "xtick.color": COLOURS["text"],
    "ytick.color": COLOURS["text"],
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "svg.fonttype": "none",  # text stays text: small, selectable, in the reader's font
    "svg.hashsalt": "forewarn",  # or ids would be random
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Make an empty figure in our style, in inches."""
    with own_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        axes.spines[["left", "bottom"]].set_linewidth(0.8)
    return figure, axes


@contextmanager
def own_style() -> Iterator[None]:
    """Draw in our style whatever a site's matplotlibrc says."""
    with style.context(["default", _STYLE]):
        yield


def inline_svg(figure: Figure, *, name: str, title: str, description: str) -> Markup:
    """Write a figure as an SVG element that can stand inside a page.

    Equal figures give equal bytes. Colours become CSS variables with a fallback, so that a page
    can change them for a dark screen.

    Parameters
    ----------
    figure : Figure
        The picture; its canvas stays transparent.
    name : str
        Prefix of every id in it, unlike that of any other picture on the page: letters, digits
        and hyphens.
    title, description : str
        What a screen reader says.

    Raises
    ------
    ValueError
        If `name` cannot be part of an id.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name):
        raise ValueError(f"`name` must be letters, digits and hyphens, got {name!r}.")
    buffer = io.StringIO()
    with own_style(), warnings.catch_warnings():
        # The reader's fonts draw the text, so what our layout font lacks does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA, transparent=True)
    view_box, body = _for_a_page(buffer.getvalue(), name)
    return draw_svg(
        "picture",
        view_box=view_box,
        name=name,
        title=title,
        description=description,
        body=Markup(body),  # matplotlib has escaped it
    )


def _for_a_page(svg: str, name: str) -> tuple[str, str]:
    """Return its view box, and what it holds with ids, colours and fonts that fit a page."""
    root = re.search(r'<svg[^>]*viewBox="([^"]*)"[^>]*>', svg)
    if root is None:
        raise ValueError("`svg` must hold an svg element with a viewBox, found none.")
    body = svg[root.end() :]
    # This style would reach every SVG of the page; the root element carries it instead.
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = body.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    body = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", body)
    for variable, colour in COLOURS.items():
        body = body.replace(colour, f"var(--{variable}, {colour})")
    return root.group(1), body.rstrip()


def date_ticks(axes: Axes, times: Sequence[Any]) -> None:
    """Label at most seven of the test windows with their day."""
    every = max(1, -(-len(times) // _TICKS))
    axes.set_xticks(range(0, len(times), every))
    axes.set_xticklabels([f"{time.day} {day(time).split()[1][:3]}" for time in times[::every]])


def legend_above(axes: Axes) -> None:
    """Put the legend over the picture, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
