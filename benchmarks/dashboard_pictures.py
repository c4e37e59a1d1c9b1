"""What the dashboards of deploy/grafana show: their queries against a Prometheus, drawn.

Grafana is not needed. Called by `benchmarks.alert_month` with a folder for the pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import matplotlib.pyplot as plt
from deploy.grafana.dashboards import DASHBOARDS, Board, Panel
from matplotlib.axes import Axes

__all__ = ["draw_dashboards"]

_SPANS = {"now-24h": 86400, "now-30d": 30 * 86400}
_SCALES = {"s": 3600.0, "percentunit": 0.01, "short": 1.0}
_UNITS = {"s": "h", "percentunit": "%", "short": ""}

Series = tuple[dict[str, str], list[float], list[float]]


@dataclass(frozen=True)
class Client:
    """A Prometheus, and the moment that counts as now, in seconds since 1970 UTC."""

    address: str
    now: float

    def series(self, query: str, seconds: float) -> list[Series]:
        """Return labels, hours before now and values of each series of a range query."""
        step = max(240.0, seconds / 600)
        span = {"start": self.now - seconds, "end": self.now, "step": step}
        return [
            (row["metric"], [(at - self.now) / 3600 for at, _ in row["values"]], _floats(row))
            for row in self._ask("query_range", query, span)
        ]

    def last(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series now."""
        rows = self._ask("query", query, {"time": self.now})
        return [(row["metric"], float(row["value"][1])) for row in rows]

    def _ask(self, way: str, query: str, span: dict[str, float]) -> list[dict[str, Any]]:
        answer = httpx.get(
            f"{self.address}/api/v1/{way}", params={"query": query, **span}, timeout=120
        )
        answer.raise_for_status()
        rows: list[dict[str, Any]] = answer.json()["data"]["result"]
        return rows


def _floats(row: dict[str, Any]) -> list[float]:
    return [float(value) for _, value in row["values"]]


def draw_dashboards(address: str, now: float, folder: Path) -> None:
    """Draw each dashboard into `folder`, and print how many series each query returns."""
    folder.mkdir(parents=True, exist_ok=True)
    client = Client(address, now)
    for board in DASHBOARDS:
        _draw(client, board, folder / f"{board.name}.png")


def _draw(client: Client, board: Board, path: Path) -> None:
    stats = [panel for panel in board.panels if panel.form == "stat"]
    courses = [panel for panel in board.panels if panel.form != "stat"]
    rows = math.ceil(len(courses) / 2)
    heights = [1] * bool(stats) + [3] * rows
    figure = plt.figure(figsize=(16, 1.4 * sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), 12, height_ratios=heights)
    for number, panel in enumerate(stats):
        _draw_stat(figure.add_subplot(grid[0, 2 * number : 2 * number + 2]), client, panel)
    for number, panel in enumerate(courses):
        row, side = divmod(number, 2)
        axes = figure.add_subplot(grid[row + bool(stats), 6 * side : 6 * side + 6])
        _draw_course(axes, client, panel, _SPANS[board.since])
    figure.suptitle(board.title)
    figure.savefig(path, dpi=60)
    plt.close(figure)


def _draw_stat(axes: Axes, client: Client, panel: Panel) -> None:
    texts = []
    for legend, query in panel.queries.items():
        rows = client.last(query)
        _report(panel, legend, len(rows), sum(math.isfinite(value) for _, value in rows))
        for labels, value in rows:
            word = {str(known): text for known, text, _ in panel.names}.get(f"{value:.0f}")
            name = "" if len(panel.queries) * len(rows) == 1 else f"{_named(legend, labels)} "
            texts.append(name + (word or f"{value / _SCALES[panel.unit]:.3g}{_UNITS[panel.unit]}"))
    axes.text(0.5, 0.4, ", ".join(texts) or "no data", ha="center", fontsize=13)
    axes.set_title(panel.title, fontsize=10)
    axes.set_axis_off()


def _draw_course(axes: Axes, client: Client, panel: Panel, seconds: float) -> None:
    scale, drawn = _SCALES[panel.unit], list[Series]()
    for legend, query in panel.queries.items():
        series = client.series(query, seconds)
        finite = sum(math.isfinite(value) for *_, points in series for value in points)
        _report(panel, legend, len(series), finite)
        drawn += [({"name": _named(legend, labels)}, at, y) for labels, at, y in series]
    for labels, at, points in drawn:
        ys = [value / scale for value in points]
        style = "steps-post" if panel.form == "lines" else "default"
        axes.plot(at, ys, label=labels["name"], drawstyle=style)
    if panel.red is not None:
        axes.axhline(panel.red / scale, color="red", linewidth=0.7)
    axes.set_title(f"{panel.title} {_UNITS[panel.unit] and f'[{_UNITS[panel.unit]}]'}", fontsize=10)
    axes.set_xlim(-seconds / 3600, 0)
    axes.set_xlabel("hours before now", fontsize=8)
    if drawn:
        axes.legend(fontsize=7, loc="upper left")


def _named(legend: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return legend


def _report(panel: Panel, legend: str, n_series: int, n_values: int) -> None:
    print(f"  {panel.title[:44]:46}{legend[:24]:26}{n_series:4} series {n_values:7} values")
