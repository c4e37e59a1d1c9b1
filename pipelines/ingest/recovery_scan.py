"""Scan of the telemetry of failed GPUs, hour by hour, for evidence of recovery."""

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

# Rows of hosts arrive up to this late; for these hours the state after each hour is stored.
_UNSETTLED_HOURS = 3
_NO_ATTRIBUTES = pa.table({"gpu_serial": pa.array([], pa.string())})


@dataclass(frozen=True, slots=True)
class RecoveryScan:
    """A scan of the telemetry of failed GPUs only.

    Attributes
    ----------
    hours : collection of int
        Hours since 1970 with readings.
    read : callable
        Returns the readings of an hour, with the serials of their GPUs.
    interval : int
        Nanoseconds between two records.
    restart_repairs : bool
        A restart ends a failure, so that later records are not read.
    """

    hours: Collection[int]
    read: Callable[[int], pa.Table]
    interval: int
    restart_repairs: bool

    def scan(
        self,
        failures: Iterable[OpenFailure],
        before: Iterable[Recovery],
        changed: Mapping[str, Collection[int]],
    ) -> tuple[list[Recovery], list[Recovery]]:
        """Return the state of recoveries to store for the next call, and the final state.

        Parameters
        ----------
        failures : iterable of OpenFailure
        before : iterable of Recovery
            The stored state of the last call.
        changed : mapping of str to collection of int
            Hours since 1970 in which a GPU has new rows.
        """
        # An end can be known only after the first interval after the failure.
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
        """Return the result of `scan`; several hours of each failure are stored."""
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
        """Tell whether later records can still change the state."""
        if recovery.presumed_known is not None:
            return False
        if self.restart_repairs and recovery.boot_known is not None:
            return False
        return until is None or recovery.hour * HOUR < until

    def _after(self, hour: int, recoveries: list[Recovery]) -> dict[tuple[str, int], Recovery]:
        """Return the state of failures after the records of one more hour."""
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
    """Return the hour before the failure, which has the energy counter before it."""
    return since // HOUR - 1


def _needed(recoveries: list[Recovery], settled: int) -> list[Recovery]:
    """Return the states after unsettled hours, and the last one before them."""
    old = [recovery for recovery in recoveries if recovery.hour <= settled + 1]
    return [*old[-1:], *(recovery for recovery in recoveries if recovery.hour > settled + 1)]


def _outdated(recovery: Recovery, changed: Collection[int]) -> bool:
    """Tell whether an hour that was already read has new rows."""
    return any(_first_hour(recovery.since) <= hour < recovery.hour for hour in changed)
