"""Telemetry of failed GPUs, read hour after hour: what it shows of the end of each failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.failure_spans import OpenFailure
from forewarn.features.telemetry.record_join import build_records
from forewarn.features.telemetry.recovery_evidence import Recovery, RecoveryEvidence, evidence_rows
from forewarn.features.telemetry.telemetry_tables import EVENTS
from forewarn.features.time_units import HOUR
from forewarn.pipelines.runtime.progress import progress_bar

__all__ = ["RecoveryScan"]

# Rows of several hosts come up to so late: for these hours what is known after each is stored.
_UNSETTLED_HOURS = 3
_NO_ATTRIBUTES = pa.table({"gpu_serial": pa.array([], pa.string())})


@dataclass(frozen=True, slots=True)
class RecoveryScan:
    """Looks at the telemetry of GPUs that failed, and at no other.

    Attributes
    ----------
    hours : collection of int
        Hours since 1970 of which there are readings.
    read : callable
        Returns the readings of an hour, with the serials of their GPUs.
    interval : int
        Nanoseconds between two records.
    restart_repairs : bool
        A failure is over after a restart, so what follows is not looked at.
    """

    hours: Collection[int]
    read: Callable[[int], pa.Table]
    interval: int
    restart_repairs: bool

    def look(
        self,
        failures: Iterable[OpenFailure],
        before: Iterable[Recovery],
        changed: Mapping[str, Collection[int]],
    ) -> tuple[list[Recovery], list[Recovery]]:
        """Return what telemetry shows of failures: to be stored for the next call, and in all.

        Parameters
        ----------
        failures : iterable of Unended
        before : iterable of Recovery
            What the last call gave to be stored.
        changed : mapping of str to collection of int
            Hours since 1970 in which a GPU has rows that were not there before.
        """
        # No end is known before the first interval after the failure is over.
        until = {
            (failure.gpu_serial, failure.since): failure.until
            for failure in failures
            if failure.until is None or failure.until > failure.since + self.interval
        }
        stored = {key: [Recovery(*key, _first_hour(key[1]))] for key in until}
        for recovery in sorted(before, key=lambda recovery: recovery.hour):
            key = recovery.gpu_serial, recovery.since
            if key in stored and not _outdated(recovery, changed.get(key[0], ())):
                stored[key].append(recovery)
        return self._advanced(stored, until)

    def _advanced(
        self,
        stored: dict[tuple[str, int], list[Recovery]],
        until: Mapping[tuple[str, int], int | None],
    ) -> tuple[list[Recovery], list[Recovery]]:
        """Return what `look` does; of each failure is stored what is known after some hours."""
        latest = {key: recoveries[-1] for key, recoveries in stored.items()}
        waiting = {key for key, recovery in latest.items() if self._waits(recovery, until[key])}
        first = min((latest[key].hour for key in waiting), default=None)
        hours = [] if first is None else sorted(hour for hour in self.hours if hour >= first)
        settled = max(self.hours, default=0) - _UNSETTLED_HOURS
        with progress_bar(len(hours), "failed GPUs", "hour") as bar:
            for hour in hours:
                due = [key for key in waiting if latest[key].hour <= hour]
                for key, recovery in self._after(hour, [latest[key] for key in due]).items():
                    latest[key] = recovery
                    if hour <= settled:
                        stored[key] = []
                    stored[key].append(recovery)
                    if not self._waits(recovery, until[key]):
                        waiting.remove(key)
                bar.update()
        needed = [r for recoveries in stored.values() for r in _needed(recoveries, settled)]
        return needed, list(latest.values())

    def _waits(self, recovery: Recovery, until: int | None) -> bool:
        """Tell whether later records can still change what is known."""
        if recovery.presumed_known is not None:
            return False
        if self.restart_repairs and recovery.boot_known is not None:
            return False
        return until is None or recovery.hour * HOUR < until

    def _after(self, hour: int, recoveries: list[Recovery]) -> dict[tuple[str, int], Recovery]:
        """Return what is known of failures after the records of one more hour."""
        records = self._records(hour, {recovery.gpu_serial for recovery in recoveries})
        after = {}
        for recovery in recoveries:
            seen = recovery
            for record in records[recovery.gpu_serial]:
                seen = seen.after(record, self.interval)
            after[recovery.gpu_serial, recovery.since] = replace(seen, hour=hour + 1)
        return after

    def _records(self, hour: int, serials: Collection[str]) -> Mapping[str, list[RecoveryEvidence]]:
        records: dict[str, list[RecoveryEvidence]] = defaultdict(list)
        if serials:
            readings = self.read(hour)
            of_failed = pc.is_in(readings["gpu_serial"], pa.array(sorted(serials), pa.string()))
            rows = readings.filter(of_failed)
            made = build_records(rows, EVENTS.empty_table(), _NO_ATTRIBUTES, interval=self.interval)
            for serial, evidence in evidence_rows(made):
                records[serial].append(evidence)
        return records


def _first_hour(since: int) -> int:
    """Return the hour before that of a failure: there is what the energy counter was before."""
    return since // HOUR - 1


def _needed(recoveries: list[Recovery], settled: int) -> list[Recovery]:
    """Return those after unsettled hours, and the last one before."""
    old = [recovery for recovery in recoveries if recovery.hour <= settled + 1]
    return [*old[-1:], *(recovery for recovery in recoveries if recovery.hour > settled + 1)]


def _outdated(recovery: Recovery, changed: Collection[int]) -> bool:
    """Tell whether a row has come to an hour that was looked at."""
    return any(_first_hour(recovery.since) <= hour < recovery.hour for hour in changed)
