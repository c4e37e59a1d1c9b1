"""Chart of a replay: when each machine would have been out, and with which outcome."""

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
_ROW_INCHES = 0.21
_MAX_NAME_LENGTH = 24
_MAX_BARS_ACROSS = 150  # bars of minimum width across the chart
_STYLES = {
    Outcome.CONFIRMED: ("c3", "failed"),
    Outcome.NOT_CONFIRMED: ("c2", "did not fail"),
    Outcome.UNKNOWN: ("muted", "unknown outcome"),
}


@figure_style()
def draw_outages(report: ReplayReport) -> Figure:
    """Draw the number of machines out at once, and below the outages of each machine."""
    machines = list(dict.fromkeys(d.taken.action.machine for d in report.drains))[
        :_MAX_DRAWN_MACHINES
    ]
    heights = [0.9, _ROW_INCHES * max(len(machines), 2)]
    figure = Figure(figsize=(WIDTH * 1.35, 1.0 + sum(heights)), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    _draw_number(top, report)
    _draw_machines(below, report, {machine: row for row, machine in enumerate(machines)})
    below.set_xlim(*_to_datetimes([report.past.start, report.past.end]))
    below.xaxis.get_offset_text().set_visible(False)  # the page title has the year
    figure.legend(loc="outside upper left", ncols=4)
    return figure


def _to_datetimes(times: Sequence[int]) -> npt.NDArray[np.datetime64]:
    return np.asarray(to_timestamps(times).tz_localize(None).to_numpy())


def _draw_number(axes: Axes, report: ReplayReport) -> None:
    """Draw the number of machines out at once."""
    start, end = report.past.start, report.past.end
    starts = [(drain.taken.action.at, 1) for drain in report.drains]
    ends = [(min(drain.taken.until, end), -1) for drain in report.drains]
    times, changes = zip(*sorted([(start, 0), *starts, *ends, (end, 0)]), strict=True)
    numbers = np.cumsum(changes)
    axes.fill_between(_to_datetimes(times), numbers, step="post", color=COLOURS["c1"], alpha=0.25)
    axes.step(_to_datetimes(times), numbers, where="post", color=COLOURS["c1"], linewidth=1.4)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylim(0, max(numbers) + 0.5)
    axes.set_ylabel("machines out")


def _draw_machines(axes: Axes, report: ReplayReport, row: Mapping[str, int]) -> None:
    """Draw a bar for each outage of a machine, and a cross for each failure of its GPUs."""
    for outcome, (colour, label) in _STYLES.items():
        drains = [
            drain
            for drain in report.drains
            if drain.judged.outcome is outcome and drain.taken.action.machine in row
        ]
        if drains:
            begins, ends = (
                _to_datetimes(times) for times in zip(*_spans(drains, report), strict=True)
            )
            rows = [row[drain.taken.action.machine] for drain in drains]
            bars = axes.barh(rows, ends - begins, 0.62, begins, color=COLOURS[colour])
            bars.set_label(f"out, {label}")
    failures = [failure for failure in report.past.failures if failure.machine in row]
    axes.plot(
        _to_datetimes([failure.failed_at for failure in failures]),
        [row[failure.machine] for failure in failures],
        "x",
        color=COLOURS["text"],
        markersize=6,
        markeredgewidth=1.6,
        label="a GPU failed",
        zorder=3,
        clip_on=False,  # a failure at the end lies on the edge
    )
    axes.set_yticks(range(len(row)), [visible(name, _MAX_NAME_LENGTH) for name in row])
    axes.set_ylim(len(row) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _spans(drains: Sequence[ReplayDrain], report: ReplayReport) -> Iterator[tuple[int, int]]:
    """Yield start and end of the bars; short outages are widened to the minimum visible width."""
    shortest = (report.past.end - report.past.start) // _MAX_BARS_ACROSS
    for drain in drains:
        begin = drain.taken.action.at
        end = min(max(drain.taken.until, begin + shortest), report.past.end)
        yield min(begin, end - shortest), end
