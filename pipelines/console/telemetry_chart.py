"""Charts of a GPU's telemetry as SVG, which scripts replace by charts with a cursor."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forewarn.pipelines.incidents.api.gpu_details import Channel, CodeEvent, GpuAnswer
from forewarn.pipelines.rendering.templates import parse_utc

__all__ = ["TelemetryChart", "telemetry_charts"]

_WIDTH, _HEIGHT, _TOP = 320.0, 90.0, 6.0


@dataclass(frozen=True, slots=True)
class TelemetryChart:
    """A chart: lines and marks in a box of 320 by 90, and the numbers for a script.

    Attributes
    ----------
    title, unit, low, high : str
    lines : tuple of str
        Points of each unbroken line, as SVG writes them.
    span_x, span_width : float
        The span for which a failure is predicted.
    marks : tuple of (float, str)
        Events: position and text.
    data : str
        JSON for the script.
    """

    title: str
    unit: str
    low: str
    high: str
    lines: tuple[str, ...]
    span_x: float
    span_width: float
    marks: tuple[tuple[float, str], ...]
    data: str


def telemetry_charts(gpu: GpuAnswer) -> list[TelemetryChart]:
    """Return the charts of all channels with readings; empty without telemetry."""
    telemetry = gpu.telemetry
    if telemetry is None:
        return []
    n_points = max((len(channel.levels) for channel in telemetry.channels), default=0)
    end = telemetry.start + telemetry.step * n_points
    begin_risk, end_risk = _predicted_span(gpu, end)
    last = max(end_risk, end)
    scale = _WIDTH / max(last - telemetry.start, 1)
    marks = list(_marks(gpu.events, telemetry.start, scale))
    charts = []
    for channel in telemetry.channels:
        known = [level for level in channel.levels if level is not None]
        if not known:
            continue
        data = {
            "start": telemetry.start,
            "step": telemetry.step,
            "levels": channel.levels,
            "unit": channel.unit,
            "title": channel.title,
            "span": [begin_risk, end_risk],
            "marks": [[at, text] for at, text in _times(gpu.events)],
        }
        charts.append(
            TelemetryChart(
                channel.title + (", added up" if channel.counted else ""),
                channel.unit,
                f"{min(known):g}",
                f"{max(known):g}",
                tuple(_lines(channel, telemetry.step * scale)),
                (begin_risk - telemetry.start) * scale,
                max((end_risk - begin_risk) * scale, 0.0),
                tuple(marks),
                json.dumps(data),
            )
        )
    return charts


def _predicted_span(gpu: GpuAnswer, end: int) -> tuple[int, int]:
    """Return the span of the prediction, in seconds since 1970 UTC; empty without one."""
    listed = gpu.listed
    times = () if listed is None else (parse_utc(listed.window_end), parse_utc(listed.valid_until))
    seconds = [int(time.timestamp()) for time in times if time is not None]
    return (seconds[0], seconds[1]) if len(seconds) == 2 else (end, end)


def _times(events: Sequence[CodeEvent]) -> Iterator[tuple[int, str]]:
    for event in events:
        time = parse_utc(event.at)
        if time is not None:
            yield int(time.timestamp()), f"{event.name} {event.code}"


def _marks(events: Sequence[CodeEvent], start: int, scale: float) -> Iterator[tuple[float, str]]:
    for at, text in _times(events):
        if at >= start:
            yield (at - start) * scale, text


def _lines(channel: Channel, step: float) -> Iterator[str]:
    """Yield the unbroken lines of a channel."""
    known = [level for level in channel.levels if level is not None]
    low, high = min(known), max(known)
    height = (_HEIGHT - 2 * _TOP) / (high - low if high > low else 1.0)
    points: list[str] = []
    for number, level in enumerate([*channel.levels, None]):
        if level is not None and math.isfinite(level):
            y = _HEIGHT - _TOP - (level - low) * height
            points.append(f"{(number + 0.5) * step:.1f},{y:.1f}")
        elif points:
            yield " ".join(points if len(points) > 1 else [points[0], points[0]])
            points = []
