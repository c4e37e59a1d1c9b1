"""A verdict as a picture: all machines thin, the faulty one thick, the span that counts shaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from forewarn.models.detection.detector_file import StoredDetector
from forewarn.models.detection.verdict import Finding
from forewarn.pipelines.detection.run import Detected
from forewarn.pipelines.detection.task_metrics import Pull
from forewarn.pipelines.rendering.drawing import COLOURS, legend_above, own_style
from forewarn.pipelines.runtime.timestamps import to_timestamps
from forewarn.pipelines.storage.atomic_files import replacing
from forewarn.pipelines.storage.file_names import file_name

__all__ = ["plot_verdict"]

Floats = npt.NDArray[np.float32]

_MOST_LINES = 200
_WIDTH, _HEIGHT = 9.0, 2.6


def plot_verdict(detected: Detected, stored: StoredDetector, folder: Path) -> Path:
    """Draw the metric that named a machine and the next ones in priority.

    Where nobody was named, the first metrics are drawn, so that one sees what was looked at.

    Parameters
    ----------
    detected : Detected
    stored : StoredDetector
    folder : Path
        A PNG named after the task is written there.
    """
    findings = detected.verdict.findings
    first = [findings[0].metric] if findings else []
    names = list(dict.fromkeys([*first, *(model.name for model in stored.detector.metrics)]))
    # As the detector compares them: what is hundreds for some and thousands for others.
    of_metrics = [limits for model in stored.detector.metrics for limits in model.limits]
    logarithmic = {limits.name for limits in of_metrics if limits.log}
    sent = ((name, detected.pull.series(name)) for name in names)
    panels = dict(islice(((n, s) for n, s in sent if s is not None), 3 if first else 4))
    with own_style():
        figure = Figure(figsize=(_WIDTH, _HEIGHT * len(panels) + 0.6), layout="constrained")
        axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
        for (name, series), panel in zip(panels.items(), axes, strict=True):
            _draw(panel, detected.pull, name, series, findings)
            if name in logarithmic:
                panel.set_yscale("symlog", linthresh=1.0)
                panel.yaxis.set_major_formatter("{x:g}")
        title = _title(detected) + ("\nobserve only" if detected.verdict.observe_only else "")
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        path = folder / f"{file_name(detected.pull.name)}.png"
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=110, format="png")
    return path


def _title(detected: Detected) -> str:
    line = detected.line()
    if line["machine"] is None:
        return f"{line['task']}: nobody stands out among {line['machines']} machines"
    what = "different from the beginning" if line["kind"] == "straggler" else "stands out"
    return (
        f"{line['task']}: {line['machine']} {what} on {line['metric']}, "
        f"{line['score']:.1f} times the threshold, {line['machines']} machines"
    )


def _draw(axes: Axes, pull: Pull, name: str, series: Floats, findings: Sequence[Finding]) -> None:
    """Draw one metric of all machines, or of some where there are very many."""
    ticks = np.arange(pull.grid.n_ticks) + pull.grid.first_tick
    times = to_timestamps(ticks * pull.grid.interval).tz_localize(None).to_numpy()
    chosen = np.linspace(0, len(series) - 1, min(len(series), _MOST_LINES)).astype(int)
    axes.plot(times, series[chosen].T, color=COLOURS["muted"], alpha=0.35, linewidth=0.4)
    axes.plot(times, _middle(series), color=COLOURS["text"], linewidth=1.0, label="middle of all")
    for number, finding in enumerate(findings[:3]):
        label = pull.grid.machines[finding.machine]
        colour = COLOURS["c2" if number == 0 else "c4"]
        axes.plot(times, series[finding.machine], color=colour, linewidth=1.6, label=label)
    if findings:
        first = findings[0]
        axes.axvspan(times[first.since], times[first.at], color=COLOURS["c2"], alpha=0.12)
    axes.set_ylabel(name.replace("_", " "))
    locator = AutoDateLocator(tz="UTC")  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz="UTC"))  # type: ignore[no-untyped-call]
    legend_above(axes)


def _middle(series: Floats) -> Floats:
    seen = np.isfinite(series).any(axis=0)
    middle = np.full(series.shape[1], np.nan, dtype=np.float32)
    middle[seen] = np.nanmedian(series[:, seen], axis=0)
    return middle
