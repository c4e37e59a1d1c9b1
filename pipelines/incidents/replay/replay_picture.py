"""The picture of a replay: when which machine would have been out, and whether rightly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from forewarn.pipelines.incidents.replay.replay_report import Drain, ReplayReport
from forewarn.pipelines.rendering.drawing import COLOURS, WIDTH, own_style
from forewarn.pipelines.runtime.timestamps import to_timestamps
from forewarn.response.state.incident import Outcome

__all__ = ["outages_figure"]

_MOST_MACHINES = 40
_ROW = 0.21  # inches
_LONGEST = 24  # characters of a name
_NARROWEST = 150  # bars of the shortest time fill the width
_LOOKS = {
    Outcome.CONFIRMED: ("c3", "failed"),
    Outcome.NOT_CONFIRMED: ("c2", "did not fail"),
    Outcome.UNKNOWN: ("muted", "nobody can say"),
}


def outages_figure(report: ReplayReport) -> Figure:
    """Draw how many machines would have been out at once, and below when each one."""
    machines = list(dict.fromkeys(d.taken.action.machine for d in report.drains))[:_MOST_MACHINES]
    height = 1.9 + _ROW * max(len(machines), 2)
    with own_style():
        figure = Figure(figsize=(WIDTH * 1.35, height), layout="constrained")
        ratios = [1.0, _ROW * max(len(machines), 2) / 0.9]
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        for axes in (top, below):
            axes.spines[["left", "bottom"]].set_linewidth(0.8)
        _draw_number(top, report)
        _draw_machines(below, report, machines)
        _legend(top, below, report)
        below.set_xlim(*(_moments([report.past.start, report.past.end])))
        locator = AutoDateLocator(tz="UTC", maxticks={3: 9, 4: 9})  # type: ignore[no-untyped-call]
        below.xaxis.set_major_locator(locator)
        below.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz="UTC"))  # type: ignore[no-untyped-call]
        below.xaxis.get_offset_text().set_visible(False)  # the page says the year above
    return figure


def _moments(times: Sequence[int]) -> npt.NDArray[np.datetime64]:
    return np.asarray(to_timestamps(times).tz_localize(None).to_numpy())


def _draw_number(axes: Axes, report: ReplayReport) -> None:
    """Draw how many machines are out at once."""
    changes = sorted(
        [(d.taken.action.at, 1) for d in report.drains]
        + [(d.taken.until, -1) for d in report.drains]
    )
    times, numbers = [report.past.start], [0]
    for time, change in changes:
        times.append(min(time, report.past.end))
        numbers.append(numbers[-1] + change)
    times.append(report.past.end)
    numbers.append(numbers[-1])
    axes.fill_between(_moments(times), numbers, step="post", color=COLOURS["c1"], alpha=0.25)
    axes.step(_moments(times), numbers, where="post", color=COLOURS["c1"], linewidth=1.4)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylim(0, max(numbers) + 0.5)
    axes.set_ylabel("machines out")


def _draw_machines(axes: Axes, report: ReplayReport, machines: Sequence[str]) -> None:
    """Draw a bar for each time that a machine is out, and a cross where one of its GPUs failed."""
    row = {machine: number for number, machine in enumerate(machines)}
    for drain in report.drains:
        if drain.taken.action.machine in row:
            _draw_bar(axes, row[drain.taken.action.machine], drain, report)
    failures = [failure for failure in report.past.failures if failure.machine in row]
    axes.plot(
        _moments([failure.failed_at for failure in failures]),
        [row[failure.machine] for failure in failures],
        "x",
        color=COLOURS["text"],
        markersize=6,
        markeredgewidth=1.6,
        label="a GPU failed",
        zorder=3,
        clip_on=False,  # a failure at the end of the past lies on the edge
    )
    axes.set_yticks(range(len(machines)), [_shortened(name) for name in machines])
    axes.set_ylim(len(machines) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _draw_bar(axes: Axes, row: int, drain: Drain, report: ReplayReport) -> None:
    """Draw a bar; a time too short to be seen is drawn as long as can be seen."""
    past, begin = report.past, drain.taken.action.at
    shortest = (past.end - past.start) // _NARROWEST
    stop = min(max(drain.taken.until, begin + shortest), past.end)
    start, end = _moments([min(begin, stop - shortest), stop])
    colour = COLOURS[_LOOKS[drain.judged.outcome][0]]
    axes.barh(row, end - start, left=start, height=0.62, color=colour)


def _legend(top: Axes, below: Axes, report: ReplayReport) -> None:
    """Put the legend over the picture, where it hides nothing."""
    outcomes = {drain.judged.outcome for drain in report.drains}
    looks = [look for outcome, look in _LOOKS.items() if outcome in outcomes]
    patches = [Patch(color=COLOURS[colour], label=f"out, {text}") for colour, text in looks]
    top.legend(
        handles=[*patches, *below.get_legend_handles_labels()[0]],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=4,
        borderaxespad=0.2,
    )
