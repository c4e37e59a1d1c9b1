"""Survey of the keys of all records, span by span: GPUs, failures and last records.

A backtest reads the features of one retraining at a time. Labels also depend on other records, but
only on their keys. The result does not depend on the spans in which records are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import Int32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.failures import Failures
from forewarn.features.records.file_check import States
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.records.record_table import (
    MACHINE,
    CheckReport,
    NoRecordsError,
    Records,
    TextColumn,
)
from forewarn.features.time_units import Nanoseconds

__all__ = ["FleetSurvey", "ReadSpan", "Span", "reading_margin", "survey_fleet"]


# Records read before a span: filled and excluded records depend on preceding ones.
_MARGIN_RECORDS = 36


class Span(NamedTuple):
    """An interval [start, end) of records that are read together."""

    start: int
    end: int

    def extended_before(self, margin: int) -> Span:
        """Return the span extended by a margin at its start."""
        return Span(self.start - margin, self.end)


ReadSpan = Callable[[Span], Records]


def reading_margin(interval: int) -> Nanoseconds:
    """Return how much earlier reading must start for a span to look the same as in the whole.

    Only a clock with two records per interval over that time would need more.
    """
    return Nanoseconds(_MARGIN_RECORDS * interval)


@dataclass(frozen=True)
class FleetSurvey:
    """Facts about all records that do not need features.

    Attributes
    ----------
    serials : tuple of str
        Sorted; defines the numbers of GPUs.
    machines : tuple of str or None
        Sorted; None if no record has one.
    first : int
        Time of the first record.
    newest : Records
        The last record of each GPU, without features.
    failures : Failures
        From all sources.
    seen : CheckReport
        Counts of excluded records.
    """

    serials: tuple[str, ...]
    machines: tuple[str, ...] | None
    first: int
    newest: Records
    failures: Failures
    seen: CheckReport

    @property
    def last(self) -> int:
        """Time of the last record."""
        return self.newest.last

    @cached_property
    def truth(self) -> Timeline:
        """The last records and all failures, from which labels are computed."""
        return build_timeline(self.newest, self.failures)

    def last_records(self, time: Int64Array) -> Records:
        """Return the last record of each GPU before a moment, without GPUs that had none.

        Parameters
        ----------
        time : ndarray of shape (n_gpus,)
            Time of each GPU's last record (`InstanceSurvey.seen_before`).
        """
        seen = np.flatnonzero(time > np.iinfo(np.int64).min)
        records, texts = self.newest, {}
        if self.machines is not None:
            texts[MACHINE] = TextColumn.unknown(self.machines, len(seen))
        return replace(records.select(seen), time=time[seen], texts=texts)

    def numbers_of(self, serials: Sequence[str]) -> Int64Array:
        """Return the numbers of some GPUs."""
        return _positions(self.serials, serials)

    def failures_of(self, serials: Sequence[str]) -> Failures:
        """Return the failures of some GPUs, numbered by their position in `serials`."""
        number = np.full(len(self.serials), -1, dtype=np.int32)
        number[self.numbers_of(serials)] = np.arange(len(serials))
        gpu = number[self.failures.gpu]
        return replace(self.failures, gpu=gpu).select(gpu >= 0)

    def numbered(self, records: Records) -> Records:
        """Return records of a span with the GPU and machine numbers of the whole fleet."""
        records = replace(self._with_all_gpus(records), out_of_service=self.newest.out_of_service)
        if self.machines is None:
            return records
        none = TextColumn.unknown((), len(records))
        column = records.texts.get(MACHINE, none).renumbered(self.machines)
        return replace(records, texts=records.texts | {MACHINE: column})

    def _with_all_gpus(self, records: Records) -> Records:
        if records.serials == self.serials:
            return records
        gpu = _numbers(self.serials, records)[records.gpu]
        return replace(records, serials=self.serials, gpu=gpu)

    def rows_in(self, records: Records, instances: Instances) -> Instances:
        """Return instances with the row numbers of their ends in `records`."""
        keys = records.gpu_bounds(), records.time
        return instances.at_rows(_rows_of(*keys, instances.gpu, instances.end))


def _positions(names: Sequence[str], chosen: Sequence[str]) -> Int64Array:
    number = {name: position for position, name in enumerate(names)}
    return np.array([number[name] for name in chosen], dtype=np.int64)


def _numbers(serials: Sequence[str], records: Records) -> Int32Array:
    return _positions(serials, records.serials).astype(np.int32)


@compiled
def _rows_of(bounds: Int64Array, time: Int64Array, gpu: Int32Array, end: Int64Array) -> Int64Array:
    """Return the row of each GPU and time; both inputs are sorted by GPU and time."""
    rows = np.empty(len(gpu), dtype=np.int64)
    row = 0
    for i in range(len(gpu)):
        row = max(row, bounds[gpu[i]])
        while time[row] < end[i]:
            row += 1
        rows[i] = row
    return rows


@dataclass(frozen=True, slots=True)
class _SpanSurvey:
    """Facts about one span, with GPU numbers of that span."""

    interval: int
    serials: tuple[str, ...]
    machines: tuple[str, ...] | None
    states: States
    last: Int64Array
    first: int
    absent: OutOfService
    seen: CheckReport

    @classmethod
    def from_records(cls, records: Records, seen: CheckReport) -> _SpanSurvey:
        bounds, machine = records.gpu_bounds(), records.texts.get(MACHINE)
        return cls(
            interval=records.interval,
            serials=records.serials,
            machines=None if machine is None else machine.texts,
            states=States.from_changes(records.gpu, records.time, records.failed),
            last=records.time[bounds[1:] - 1],
            first=records.first,
            absent=records.out_of_service,
            seen=seen,
        )

    def numbered(self, serials: Sequence[str]) -> _SpanSurvey:
        """Return the same facts with the GPU numbers of the whole fleet."""
        number = _positions(serials, self.serials).astype(np.int32)
        last = np.full(len(serials), np.iinfo(np.int64).min)
        last[number] = self.last
        return replace(
            self,
            last=last,
            states=self.states._replace(gpu=number[self.states.gpu]),
            absent=replace(self.absent, gpu=number[self.absent.gpu]),
        )


def survey_fleet(
    read: ReadSpan,
    spans: Sequence[Span],
    margin: Nanoseconds,
    failures: Callable[[Sequence[str], States], Failures],
) -> FleetSurvey:
    """Read the keys of all records.

    Parameters
    ----------
    read : callable
        Returns the records of a span, with or without features.
    spans : sequence of Span
        Consecutive spans that cover everything. One at a time is in memory.
    margin : Nanoseconds
        Extension of each span at its start (`reading_margin`).
    failures : callable
        Returns the failures of some serials from all sources, given the states of their records.
    """
    parts = [_survey_span(read, span, margin if number else 0) for number, span in enumerate(spans)]
    serials = tuple(sorted(set().union(*(part.serials for part in parts))))
    named = [part.machines for part in parts if part.machines is not None]
    parts = [part.numbered(serials) for part in parts]
    states = States.joined([part.states for part in parts])
    return FleetSurvey(
        serials=serials,
        machines=tuple(sorted(set().union(*named))) if named else None,
        first=min(part.first for part in parts),
        newest=_last_records(serials, parts),
        failures=failures(serials, states),
        seen=_sum_counts([part.seen for part in parts]),
    )


def _survey_span(read: ReadSpan, span: Span, margin: int) -> _SpanSurvey:
    records = read(span.extended_before(margin))
    seen = records.seen
    if margin and any(getattr(seen, name) for name in _REPORT_COUNTS):
        seen = _subtract_counts(seen, _check_report(read, Span(span.start - margin, span.start)))
    return _SpanSurvey.from_records(records, seen)


def _check_report(read: ReadSpan, span: Span) -> CheckReport:
    try:
        return read(span).seen
    except NoRecordsError:
        return CheckReport()


_REPORT_COUNTS = ("without_key", "doubled", "too_close", "odd_states")


def _subtract_counts(seen: CheckReport, margin: CheckReport) -> CheckReport:
    left = {name: getattr(seen, name) - getattr(margin, name) for name in _REPORT_COUNTS}
    return replace(seen, **left)


def _sum_counts(parts: Sequence[CheckReport]) -> CheckReport:
    left = {name: sum(getattr(seen, name) for seen in parts) for name in _REPORT_COUNTS}
    return replace(CheckReport(naive_time=any(seen.naive_time for seen in parts)), **left)


def _last_records(serials: tuple[str, ...], parts: Sequence[_SpanSurvey]) -> Records:
    """Return the last record of each GPU, and all intervals out of service."""
    n, spans = len(serials), [part.absent for part in parts]
    columns = [[getattr(span, name) for span in spans] for name in ("gpu", "start", "end")]
    table = np.column_stack([np.concatenate(column) for column in columns]).astype(np.int64)
    gpu, start, end = np.unique(table, axis=0).T  # read spans overlap, so intervals may occur twice
    time, number = np.max([part.last for part in parts], axis=0), np.arange(n)
    no = np.zeros(n, dtype=bool)
    return Records(
        interval=parts[0].interval,
        serials=serials,
        gpu=number.astype(np.int32),
        time=time,
        failed=no,
        filled=no,
        column_row=number,
        out_of_service=OutOfService(gpu.astype(np.int32), start, end),
    )
