"""The records of a backtest, read one retraining at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from forewarn.evaluation.prediction.fleet_survey import (
    FleetSurvey,
    ReadSpan,
    Span,
    margin_of,
    survey_fleet,
)
from forewarn.evaluation.prediction.instance_survey import InstanceSurvey, survey_instances
from forewarn.evaluation.prediction.retraining_schedule import with_instances
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.row_cleaning import Spacings
from forewarn.features.records.table import FeatureKinds, Records
from forewarn.features.time_units import DAY, midnight_of
from forewarn.pipelines.backtest.retraining_slices import RetrainingSlices
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.rendering.templates import plural
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import iso
from forewarn.pipelines.storage.failures_table import FAILURES_TABLE, INCIDENT_FAILURES
from forewarn.pipelines.storage.out_of_service_table import OUT_OF_SERVICE
from forewarn.pipelines.storage.parquet_files import open_parquet
from forewarn.pipelines.storage.record_store import RecordStore
from forewarn.pipelines.storage.replaced_files import FileStamp

__all__ = ["WindowedRecords", "fingerprint"]

# So many rows are looked at together where only keys are read. Where there are no more, they are
# read once with all columns, and a retraining reads nothing.
_ROWS_AT_ONCE = 6_000_000
_TABLES = (FAILURES_TABLE, INCIDENT_FAILURES, OUT_OF_SERVICE)


@dataclass(frozen=True, slots=True)
class WindowedRecords:
    """Records that are too many to be read at once.

    Attributes
    ----------
    job : Job
    fleet : FleetSurvey
        Of all records.
    survey : InstanceSurvey
        All instances.
    spans : tuple of Span
        In which the keys were read; one where everything is read once.
    read : callable
        Reads a span with all columns.
    """

    job: Job
    fleet: FleetSurvey
    survey: InstanceSurvey
    spans: tuple[Span, ...]
    read: ReadSpan

    @classmethod
    def of(cls, job: Job, times: Callable[[FleetSurvey], Sequence[int]]) -> WindowedRecords:
        """Survey the records of a job.

        Parameters
        ----------
        job : Job
        times : callable
            Returns the retraining times of a fleet.

        Raises
        ------
        RecordsError
            If a file cannot be read or breaks the contract, or no record is left.
        """
        store, margin = job.store, margin_of(job.store.interval)
        spans = _spans(store)
        keys = replace(store, kinds=FeatureKinds(), groups=())
        spacings = Spacings()  # a span alone says nothing of the interval
        once = lru_cache(lambda _: store.read())

        def in_spans(store: RecordStore) -> ReadSpan:
            return lambda span: store.read(span.start, span.end, spacings=spacings)

        read, look = (once, once) if len(spans) == 1 else (in_spans(store), in_spans(keys))
        fleet = survey_fleet(look, spans, margin, store.reported)
        spacings.check(str(store.folder))
        recipe = job.walk_settings.recipe
        survey = survey_instances(look, spans, margin, fleet, recipe, times(fleet))
        return cls(job, fleet, survey, spans, read)

    @property
    def retrainings(self) -> list[int]:
        """The retraining times that have any instance to train on or to test."""
        settings = self.job.walk_settings
        spans = {"longest": settings.longest, "every": settings.every}
        return with_instances(self._times, self.survey.instances.end, **spans)

    @property
    def _times(self) -> list[int]:
        return sorted(self.survey.seen_before)

    @property
    def notes(self) -> list[str]:
        """Return one sentence for each thing that a user should know of the records."""
        filled, gaps = self.survey.filled, self.survey.gaps
        nulls = self.read(self.spans[0]).seen.nulls if len(self.spans) == 1 else {}
        seen = replace(self.fleet.seen, filled=filled, gaps=gaps, nulls=nulls).notes()
        idle = sorted(set(self._times) - set(self.retrainings))
        if not idle:
            return seen
        return [
            *seen,
            f"{plural(len(idle), 'retraining')} from {iso(idle[0])} to {iso(idle[-1])} skipped: no "
            "instance before or after; one wrong clock is enough (`forewarn doctor`)",
        ]

    @property
    def last_tested(self) -> int:
        """The last end of an instance whose horizon the records hold whole."""
        return self.fleet.last - self.job.walk_settings.recipe.horizon

    def refuse_changes(self, before: Sequence[Sequence[object]]) -> None:
        """Refuse records that were not the same for all retrainings; later dates may be added.

        Raises
        ------
        JobError
            Names a file that has come, gone or changed.
        """
        if len(self.spans) == 1:  # read once
            return
        last = f"date={iso(self.fleet.last)[:10]}0"  # after all files of that date
        now = fingerprint(self.job.store)
        now = [file for file in now if not last < str(file[0]) < "date=a"]
        changed = {tuple(file) for file in now} ^ {tuple(file) for file in before}
        for name, *_ in sorted(changed):
            raise JobError(
                f"{self.job.store.folder / str(name)}: came, went or changed while the backtest "
                "read the records, expected the same to its end: run it again."
            )

    def at(self, moment: int) -> tuple[Records, Instances, RetrainingSlices | None]:
        """Return what a retraining looks at, what is tested, and what reads the rest of records."""
        settings = self.job.walk_settings
        instances = self.survey.instances.between(moment, moment + settings.every)
        if len(self.spans) == 1:
            records = self.fleet.numbered(self.read(self.spans[0]))
            return records, self.fleet.rows_in(records, instances), None
        sliced = RetrainingSlices(self.job.store, self.fleet, self.job.walk_settings)
        return self.fleet.seen_last(self.survey.seen_before[moment]), instances, sliced


def fingerprint(store: RecordStore) -> list[list[object]]:
    """Return name, size and time of change of every file of a data set."""
    files = [(f"{path.parent.name}/{path.name}", path) for _, path in store.files()]
    files += [(name, store.folder / name) for name in _TABLES]
    stamps = [(name, FileStamp.of_name(path)) for name, path in files]
    return [[name, stamp.size, stamp.modified] for name, stamp in stamps if stamp is not None]


def _spans(store: RecordStore) -> tuple[Span, ...]:
    """Return spans of whole dates, none of many more rows than can be looked at together."""
    rows: dict[int, int] = {}
    for date, path in store.files():
        begin = midnight_of(date)
        rows[begin] = rows.get(begin, 0) + open_parquet(path).metadata.num_rows
    days = sorted(rows)
    starts, n = [days[0]], 0
    for day in days:
        if n and n + rows[day] > _ROWS_AT_ONCE:
            starts.append(day)
            n = 0
        n += rows[day]
    return tuple(Span(*ends) for ends in zip(starts, [*starts[1:], days[-1] + DAY], strict=True))
