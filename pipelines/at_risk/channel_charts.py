"""Time series of the channels behind a GPU's reasons: the GPU, its peers and event codes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int32Array
from forewarn.features.duration import format_duration
from forewarn.features.records.fleet_timeline import FleetSlice
from forewarn.features.records.hourly_sums import Transform
from forewarn.features.records.lazy_columns import MAX_COLUMNS_IN_MEMORY
from forewarn.features.threads import map_threads
from forewarn.features.time_units import SECOND
from forewarn.pipelines.at_risk.channel_evidence import ChannelEvidence
from forewarn.pipelines.at_risk.channel_names import NOUNS, UNITS, title

__all__ = ["Chart", "channel_charts", "hourly_series"]

_MAX_CHARTS = 2
_MAX_POINTS = 56  # more are not visible in a chart of some 300 pixels
_MAX_PEERS = 8


@dataclass(frozen=True, slots=True)
class Chart:
    """Data of a chart: one channel of one GPU over the longest span.

    Attributes
    ----------
    title, unit, span : str
    own : ndarray of shape (n_points,)
        Level, or increase of a counter since the start; NaN without readings.
    peers : sequence of ndarray of shape (n_points,)
    marks : sequence of (float, str)
        Events: position from 0 to 1, and label.
    """

    title: str
    unit: str
    span: str
    own: Float64Array
    peers: Sequence[Float64Array]
    marks: Sequence[tuple[float, str]]

    @property
    def limits(self) -> str:
        """Lowest and highest level of all lines, as text."""
        low, high = self.extent
        texts = dict.fromkeys((_label(low), _label(high)))
        return f"{' to '.join(texts)}{' ' if self.unit else ''}{self.unit}"

    @property
    def extent(self) -> tuple[float, float]:
        """Lowest and highest level of all lines; 0 without readings."""
        lines = [line[np.isfinite(line)] for line in (self.own, *self.peers)]
        known = np.concatenate(lines)
        return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _HourlySeries:
    """Hourly sums of one channel for some instances, each of shape (n_rows, n_hours)."""

    line: Mapping[int, int]
    gpus: Int32Array
    total: Float64Array
    count: Int32Array

    @classmethod
    def empty(cls, evidence: ChannelEvidence, rows: Collection[int]) -> _HourlySeries:
        """Return series of zeros for all charted instances."""
        numbers = sorted(rows)
        shape = len(numbers), evidence.timeline.grid.shape[1]
        line = {row: number for number, row in enumerate(numbers)}
        gpus = evidence.instances.gpu[numbers]
        return cls(line, gpus, np.zeros(shape), np.zeros(shape, dtype=np.int32))

    def fill(self, part: FleetSlice, name: str, work: Transform | None) -> None:
        """Read the channel again for the GPUs of a slice and fill in their sums."""
        number = {gpu: i for i, gpu in enumerate(part.gpu.tolist())}
        lines = [line for line, gpu in enumerate(self.gpus.tolist()) if gpu in number]
        inside = [number[gpu] for gpu in self.gpus[lines].tolist()]
        sums = part.timeline.grid.sums(part.timeline.records.values(name), work)
        self.total[lines], self.count[lines] = sums.total[inside], sums.count[inside]


def channel_charts(
    evidence: ChannelEvidence, channels: Mapping[int, Sequence[str]]
) -> dict[int, tuple[Chart, ...]]:
    """Return charts of the first two channels of each instance that have a time series.

    Parameters
    ----------
    evidence : ChannelEvidence
    channels : mapping of int to sequence of str
        Channels of each charted instance, the largest contribution first.
    """
    kinds = evidence.plan.kinds
    drawable = {*kinds.float, *kinds.counter, *kinds.binary}
    chosen, rows_of = {}, defaultdict[str, set[int]](set)
    for row, names in channels.items():
        distinct = dict.fromkeys(name.split("|")[0] for name in names)
        chosen[row] = [name for name in distinct if name in drawable][:_MAX_CHARTS]
        for name in chosen[row]:
            rows_of[name] |= {row, *_charted_peers(evidence, row)}
    courses = _read_series(evidence, rows_of)
    return {
        row: tuple(_chart(evidence, row, name, courses[name]) for name in names)
        for row, names in chosen.items()
    }


def hourly_series(
    evidence: ChannelEvidence, rows: Sequence[int], channels: Sequence[str]
) -> dict[str, list[Float64Array]]:
    """Return the level of channels, or the increase of counters, in the longest span.

    Parameters
    ----------
    evidence : ChannelEvidence
    rows : sequence of int
        Instances.
    channels : sequence of str
        Names of levels and counters.

    Returns
    -------
    dict of list of ndarray
        By channel, for each instance at most 56 points of equal width up to its end; NaN without
        readings. A counter is added up from the first point.
    """
    courses = _read_series(evidence, {name: set(rows) for name in channels} if rows else {})
    floats = evidence.plan.kinds.float
    return {
        name: [_series_before(evidence, r, r, hours, level=name in floats) for r in rows]
        for name, hours in courses.items()
    }


def _read_series(
    evidence: ChannelEvidence, rows_of: Mapping[str, Collection[int]]
) -> dict[str, _HourlySeries]:
    """Return the hourly series of all charted channels."""
    courses = {name: _HourlySeries.empty(evidence, rows) for name, rows in rows_of.items()}
    channels = [
        (name, None if name in evidence.plan.kinds.float else _identity) for name in courses
    ]
    gpus = {int(evidence.instances.gpu[row]) for rows in rows_of.values() for row in rows}
    for part in evidence.fleet.some_gpus(gpus, set(courses)).slices() if channels else ():
        map_threads(partial(_fill_series, courses, part), channels, MAX_COLUMNS_IN_MEMORY)
    return courses


def _fill_series(
    courses: Mapping[str, _HourlySeries], part: FleetSlice, channel: tuple[str, Transform | None]
) -> None:
    name, work = channel
    courses[name].fill(part, name, work)


def _charted_peers(evidence: ChannelEvidence, row: int) -> list[int]:
    """Return the instances drawn together with an instance."""
    return list(evidence.peers.near.others(row)[:_MAX_PEERS].tolist())


def _chart(evidence: ChannelEvidence, row: int, name: str, courses: _HourlySeries) -> Chart:
    level = name in evidence.plan.kinds.float
    rows = (row, *_charted_peers(evidence, row))
    lines = [_series_before(evidence, row, other, courses, level=level) for other in rows]
    known = [line for line in lines[1:] if np.isfinite(line).any()]
    called = title(name) if level or name not in NOUNS else f"{NOUNS[name]}, added up"
    span = format_duration(evidence.lengths[-1] / SECOND)
    marks = _code_events(evidence, row)
    return Chart(called, UNITS.get(name, "").strip(), span, lines[0], known, marks)


def _series_before(
    evidence: ChannelEvidence, row: int, other: int, courses: _HourlySeries, *, level: bool
) -> Float64Array:
    """Return the values of `other` in the hours before the instance of `row`."""
    stop = int(evidence.spans.edges[2, -1, row])
    start = stop - max(1, round(evidence.lengths[-1] / evidence.timeline.grid.bucket))
    line, hours = courses.line[other], np.arange(max(start, 0), stop)
    before = np.zeros(max(-start, 0))
    total = np.concatenate([before, courses.total[line, hours]])
    count = np.concatenate([before, courses.count[line, hours]])
    edges = np.linspace(0, len(total), min(_MAX_POINTS, len(total)) + 1).astype(int)[:-1]
    added, read = np.add.reduceat(total, edges), np.add.reduceat(count, edges)
    if not level:
        return np.where(read.cumsum() > 0, added.cumsum(), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(added / read)


def _identity(values: Float32Array) -> Float32Array:
    return values


def _code_events(evidence: ChannelEvidence, row: int) -> list[tuple[float, str]]:
    """Return the events of all code columns of a GPU, by time."""
    end, span = int(evidence.instances.end[row]), evidence.lengths[-1]
    marks = [
        (1.0 - (end - moment) / span, f"{title(name)} {code}")
        for name, events in evidence.codes.items()
        if events.distinct
        for moment, code in events.for_instance(row)
    ]
    return sorted(marks)


def _label(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 20 or value == round(value) else f"{value:.3g}"
