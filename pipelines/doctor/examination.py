"""`forewarn doctor`: examination of records before training."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.column_names import ColumnNames
from forewarn.features.records.column_survey import (
    ColumnSurvey,
    ColumnTotals,
    FloatSurvey,
    FloatTotals,
)
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.key_survey import KeySurvey, KeyTotals
from forewarn.features.records.record_table import DAY, RecordsError
from forewarn.features.time_units import SECOND, date_of
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.doctor.doctor_page import render_doctor
from forewarn.pipelines.doctor.file_layout import file_layout
from forewarn.pipelines.doctor.file_survey import SurveyItem, survey_file
from forewarn.pipelines.doctor.fleet_parts import MAX_PART_ROWS, FleetParts
from forewarn.pipelines.doctor.usable_instances import UsableInstances
from forewarn.pipelines.prediction_job import open_store
from forewarn.pipelines.runtime.executor import Executor
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.location import Location, RemotePath
from forewarn.pipelines.storage.records.failures_table import FAILURES_TABLE, read_causes
from forewarn.pipelines.storage.records.labelled_files import check_labels
from forewarn.pipelines.storage.records.mapped_columns import check_names
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.records.record_store import RecordStore

__all__ = ["examine", "write_report"]

_MAX_LISTED_FAILURES = 20


# Number of last intervals: a GPU without a record in them is lost or was removed.
_END_INTERVALS = 12


@dataclass(slots=True)
class _Examination:
    """Totals over all files."""

    gpus: dict[str, int] = field(default_factory=dict)
    machines: dict[str, int] = field(default_factory=dict)
    columns: dict[str, ColumnTotals] = field(default_factory=dict)
    by_day: Counter[dt.date] = field(default_factory=Counter)
    files_without: Counter[str] = field(default_factory=Counter)
    rows_of_files: list[int] = field(default_factory=list)
    without_key: int = 0
    odd_states: int = 0
    misfiled: int = 0
    moments: tuple[int, ...] = ()
    floats: FloatTotals = field(default_factory=FloatTotals)

    def add(self, file: Sequence[Mapping[str, Any]]) -> None:
        """Add the results of a file (`survey_file`), in order of dates."""
        self.rows_of_files.append(sum(part["rows"] for part in file))
        self.files_without.update(file[0]["absent"])
        for part in file:
            self._add_part(part)

    def _add_part(self, part: Mapping[str, Any]) -> None:
        number = _numbers_in(self.gpus, part["serials"])
        _numbers_in(self.machines, part["machines"])
        if part["rows"]:
            moments = (*self.moments, part["first"], part["last"])
            self.moments = (min(moments), max(moments))
        self.without_key += part["without_key"]
        self.odd_states += part["odd_states"]
        self.misfiled += part["misfiled"]
        for day, count in part["days"].items():
            self.by_day[date_of(day * DAY)] += count
        for survey in (ColumnSurvey(**plain) for plain in part["columns"]):
            totals = self.columns.setdefault(survey.name, ColumnTotals(survey.name))
            totals.add(survey, number, len(self.gpus))
        self.floats.add(FloatSurvey(**part["floats"]), number, len(self.gpus))

    def parts(self, files: Sequence[tuple[dt.date, Location]], names: ColumnNames) -> FleetParts:
        """Return the fleet in parts."""
        rows = zip((path for _, path in files), self.rows_of_files, strict=True)
        return FleetParts(list(rows), self.gpus, self.machines, MAX_PART_ROWS, names)


def _numbers_in(known: dict[str, int], texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the number of each text; new texts get the next numbers."""
    return np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)


class _FleetSurvey(NamedTuple):
    """Results over all parts of a fleet."""

    keys: KeySurvey
    failures: Failures
    usable: UsableInstances
    gpus_at_end: int


def examine(records: Location, settings: Settings) -> dict[str, Any]:
    """Examine a folder of records and return a JSON-serializable report.

    Missing configured columns, and a cadence other than the configured one, are reported as
    problems rather than raised as errors.

    Parameters
    ----------
    records : Path or RemotePath
    settings : Settings

    Raises
    ------
    RecordsError
        If a file cannot be read, a column has the wrong type, or there is no record at all.
    """
    store = open_store(records, settings)
    examination, files = _Examination(), store.files()
    items = [(path, date, asdict(store.kinds), store.names.pairs) for date, path in files]
    check_names(sources := [ParquetSource(path, store.names) for _, path in files])
    with progress_bar(len(files), "doctor", "file") as bar:
        for file in _surveys(records, items, settings.executor.executor):
            examination.add(file)
            bar.update()
    if not any(examination.rows_of_files):
        raise RecordsError(f"{records}: has no row with a serial and a timestamp.")
    first, last = examination.moments
    parts = examination.parts(files, store.names)
    keys, failures, usable, n_at_end = _survey_fleet(parts, store, settings, last)
    if usable.fits(keys.cadence):
        check_labels(sources)
    names, machines = list(examination.gpus), list(examination.machines)
    tickets = read_causes(records / FAILURES_TABLE, names=store.names)
    outside = (failures.repaired_at <= first) | (failures.failed_at > last)
    return {
        **{"gpus": len(names), "gpus_at_end": n_at_end, "machines": len(machines)},
        "first": format_iso(first),
        "last": format_iso(last),
        "days": round((last - first) / DAY, 2),
        "interval_seconds": settings.records.interval / SECOND,
        **_keys(keys, names, machines),
        "rows_without_key": examination.without_key,
        "rows_in_another_date": examination.misfiled,
        "failure_neither_0_nor_1": examination.odd_states,
        "records_by_day": {day.isoformat(): n for day, n in sorted(examination.by_day.items())},
        "columns": [column.counts() for column in examination.columns.values()],
        "columns_missing": dict(examination.files_without),
        "files": len(files),
        "layout": file_layout(records, files),
        "frozen": examination.floats.frozen(names),
        "failures": _failures(failures, names, tickets),
        "failures_without_end": _without_end(failures, names, tickets, last),
        "failures_outside": int(outside.sum()),
        "failures_of_others": sorted(set(tickets) - set(names)),
        "usable": usable.report(keys),
    }


def _survey_fleet(
    parts: FleetParts,
    store: RecordStore,
    settings: Settings,
    last: int,
    cadence: int | None = None,
) -> _FleetSurvey:
    """Survey the keys of the fleet part by part.

    Clock offsets depend on the cadence, which is known only after all parts. The first part usually
    has the same cadence; otherwise all parts are surveyed a second time.
    """
    totals, usable = KeyTotals(cadence), UsableInstances(store, settings, last)
    failures, gpus_at_end = Failures.empty(), 0
    since = last - _END_INTERVALS * settings.records.interval
    serials, machines = list(parts.gpus), list(parts.machines)
    for part in parts:
        rows, number = part.rows, part.number.astype(np.int32)
        totals.add(number[rows.gpu], rows.time, rows.machine)
        is_last = np.append(rows.gpu[1:] != rows.gpu[:-1], True)
        gpus_at_end += int((rows.time[is_last[: len(rows.time)]] >= since).sum())
        states = rows.state_changes()
        own = Failures.from_rows(states.gpu, states.time, states.failed)
        own = own.joined(store.reported([serials[n] for n in number.tolist()]))
        own = own.episodes()
        failures = failures.joined(replace(own, gpu=number[own.gpu]))
        if usable.fits(totals.cadence):
            usable.add(part, serials, machines)
    if totals.cadence != totals.median_step:
        return _survey_fleet(parts, store, settings, last, totals.median_step)
    return _FleetSurvey(totals.survey(), failures, usable, gpus_at_end)


def _keys(keys: KeySurvey, serials: list[str], machines: list[str]) -> dict[str, Any]:
    return {
        "records": keys.records,
        "cadence_seconds": keys.cadence / SECOND,
        "coverage": keys.coverage,
        "gaps": keys.gaps,
        "records_missing": keys.missing,
        "rows_doubled": keys.doubled,
        "serials_on_two_machines": sorted(serials[number] for number in keys.two_machines),
        "serials_moved": keys.moved,
        "clocks_off_seconds": dict(
            sorted((machines[n], s / SECOND) for n, s in keys.clocks.items())
        ),
    }


def _surveys(
    records: Location,
    items: Sequence[SurveyItem],
    executor: Executor,
) -> Iterator[list[dict[str, Any]]]:
    """Survey files with the executor; files of an object store here, because keys stay local."""
    if isinstance(records, RemotePath):
        yield from map(survey_file, items)
        return
    with executor.started() as slices:
        yield from slices.map(survey_file, items)


def _failures(
    failures: Failures, names: list[str], tickets: dict[str, list[tuple[int, str]]]
) -> dict[str, Any]:
    """Count failures by month and first reported cause."""
    months: dict[str, Counter[str]] = {}
    for gpu, failed, repaired in zip(
        failures.gpu.tolist(),
        failures.failed_at.tolist(),
        failures.repaired_at.tolist(),
        strict=True,
    ):
        cause = _cause(tickets.get(names[gpu], ()), failed, repaired) or "no cause given"
        months.setdefault(format_iso(failed)[:7], Counter())[cause] += 1
    return {
        "count": len(failures),
        "gpus": len(np.unique(failures.gpu)),
        "by_month": {
            month: dict(sorted(counts.items())) for month, counts in sorted(months.items())
        },
    }


def _without_end(
    failures: Failures,
    names: list[str],
    tickets: Mapping[str, Sequence[tuple[int, str]]],
    last: int,
) -> dict[str, Any]:
    """Count the failures without an end, and those with a presumed end."""
    newest = np.append(np.diff(failures.gpu) != 0, True)[: len(failures)]
    lasts = failures.repaired_at == NEVER
    since, presumed = failures.since(), failures.presumed & newest
    oldest = np.flatnonzero(lasts)[np.argsort(since[lasts], kind="stable")]
    return {
        "count": int(lasts.sum()),
        "overdue": int((since[lasts] < last - DAY).sum()),
        "presumed": int(presumed.sum()),
        "oldest": [
            {
                "gpu_serial": names[failures.gpu[row]],
                "since": format_iso(since[row]),
                "cause": _cause(tickets.get(names[failures.gpu[row]], ()), since[row], NEVER),
            }
            for row in oldest[:_MAX_LISTED_FAILURES].tolist()
        ],
    }


def _cause(reported: Sequence[tuple[int, str]], failed: int, repaired: int) -> str:
    """Return the first reported cause of a failure, or ""."""
    causes = (cause for moment, cause in reported if cause and failed <= moment < repaired)
    return next(causes, "")


def write_report(out: Path, report: dict[str, Any]) -> None:
    """Write `doctor.json` and `doctor.html` into `out`."""
    page = render_doctor(report)
    with replacing(out / "doctor.json") as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    with replacing(out / "doctor.html") as path:
        path.write_text(page, encoding="utf-8")
