"""Section of the backtest report about the calibration monitor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from forewarn.evaluation.prediction.metrics.list_calibration import (
    CalibrationDay,
    DatedChange,
    ListCalibrationMetrics,
)
from forewarn.pipelines.rendering.svg_figures import (
    COLOURS,
    WIDTH,
    date_ticks,
    figure_style,
    inline_svg,
    legend_above,
    new_figure,
)
from forewarn.pipelines.rendering.templates import (
    amount,
    chance_text,
    count,
    day,
    per_hundred,
    plural,
)

__all__ = ["calibration_monitor_plot", "calibration_monitor_section", "calibration_monitor_text"]


def calibration_monitor_section(calibration: ListCalibrationMetrics | None) -> dict[str, Any]:
    """Return sentences and plot for the leading strategy; empty without monitoring."""
    if calibration is None:
        return {}
    sentences, picture = calibration_monitor_text(calibration), ""
    if calibration.days:
        picture = inline_svg(
            calibration_monitor_plot(calibration.days),
            title="Expected and observed failures of listed GPUs",
            description=" ".join(sentences),
        )
    return {"sentences": sentences, "svg": picture, "state": calibration.state}


def calibration_monitor_text(calibration: ListCalibrationMetrics) -> list[str]:
    """Return whether the lists were calibrated, and when and why flags were blocked."""
    if calibration.state == "cannot tell":
        return [
            "It is not known whether the probabilities of listed GPUs are calibrated: "
            f"{plural(calibration.judged, 'alert')} with a known outcome, 60 are needed."
        ]
    when = " at the end" if calibration.changes else ""
    state = "not calibrated" if calibration.state == "broken" else "calibrated"
    text = f"The probabilities of the list are {state}{when}"
    if calibration.judged:
        since = " since then" if calibration.changes else ""
        text += (
            f": of {plural(calibration.judged, 'alert')}{since}, "
            f"{chance_text(calibration.promised)} were expected to fail and "
            f"{chance_text(calibration.precision)} did"
        )
    events = [_change_text(change) for change in calibration.changes]
    return [f"{text}.", *events, *_blocked_flags_text(calibration.days)]


def _change_text(change: DatedChange) -> str:
    date = day(pd.Timestamp(change.date, tz="UTC"))
    part = "all" if change.length == 1.0 else f"the first {per_hundred(change.length)} %"
    last = f"of the last {plural(change.alerts, 'alert')}"
    figures = f"{amount(change.expected, 1)} were expected to fail and {count(change.hits)} did."
    if not change.length:
        return (
            f"Miscalibration was detected on {date}: {last}, {figures} From then on no GPU would "
            "have been flagged."
        )
    among = "" if change.length == 1.0 else f" among {part} of the list"
    return (
        f"The ranking recovered on {date}: {last}{among}, {figures} From then on {part} of the "
        "list would have been flagged again."
    )


def _blocked_flags_text(days: Sequence[CalibrationDay]) -> list[str]:
    """Return how many flags the monitor blocked, and the effect on precision."""
    alerts, hits, flagged, right = (
        sum(getattr(day, name) for day in days)
        for name in ("alerts", "hits", "flagged", "flagged_hits")
    )
    if flagged == alerts:
        return []
    return [
        f"The monitor blocked {count(alerts - flagged)} of {plural(alerts, 'alert')}, "
        f"{count(hits - right)} of them before a failure. Of 100 flagged GPUs "
        f"{per_hundred(right / flagged if flagged else None)} failed; without the monitor "
        f"{per_hundred(hits / alerts)}."
    ]


@figure_style()
def calibration_monitor_plot(days: Sequence[CalibrationDay]) -> Figure:
    """Plot cumulative expected and observed failures by day; grey where flags are blocked.

    Parameters
    ----------
    days : sequence of CalibrationDay
    """
    figure, axes = new_figure(WIDTH, 2.6)
    stopped = [n for n, row in enumerate(days) if row.flagged < row.alerts]
    for number, (_, run) in enumerate(groupby(enumerate(stopped), lambda pair: pair[1] - pair[0])):
        span = [n for _, n in run]
        label = "flags blocked" if number == 0 else None
        axes.axvspan(span[0] - 0.5, span[-1] + 0.5, color=COLOURS["line"], linewidth=0, label=label)
    for name, label, colour, stroke in (
        ("expected", "expected to fail", "c2", (0, (4, 2))),
        ("hits", "failed within the horizon", "c1", "-"),
    ):
        total = list(accumulate(float(getattr(row, name)) for row in days))
        axes.plot(total, color=COLOURS[colour], linestyle=stroke, linewidth=2.0, label=label)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("alerts, cumulative")
    date_ticks(axes, [pd.Timestamp(row.date, tz="UTC") for row in days])
    legend_above(axes)
    return figure
