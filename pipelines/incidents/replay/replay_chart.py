"""The picture of a replay: when which machine would have been out, and whether rightly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from forewarn.pipelines.incidents.replay.replay_report import ReplayDrain, ReplayReport
from forewarn.pipelines.rendering.svg_figures import COLOURS, WIDTH, figure_style
from forewarn.pipelines.rendering.templates import visible
from forewarn.pipelines.runtime.timestamps import to_timestamps
from forewarn.response.state.incident import Outcome

__all__ = ["draw_outages"]

_MAX_DRAWN_MACHINES = 40
_ROW = 0.21  # inches
_MAX_NAME_LENGTH = 24  # characters of a name
_MAX_BARS_ACROSS = 150  # bars of the shortest time fill the width
_LOOKS = {
    Outcome.CONFIRMED: ("c3", "failed"),
    Outcome.NOT_CONFIRMED: ("c2", "did not fail"),
    Outcome.UNKNOWN: ("muted", "nobody can say"),
}


@figure_style()
def draw_outages(report: ReplayReport) -> Figure:
    """Draw how many machines would have been out at once, and below when each one."""
    machines = list(dict.fromkeys(d.taken.action.machine for d in report.drains))[
        :_MAX_DRAWN_MACHINES
    ]
    heights = [0.9, _ROW * max(len(machines), 2)]
    figure = Figure(figsize=(WIDTH * 1.35, 1.0 + sum(heights)), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    _draw_number(top, report)
    _draw_machines(below, report, {machine: row for row, machine in enumerate(machines)})
    below.set_xlim(*_moments([report.past.start, report.past.end]))
    below.xaxis.get_offset_text().set_visible(False)  # the page says the year above
    figure.legend(loc="outside upper left", ncols=4)
    return figure


def _moments(times: Sequence[int]) -> npt.NDArray[np.datetime64]:
    return np.asarray(to_timestamps(times).tz_localize(None).to_numpy())


def _draw_number(axes: Axes, report: ReplayReport) -> None:
    """Draw how many machines are out at once."""
    start, end = report.past.start, report.past.end
    begun = [(drain.taken.action.at, 1) for drain in report.drains]
    over = [(min(drain.taken.until, end), -1) for drain in report.drains]
    times, changes = zip(*sorted([(start, 0), *begun, *over, (end, 0)]), strict=True)
    numbers = np.cumsum(changes)
    axes.fill_between(_moments(times), numbers, step="post", color=COLOURS["c1"], alpha=0.25)
    axes.step(_moments(times), numbers, where="post", color=COLOURS["c1"], linewidth=1.4)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylim(0, max(numbers) + 0.5)
    axes.set_ylabel("machines out")


def _draw_machines(axes: Axes, report: ReplayReport, row: Mapping[str, int]) -> None:
    """Draw a bar for each time that a machine is out, and a cross where one of its GPUs failed."""
    for outcome, (colour, words) in _LOOKS.items():
        drains = [
            drain
            for drain in report.drains
            if drain.judged.outcome is outcome and drain.taken.action.machine in row
        ]
        if drains:
            begins, ends = (_moments(times) for times in zip(*_spans(drains, report), strict=True))
            rows = [row[drain.taken.action.machine] for drain in drains]
            bars = axes.barh(rows, ends - begins, 0.62, begins, color=COLOURS[colour])
            bars.set_label(f"out, {words}")
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
    axes.set_yticks(range(len(row)), [visible(name, _MAX_NAME_LENGTH) for name in row])
    axes.set_ylim(len(row) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _spans(drains: Sequence[ReplayDrain], report: ReplayReport) -> Iterator[tuple[int, int]]:
    """Yield the start and end of bars; a time too short to be seen is drawn as long as can be."""
    shortest = (report.past.end - report.past.start) // _MAX_BARS_ACROSS
    for drain in drains:
        begin = drain.taken.action.at
        end = min(max(drain.taken.until, begin + shortest), report.past.end)
        yield min(begin, end - shortest), end
