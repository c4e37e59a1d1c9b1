"""Plot of the recovery study: useful time over job size and rate, and what moves need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from forewarn.pipelines.rendering.svg_figures import COLOURS, figure_style
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["recovery_picture"]

_LINES = {"poll and resubmit": ":", "+ Young": "--", "+ escalation": "-"}
_LABELS = {"+ Young": "with all up to Young", "+ escalation": "with all mechanisms"}


@figure_style()
def recovery_picture(
    rates: Sequence[Mapping[str, Any]], break_even: Mapping[str, Any], path: Path
) -> None:
    """Write a PNG of `rate_figures` and `break_even_figures`."""
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _plot_sizes(left, rates)
    _plot_moves(right, break_even)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def _plot_sizes(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    colours = dict(zip(dict.fromkeys(row["rate"] for row in rows), ("c1", "c3", "c2"), strict=True))
    for rate, colour in colours.items():
        for method, style in _LINES.items():
            chosen = [row for row in rows if (row["rate"], row["method"]) == (rate, method)]
            axes.semilogx(
                [row["gpus"] for row in chosen],
                [row["effective_share"] for row in chosen],
                style,
                color=COLOURS[colour],
                label=f"{rate}'s rate" if method == "+ escalation" else None,
            )
    for method in ("poll and resubmit", "+ Young"):
        axes.plot([], [], _LINES[method], color="grey", label=_LABELS.get(method, method))
    sizes = sorted({row["gpus"] for row in rows})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8, rotation=30)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1)
    axes.set_xlabel("GPUs of the job")
    axes.set_ylabel("useful time (ETTR)")
    axes.legend(fontsize=8, loc="lower left")


def _plot_moves(axes: Axes, break_even: Mapping[str, Any]) -> None:
    rows = break_even["rows"]
    for recall, colour in zip(
        sorted({row["recall"] for row in rows}), ("c1", "c3", "c2"), strict=True
    ):
        chosen = [row for row in rows if row["recall"] == recall]
        for moves, style in (("moves at stops", "-"), ("moves at once", ":")):
            axes.plot(
                [row["precision"] for row in chosen],
                [row["gains"][moves] for row in chosen],
                style,
                marker=".",
                color=COLOURS[colour],
                label=f"recall {recall:g}, {moves.removeprefix('moves ')}",
            )
    axes.axhline(0.0, color=COLOURS["muted"], linewidth=0.8)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("precision of the list")
    axes.set_ylabel(f"gain of moves, {break_even['gpus']:,} GPUs")
    axes.legend(fontsize=8, loc="lower right")
