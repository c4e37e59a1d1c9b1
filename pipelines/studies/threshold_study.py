"""`forewarn study thresholds`: how thresholds decrease with more data, as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from forewarn.features.records.record_table import DAY
from forewarn.models.detection.detector_file import StoredDetector
from forewarn.models.detection.fitting.threshold_fitting import (
    PeakScore,
    fit_thresholds,
    peak_scores,
)
from forewarn.models.detection.threshold import MIN_THRESHOLD
from forewarn.pipelines.detection.task_metrics import find_pulls, open_pull
from forewarn.pipelines.rendering.svg_figures import COLOURS, figure_style
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["threshold_figures", "threshold_picture", "threshold_text"]

_COUNTS = (1, 2, 4, 8, 12, 20, 30, 45, 60, 100, 200, 500, 1000)
_MAX_PANELS = 12


def threshold_figures(metrics: Path, stored: StoredDetector) -> dict[str, Any]:
    """Fit the thresholds of a detector to the first 1, 2, 4 and more healthy tasks.

    Parameters
    ----------
    metrics : Path
        `task=NAME/*.parquet`, ordered by name. Tasks excluded from the fit are skipped.
    stored : StoredDetector

    Returns
    -------
    dict
        By metric: `pulls`, the `threshold` for a task of median size after so many pulls, and the
        highest score `reached` by them.
    """
    detector, left_out = stored.detector, stored.facts.left_out
    reached: dict[str, dict[str, PeakScore]] = {model.name: {} for model in detector.metrics}
    folders = find_pulls(metrics)
    with progress_bar(len(folders), "study", "pull") as bar:
        for folder in folders:
            pull = open_pull(folder, stored.interval, sampling=stored.sampling)
            days = pull.grid.n_ticks * pull.grid.interval / DAY
            peaks = peak_scores(detector, detector.metrics, pull.task(), days)
            for name, peak in peaks.items():
                if pull.name not in left_out:
                    reached.setdefault(name, {})[pull.name] = peak
            bar.update()
    share = stored.facts.false_alarms / len(detector.metrics)
    return {name: _falling(name, reached, share) for name, tasks in reached.items() if tasks}


def _falling(
    name: str, by_metric: Mapping[str, Mapping[str, PeakScore]], per_day: float
) -> dict[str, list[float]]:
    reached = list(by_metric[name].values())
    counts = [n for n in _COUNTS if n < len(reached)] + [len(reached)]
    size = int(np.median([reach.n_machines for reach in reached]))
    thresholds = []
    for n in counts:
        first = {metric: dict(list(tasks.items())[:n]) for metric, tasks in by_metric.items()}
        thresholds.append(fit_thresholds(first, per_day)[name].at(size))
    highest = [max(reach.highest for reach in reached[:n]) for n in counts]
    return {"pulls": [float(n) for n in counts], "threshold": thresholds, "reached": highest}


@figure_style()
def threshold_picture(by_metric: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Plot the threshold of each metric against the number of pulls, with their highest score."""
    shown = list(by_metric.items())[:_MAX_PANELS]
    columns = min(len(shown), 4)
    rows = -(-len(shown) // max(columns, 1))
    figure = Figure(figsize=(3.0 * columns + 0.8, 2.6 * rows + 0.8), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for panel in axes.flat[len(shown) :]:
        panel.set_axis_off()
    for (name, figures), panel in zip(shown, axes.flat, strict=False):
        pulls = figures["pulls"]
        panel.loglog(pulls, figures["threshold"], "o-", color=COLOURS["c1"], label="threshold")
        panel.loglog(pulls, figures["reached"], ".-", color=COLOURS["c2"], label="healthy pulls")
        panel.axhline(
            MIN_THRESHOLD, color=COLOURS["muted"], linestyle=":", label="minimum threshold"
        )
        panel.set_title(name.replace("_", " "), fontsize=9)
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(
                "{x:g}"
            )  # a format string, because the style does not render formulas
            axis.set_minor_formatter(NullFormatter())
    for panel in axes[-1]:
        panel.set_xlabel("pulls")
    axes[0][0].legend(fontsize=7)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def threshold_text(by_metric: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return the table for a terminal."""
    lines = []
    for name, figures in by_metric.items():
        cells = zip(figures["pulls"], figures["threshold"], figures["reached"], strict=True)
        steps = ", ".join(f"{n:.0f}: {level:.2f} ({highest:.2f})" for n, level, highest in cells)
        lines.append(f"{name}: {steps}")
    lines.append("pulls: threshold (highest score)")
    return "\n".join(lines)
