"""Plots a verdict: the reported machine, its peers, and the span that decided."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from forewarn.features.array_types import Float32Array, Int64Array
from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND
from forewarn.models.detection.detection_verdict import MachineFinding
from forewarn.models.detection.detector_file import StoredDetector
from forewarn.models.detection.peer_deviation import MIN_GROUP_SIZE
from forewarn.pipelines.detection.detection_text import joint_text, suppressed_text
from forewarn.pipelines.detection.task_metrics import Pull
from forewarn.pipelines.detection.task_result import TaskVerdict
from forewarn.pipelines.rendering.svg_figures import COLOURS, figure_style
from forewarn.pipelines.runtime.timestamps import to_timestamps
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_names import safe_file_name

__all__ = ["plot_title", "plot_verdict"]


_MAX_LINES = 200
_MAX_NAMES = 3
_TITLE_CHARS = 100
_MAX_CONTRIBUTIONS = 4  # metrics of a joint score that are plotted
_WIDTH, _HEIGHT = 9.0, 2.5
_HEADER_HEIGHT = 1.3  # inches for the title and the legend


@figure_style()
def plot_verdict(detected: TaskVerdict, stored: StoredDetector, folder: Path) -> Path:
    """Plot the metrics that identified a machine, and the next ones in priority.

    If no machine was identified, the first metrics are plotted. Machines that a rule dropped are
    dashed.

    Parameters
    ----------
    detected : TaskVerdict
    stored : StoredDetector
    folder : Path
        Receives a PNG named after the task.
    """
    findings, line = detected.verdict.findings, detected.line()
    first = _deciding_metrics(findings[0]) if findings else []
    role = "this metric decided" if len(first) == 1 else "one of the metrics that decided together"
    dropped = [each.metric for each in detected.verdict.suppressed]
    names = list(dict.fromkeys([*first, *dropped, *(m.name for m in stored.detector.metrics)]))
    # On the scale on which machines are compared, so that values in the hundreds and in the
    # thousands are both visible.
    of_metrics = [limits for model in stored.detector.metrics for limits in model.limits]
    logarithmic = {limits.name for limits in of_metrics if limits.log}
    sent = ((name, detected.pull.series(name)) for name in names)
    panels = dict(
        islice(((n, s) for n, s in sent if s is not None), max(3, len(first)) if first else 4)
    )
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(panels) + _HEADER_HEIGHT), layout="constrained")
    axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
    for (name, series), panel in zip(panels.items(), axes, strict=True):
        _draw(panel, detected.pull, series, findings, line)
        _draw_dropped(panel, detected, name, series)
        _describe(panel, detected.pull, name, role if name in first else "")
        if name in logarithmic:
            panel.set_yscale("symlog", linthresh=1.0)
            panel.yaxis.set_major_formatter("{x:g}")
    axes[-1].set_xlabel(_span_text(detected.pull))
    drawn = [panel.get_legend_handles_labels() for panel in axes]
    entries = {label: handle for hs, ls in drawn for handle, label in zip(hs, ls, strict=True)}
    labels, handles = list(entries), list(entries.values())
    # The line drawn last is on top and matters most.
    figure.legend(handles[::-1], labels[::-1], loc="outside lower left", ncols=2)
    title = plot_title(line, _group_size(detected.pull, findings))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5)
    path = folder / f"{safe_file_name(detected.pull.name)}.png"
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")
    return path


def _deciding_metrics(finding: MachineFinding) -> list[str]:
    """Return the metric of a finding, or those that contribute most to a joint one."""
    return [name for name, _ in finding.metrics[:_MAX_CONTRIBUTIONS]] or [finding.metric]


def plot_title(line: dict[str, Any], group_size: int) -> str:
    """Return the title: the finding, in the units of the metric, and how far to trust it.

    Parameters
    ----------
    line : dict
        In the format of `--json`.
    group_size : int
        Machines in the group of the reported machine.
    """
    if line["machine"] is None:
        rows = [f"{line['task']}: no faulty machine among {line['machines']} machines"]
        if line["event"]:
            rows.append(f"moved together, without a culprit: {_names(line['event']['machines'])}")
    else:
        always = line["kind"] == "straggler"
        what = "has deviated since its first sample on" if always else "deviates on"
        metric = (
            f"several metrics together: {joint_text(line)}" if line["metrics"] else line["metric"]
        )
        rows = [f"{line['task']}: {line['machine']} {what} {metric}"]
        of_metric = f"{line['metrics'][0]['metric']} of the " if line["metrics"] else ""
        rows += [f"{of_metric}{text}" for text in _compared(line["evidence"])]
        if group_size < MIN_GROUP_SIZE:
            size = "1 machine" if group_size == 1 else f"{group_size} machines"
            rows.append(f"its group has {size}: compared with other small groups")
        rows.append(
            f"since {_moment(line['since'])}, confirmed at {_moment(line['detected_at'])} UTC; "
            f"{line['score']:.1f} times the threshold; {line['machines']} machines"
        )
    dropped = suppressed_text(line)
    rows += [f"not named: {dropped}"] if dropped else []
    if line["blind"]:
        rows.append(f"no data for {_names(line['blind'])}")
    if line["observe_only"]:
        rows.append("OBSERVE ONLY: this detector is not validated yet")
    return "\n".join(part for row in rows for part in wrap(row, _TITLE_CHARS))


def _compared(evidence: dict[str, Any] | None) -> list[str]:
    """Return the values of the machine and of its peers as text."""
    if evidence is None or evidence["now"] is None or evidence["others_now"] is None:
        return []
    unit = "" if evidence["unit"] is None else f" {evidence['unit']}"

    def describe(now: str, before: str) -> str:
        earlier = evidence[before]
        return f"{evidence[now]:.4g}{unit}" + (
            "" if earlier is None else f" (before {earlier:.4g})"
        )

    machine, others = describe("now", "before"), describe("others_now", "others_before")
    return [f"machine: {machine}; peers: {others}"]


def _group_size(pull: Pull, findings: Sequence[MachineFinding]) -> int:
    if not findings:
        return len(pull.groups)
    return int((pull.groups == pull.groups[findings[0].machine]).sum())


def _moment(text: str) -> str:
    return text[:19].replace("T", " ")


def _names(machines: Sequence[str]) -> str:
    more = f" and {len(machines) - _MAX_NAMES} more" if len(machines) > _MAX_NAMES else ""
    return ", ".join(machines[:_MAX_NAMES]) + more


def _span_text(pull: Pull) -> str:
    first, last = to_timestamps(
        np.array([pull.grid.time(0), pull.grid.time(pull.grid.n_ticks - 1)])
    ).strftime("%Y-%m-%d %H:%M")
    return f"{first} to {last} UTC"


def _times(pull: Pull) -> npt.NDArray[Any]:
    """Return the time of each tick, UTC without a zone, as plots need it."""
    ticks = np.arange(pull.grid.n_ticks) + pull.grid.first_tick
    return np.asarray(to_timestamps(ticks * pull.grid.interval).tz_localize(None).to_numpy())


def _draw(
    axes: Axes,
    pull: Pull,
    series: Float32Array,
    findings: Sequence[MachineFinding],
    line: dict[str, Any],
) -> None:
    """Plot one metric: other groups faint, the group grey, peers blue, the machine on top."""
    times = _times(pull)
    group, outsiders = _select_peers(pull, findings)
    peers = (line["evidence"] or {}).get("peers", [])
    rows = np.array([pull.grid.machines.index(peer) for peer in peers], dtype=np.int64)
    grey, thin = COLOURS["muted"], 0.9 if len(series) <= 16 else 0.4
    for drawn, colour, alpha, width, label in (
        (_some(outsiders), grey, 0.3, thin, "other groups"),
        (_some(np.setdiff1d(group, rows)), grey, 0.6, thin, "others of its group"),
        (rows, COLOURS["c1"], 0.8, 0.7, f"for comparison: {', '.join(peers)}"),
    ):
        lines = axes.plot(times, series[drawn].T, color=colour, alpha=alpha, linewidth=width)
        for first in lines[:1]:
            first.set_label(label if findings else "all machines")
    middle = "median of its peers" if findings else "median of all"
    if len(group) > 1:
        axes.plot(times, _middle(series[group]), color=COLOURS["text"], linewidth=1.0, label=middle)
    _draw_named(axes, times, pull, series, findings)


def _draw_named(
    axes: Axes,
    times: npt.NDArray[Any],
    pull: Pull,
    series: Float32Array,
    findings: Sequence[MachineFinding],
) -> None:
    """Plot the reported machine, and the span from the first deviation to the verdict."""
    for finding in findings[:1]:
        lasted = format_duration((finding.at - finding.since + 1) * pull.grid.interval / SECOND)
        axes.axvspan(
            times[finding.since],
            times[finding.at],
            color=COLOURS["c2"],
            alpha=0.12,
            label=f"the {lasted} until the verdict (the fault may continue)",
        )
    for number, finding in reversed(list(enumerate(findings[:3]))):
        label = pull.grid.machines[finding.machine]
        colour = COLOURS["c2" if number == 0 else "c4"]
        axes.plot(times, series[finding.machine], color=colour, linewidth=1.6, label=label)


def _draw_dropped(axes: Axes, detected: TaskVerdict, name: str, series: Float32Array) -> None:
    """Plot the machines that a rule dropped for this metric."""
    pull, verdict = detected.pull, detected.verdict
    named = {finding.machine for finding in verdict.findings}
    dropped = dict.fromkeys(e.machine for e in verdict.suppressed if e.metric == name)
    times = _times(pull)
    rows = [machine for machine in dropped if machine not in named][:_MAX_NAMES]
    lines = axes.plot(times, series[rows].T, color=COLOURS["c3"], linewidth=1.2, linestyle="--")
    for first in lines[:1]:
        first.set_label("deviates, but is not named")


def _select_peers(pull: Pull, findings: Sequence[MachineFinding]) -> tuple[Int64Array, Int64Array]:
    """Return the peers of the reported machine, and the machines of other groups."""
    machines = np.arange(len(pull.grid.machines))
    inside = np.ones(len(machines), dtype=bool)
    if findings:
        first = findings[0].machine
        inside = pull.groups == pull.groups[first]
        machines = machines[machines != first]
    group, outsiders = machines[inside[machines]], machines[~inside[machines]]
    return group, outsiders


def _some(machines: Int64Array) -> Int64Array:
    """Return a sample of the machines if there are too many to plot."""
    chosen = np.linspace(0, len(machines) - 1, min(len(machines), _MAX_LINES))
    some: Int64Array = machines[chosen.astype(int)]
    return some


def _describe(axes: Axes, pull: Pull, name: str, role: str) -> None:
    unit = pull.unit(name)
    axes.set_ylabel(name.replace("_", " ") + ("" if unit is None else f"\n{unit}"))
    axes.set_title(role, loc="left", fontsize=9.5)
    axes.xaxis.get_offset_text().set_visible(False)  # the axis label has the date


def _middle(series: Float32Array) -> Float32Array:
    seen = np.isfinite(series).any(axis=0)
    middle = np.full(series.shape[1], np.nan, dtype=np.float32)
    middle[seen] = np.nanmedian(series[:, seen], axis=0)
    return middle
