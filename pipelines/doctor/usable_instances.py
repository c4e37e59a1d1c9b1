"""Number of instances usable for training, added up over parts of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.instances import find_instances
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.key_survey import KeySurvey
from forewarn.features.records.record_table import MACHINE, Records, TextColumn
from forewarn.features.records.row_cleaning import CleanRows, SpacingCheck
from forewarn.features.time_units import RecordCount
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.doctor.fleet_parts import FleetPart
from forewarn.pipelines.storage.records.record_store import RecordStore

__all__ = ["UsableInstances"]


@dataclass(slots=True)
class UsableInstances:
    """Counts of the instances of a fleet.

    Attributes
    ----------
    store : RecordStore
    settings : Settings
    last : int
        Time of the last row of all files.
    """

    store: RecordStore
    settings: Settings
    last: int
    _instances: int = 0
    _labels: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    _last_record: int = 0
    _late: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def fits(self, cadence: int | None) -> bool:
        """Return whether the cadence is close enough to the configured interval."""
        interval = self.settings.records.interval
        return cadence is not None and 0.5 * interval <= cadence <= 1.5 * interval

    def add(self, part: FleetPart, serials: Sequence[str], machines: Sequence[str]) -> None:
        """Count the instances of some GPUs."""
        if not len(part.rows.time):
            return
        horizon = self.settings.horizon
        timeline = self._timeline(part, serials, machines)
        instances = find_instances(
            timeline,
            window_records=RecordCount(self.settings.windows.length),
            step_records=RecordCount(self.settings.windows.step),
            horizon=horizon,
        )
        self._instances += len(instances)
        self._last_record = max(self._last_record, timeline.records.last)
        known = instances.label >= 0
        end, label = instances.end[known] + horizon, instances.label[known].astype(np.int64)
        # The last rows may be excluded as too close to preceding ones. The time of the last valid
        # record is known only after all parts.
        late = end > self.last - self.settings.records.interval
        self._labels += np.bincount(label[~late], minlength=2)
        self._late.append(np.stack([end[late], label[late]]))

    def _timeline(
        self, part: FleetPart, serials: Sequence[str], machines: Sequence[str]
    ) -> Timeline:
        interval, rows = self.settings.records.interval, part.rows
        # The spacing was checked before, on the whole fleet.
        clean = CleanRows.from_rows(rows.gpu, rows.time, rows.failed, interval, SpacingCheck())
        machine = TextColumn(tuple(machines), rows.machine[clean.row])
        records = Records(
            interval=interval,
            serials=tuple(serials[number] for number in part.number.tolist()),
            gpu=clean.gpu,
            time=clean.time,
            failed=clean.failed,
            filled=clean.filled,
            column_row=clean.row,
            texts={MACHINE: machine} if machines else {},
        )
        failures = Failures.from_records(records).joined(self.store.reported(records.serials))
        return build_timeline(self.store.with_out_of_service(records), failures)

    def report(self, keys: KeySurvey) -> dict[str, Any] | None:
        """Return the counts; None if the cadence does not fit.

        Instances whose horizon exceeds the records can only be known to fail. They are not usable.
        """
        if not self.fits(keys.cadence):
            return None
        end, label = np.concatenate([np.zeros((2, 0), dtype=np.int64), *self._late], axis=1)
        labels = self._labels + np.bincount(label[end <= self._last_record], minlength=2)
        expected = max(1, (keys.records + keys.missing) // self.settings.windows.step)
        return {
            "instances": self._instances,
            "labelled": int(labels.sum()),
            "positives": int(labels[1]),
            "share": min(1.0, int(labels.sum()) / expected),
        }
