"""Records of a walk-forward backtest, read one retraining at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from forewarn.evaluation.prediction.walk_forward.fleet_survey import (
    FleetSurvey,
    ReadSpan,
    Span,
    reading_margin,
    survey_fleet,
)
from forewarn.evaluation.prediction.walk_forward.instance_survey import (
    InstanceSurvey,
    survey_instances,
)
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import times_with_instances
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.record_table import FeatureKinds, Records
from forewarn.features.records.row_cleaning import SpacingCheck
from forewarn.features.time_units import DAY, midnight_of
from forewarn.models.prediction.trained_recipe import RecipeTrainer
from forewarn.pipelines.backtest.retraining_slices import RetrainingSlices
from forewarn.pipelines.rendering.templates import plural
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.records.consistent_read import FileStamp
from forewarn.pipelines.storage.records.failures_table import FAILURES_TABLE, INCIDENT_FAILURES
from forewarn.pipelines.storage.records.out_of_service_table import OUT_OF_SERVICE
from forewarn.pipelines.storage.records.record_store import RecordStore

__all__ = ["WindowedRecords", "fingerprint"]

# Rows per span when only keys are read. Smaller data sets are read once with all columns, and
# retrainings read nothing.
_MAX_SPAN_ROWS = 6_000_000
_TABLES = (FAILURES_TABLE, INCIDENT_FAILURES, OUT_OF_SERVICE)


@dataclass(frozen=True, slots=True)
class WindowedRecords:
    """Records of a backtest that may exceed the memory.

    Attributes
    ----------
    store : RecordStore
    settings : WalkForwardSettings
    fleet : FleetSurvey
        Survey of all records.
    survey : InstanceSurvey
        All instances.
    spans : tuple of Span
        Spans in which the keys were read; a single one if everything is read once.
    read : callable
        Reads a span with all columns.
    """

    store: RecordStore
    settings: WalkForwardSettings
    fleet: FleetSurvey
    survey: InstanceSurvey
    spans: tuple[Span, ...]
    read: ReadSpan

    @classmethod
    def from_store(
        cls,
        store: RecordStore,
        settings: WalkForwardSettings,
        times: Callable[[FleetSurvey], Sequence[int]],
        start: int | None = None,
        end: int | None = None,
    ) -> WindowedRecords:
        """Survey the records of a store.

        Parameters
        ----------
        store : RecordStore
        settings : WalkForwardSettings
        times : callable
            Returns the retraining times of a fleet.
        start, end : int, optional
            Only records of [start, end), and failures known at `end`.

        Raises
        ------
        RecordsError
            If a file cannot be read or is invalid, or no record is left.
        """
        spans, margin = _spans(store, start, end), reading_margin(store.interval)
        keys = replace(store, kinds=FeatureKinds(), groups=())
        spacings = SpacingCheck()  # the interval is checked over all spans
        once = lru_cache(lambda _: store.read(start, end))

        def in_spans(store: RecordStore) -> ReadSpan:
            return lambda span: store.read(span.start, span.end, spacings=spacings)

        read, look = (once, once) if len(spans) == 1 else (in_spans(store), in_spans(keys))
        fleet = survey_fleet(look, spans, margin, store.failures_known(start, end))
        spacings.check(str(store.folder))
        survey = survey_instances(look, spans, margin, fleet, settings.recipe, times(fleet))
        return cls(store, settings, fleet, survey, spans, read)

    @property
    def retrainings(self) -> list[int]:
        """Retraining times with instances to train on or to test."""
        spans = {"longest": self.settings.longest, "every": self.settings.every}
        return times_with_instances(self.surveyed_times, self.survey.instances.end, **spans)

    @property
    def surveyed_times(self) -> list[int]:
        """All surveyed retraining times, in order."""
        return sorted(self.survey.seen_before)

    @property
    def notes(self) -> list[str]:
        """Notes on the records for the user."""
        filled, gaps = self.survey.filled, self.survey.gaps
        nulls = self.read(self.spans[0]).seen.nulls if len(self.spans) == 1 else {}
        seen = replace(self.fleet.seen, filled=filled, gaps=gaps, nulls=nulls).notes()
        idle = sorted(set(self.surveyed_times) - set(self.retrainings))
        if not idle:
            return seen
        return [
            *seen,
            f"{plural(len(idle), 'retraining')} from {format_iso(idle[0])} to "
            f"{format_iso(idle[-1])} skipped: no instance before or after. A single wrong "
            "clock can cause this (`forewarn doctor`)",
        ]

    @property
    def last_tested(self) -> int:
        """Last end of an instance whose horizon lies within the records."""
        return self.fleet.last - self.settings.recipe.horizon

    def refuse_changes(self, before: Sequence[Sequence[object]]) -> None:
        """Refuse records that changed during the backtest; later dates may be added.

        Raises
        ------
        JobError
            Names a file that was added, removed or changed.
        """
        if len(self.spans) == 1:  # read once
            return
        last = f"date={format_iso(self.fleet.last)[:10]}0"  # sorts after all files of that date
        now = fingerprint(self.store)
        now = [file for file in now if not last < str(file[0]) < "date=a"]
        changed = {tuple(file) for file in now} ^ {tuple(file) for file in before}
        for name, *_ in sorted(changed):
            raise JobError(
                f"{self.store.folder / str(name)}: was added, removed or changed during the "
                "backtest; expected unchanged files. Run it again."
            )

    def walk(self, settings: WalkForwardSettings, trainer: RecipeTrainer) -> WalkForward:
        """Return a walk-forward backtest of the records, without windows."""
        fleet, none = self.fleet, self.survey.instances.between(0, 0)
        extent = (fleet.first, fleet.last)
        return WalkForward(settings, trainer, fleet.newest, fleet.failures, none, extent=extent)

    def load_retraining(self, walk: WalkForward, moment: int) -> None:
        """Load the records of one retraining and release those of the previous one."""
        self.release(walk)
        with walk.trainer.stage("read records"):
            walk.move_to(*self._at(moment))

    def release(self, walk: WalkForward) -> None:
        """Release the records of the last retraining."""
        walk.move_to(self.fleet.newest, walk.instances)

    def _at(self, moment: int) -> tuple[Records, Instances, RetrainingSlices | None]:
        """Return records and tested instances of a retraining, and a reader of the rest."""
        instances = self.survey.instances.between(moment, moment + self.settings.every)
        if len(self.spans) == 1:
            records = self.fleet.numbered(self.read(self.spans[0]))
            return records, self.fleet.rows_in(records, instances), None
        sliced = RetrainingSlices(self.store, self.fleet, self.settings)
        return self.fleet.last_records(self.survey.seen_before[moment]), instances, sliced


def fingerprint(store: RecordStore) -> list[list[object]]:
    """Return name, size and modification time of every file of a data set."""
    files = [(f"{path.parent.name}/{path.name}", path) for _, path in store.files()]
    files += [(name, store.folder / name) for name in _TABLES]
    stamps = [(name, FileStamp.from_path_if_exists(path)) for name, path in files]
    return [[name, stamp.size, stamp.modified] for name, stamp in stamps if stamp is not None]


def _spans(store: RecordStore, start: int | None, end: int | None) -> tuple[Span, ...]:
    """Return spans of whole dates with a limited number of rows each."""
    by_date = store.rows_by_date(start, end)
    rows = {int(midnight_of(date)): by_date[date] for date in sorted(by_date)}
    edges, n = [min(rows)], 0
    for day in rows:
        if n and n + rows[day] > _MAX_SPAN_ROWS:
            edges.append(day)
            n = 0
        n += rows[day]
    edges.append(max(rows) + DAY)
    if start is not None:
        edges[0] = max(edges[0], start)
    if end is not None:
        edges[-1] = min(edges[-1], end)
    return tuple(Span(*pair) for pair in pairwise(edges))
