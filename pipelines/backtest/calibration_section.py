"""The part of a report that asks whether the lists kept what their chances promised."""

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


def calibration_monitor_section(promise: ListCalibrationMetrics | None) -> dict[str, Any]:
    """Return sentences and picture of the leading strategy; empty where nobody knows of it."""
    if promise is None:
        return {}
    sentences, picture = calibration_monitor_text(promise), ""
    if promise.days:
        picture = inline_svg(
            calibration_monitor_plot(promise.days),
            title="Failures that were to follow listed GPUs, and that did",
            description=" ".join(sentences),
        )
    return {"sentences": sentences, "svg": picture, "state": promise.state}


def calibration_monitor_text(promise: ListCalibrationMetrics) -> list[str]:
    """Say whether the lists kept what their chances promised, and when and why flags stopped."""
    if promise.state == "cannot tell":
        return [
            "Cannot tell whether the chances of listed GPUs hold: "
            f"{plural(promise.judged, 'alert')} judged, 60 are needed."
        ]
    when = " at the end" if promise.changes else ""
    text = f"The promise of the list is {promise.state}{when}"
    if promise.judged:
        since = " since then" if promise.changes else ""
        text += (
            f": {chance_text(promise.promised)} of {plural(promise.judged, 'alert')}{since} "
            f"were to fail, and {chance_text(promise.precision)} did"
        )
    events = [_change_text(change) for change in promise.changes]
    return [f"{text}.", *events, *_blocked_flags_text(promise.days)]


def _change_text(change: DatedChange) -> str:
    date = day(pd.Timestamp(change.date, tz="UTC"))
    part = "all" if change.length == 1.0 else f"the first {per_hundred(change.length)} %"
    last = f"of the last {plural(change.alerts, 'alert')}"
    figures = f"{amount(change.expected, 1)} were to fail, and {count(change.hits)} did."
    if not change.length:
        return (
            f"It broke on {date}: {last} {figures} From then on no GPU would have been flagged, "
            "and the page asks for training."
        )
    among = "" if change.length == 1.0 else f" among {part} of the list"
    return (
        f"It was forgiven on {date}: {last}{among} {figures} From then on {part} of the list "
        "would have been flagged again."
    )


def _blocked_flags_text(days: Sequence[CalibrationDay]) -> list[str]:
    """Say which flags the brake stopped, and what that was worth."""
    alerts, hits, flagged, right = (
        sum(getattr(day, name) for day in days)
        for name in ("alerts", "hits", "flagged", "flagged_hits")
    )
    if flagged == alerts:
        return []
    return [
        f"So {count(alerts - flagged)} of {plural(alerts, 'alert')} would have called for nothing, "
        f"{count(hits - right)} of them before a failure. Of 100 that did call for action "
        f"{per_hundred(right / flagged if flagged else None)} failed; without the brake "
        f"{per_hundred(hits / alerts)}."
    ]


@figure_style()
def calibration_monitor_plot(days: Sequence[CalibrationDay]) -> Figure:
    """Draw what was promised and what happened, added up by day; grey where flags are stopped.

    Parameters
    ----------
    days : sequence of PromiseDay
    """
    figure, axes = new_figure(WIDTH, 2.6)
    stopped = [n for n, row in enumerate(days) if row.flagged < row.alerts]
    for number, (_, run) in enumerate(groupby(enumerate(stopped), lambda pair: pair[1] - pair[0])):
        span = [n for _, n in run]
        label = "flags stopped" if number == 0 else None
        axes.axvspan(span[0] - 0.5, span[-1] + 0.5, color=COLOURS["line"], linewidth=0, label=label)
    for name, label, colour, stroke in (
        ("expected", "were to fail", "c2", (0, (4, 2))),
        ("hits", "failed in time", "c1", "-"),
    ):
        total = list(accumulate(float(getattr(row, name)) for row in days))
        axes.plot(total, color=COLOURS[colour], linestyle=stroke, linewidth=2.0, label=label)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("alerts, added up")
    date_ticks(axes, [pd.Timestamp(row.date, tz="UTC") for row in days])
    legend_above(axes)
    return figure
