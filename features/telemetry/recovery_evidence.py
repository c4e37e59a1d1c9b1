"""Evidence of recovery: what telemetry after a failure shows about its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.telemetry_rows import GAUGES
from forewarn.features.time_units import DAY, HOUR, SECOND

__all__ = [
    "RECOVERIES",
    "Recovery",
    "RecoveryEvidence",
    "evidence_rows",
    "recoveries_from_table",
    "recovery_table",
]

# Telemetry and load after which a failure without another end is presumed to be over.
MIN_HEALTHY_TIME = DAY
MIN_LOADED_TIME = 4 * HOUR
_MIN_BUSY_UTILIZATION = 0.1  # mean utilization of an interval from which a GPU is under load
# Columns that are above 0 while the driver requests a repair.
_REQUEST_COLUMNS = ("recovery_action", "row_remap_failure")
# The energy counter starts at 0 with the driver. Exporters of one GPU may be seconds apart, which
# is no restart.
_RESTART = 0.9
# Time under load after which a restart counts. A reloaded driver or a temporarily wrong counter
# must not end a failure.
_MIN_WORK_TIME = HOUR


@dataclass(frozen=True, slots=True)
class RecoveryEvidence:
    """The state of a GPU according to one record.

    Attributes
    ----------
    time : int
        End of the interval, nanoseconds since 1970 UTC.
    energy : float or None
        Joules since the driver was loaded, above 0.
    healthy : bool
        The GPU responds and requests no recovery.
    loaded : bool
        Healthy and under load.
    power : float or None
        Mean of the interval, in watts.
    """

    time: int
    energy: float | None
    healthy: bool
    loaded: bool
    power: float | None = None

    def restarted_after(self, moment: int) -> bool:
        """Tell whether the counter, if it restarted, did so after a moment."""
        joules = (self.power or 0.0) * (self.time - moment) / SECOND
        return self.energy is not None and self.energy <= joules


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the records of a GPU after a failure have shown so far.

    Attributes
    ----------
    gpu_serial : str
    since : int
        Last evidence of the failure. All times are nanoseconds since 1970 UTC.
    hour : int
        First hour since 1970 that was not yet read.
    energy : float or None
        The counter before a restart.
    last : float or None
        The previous value. `energy` is at most this, so that one outlier is no reference.
    healthy, loaded : int
        Number of healthy records, and of those under load, since the failure or the last unhealthy
        record.
    works_from : int or None
        The first of those healthy records.
    restarted : int or None
        First record after a restart, according to the energy counter.
    fallen : float or None
        The counter at that record.
    worked : int
        Number of records under load after it in which the counter still shows the restart.
    boot_known : int or None
        Record at which the load was sufficient for the restart to count.
    presumed_known : int or None
        Record at which health and load were sufficient to presume a repair.
    """

    gpu_serial: str
    since: int
    hour: int
    energy: float | None = None
    last: float | None = None
    healthy: int = 0
    loaded: int = 0
    works_from: int | None = None
    restarted: int | None = None
    fallen: float | None = None
    worked: int = 0
    boot_known: int | None = None
    presumed_known: int | None = None

    def after(self, record: RecoveryEvidence, interval: int) -> Recovery:
        """Return the state after one more record; records are sorted by time.

        Only intervals that lie entirely after the failure are evidence.
        """
        if record.time - interval >= self.since:
            return self._after_energy(record, interval)._after_work(record, interval)
        fell = self._is_fall(record.energy) and record.time > self.since
        if fell and record.restarted_after(self.since):
            return self
        return self if record.energy is None else self._with_energy(record.energy)

    def _is_fall(self, energy: float | None) -> bool:
        return energy is not None and self.energy is not None and energy < _RESTART * self.energy

    def _with_energy(self, energy: float) -> Recovery:
        """Return the state after a value of a counter that did not restart."""
        last = energy if self.last is None else self.last
        return replace(self, energy=min(energy, last), last=energy)

    def _after_energy(self, record: RecoveryEvidence, interval: int) -> Recovery:
        energy = record.energy
        if energy is None or self.boot_known is not None:
            return self
        if not self._is_fall(energy):
            # The apparent restart was none: the counter has its old value again.
            return replace(self, restarted=None, fallen=None, worked=0)._with_energy(energy)
        if self.fallen is None or energy < self.fallen:
            return replace(self, restarted=record.time, fallen=energy, worked=0)
        worked = self.worked + record.loaded
        known = record.time if worked * interval >= _MIN_WORK_TIME else None
        return replace(self, worked=worked, boot_known=known)

    def _after_work(self, record: RecoveryEvidence, interval: int) -> Recovery:
        if self.presumed_known is not None:
            return self
        if not record.healthy:
            return replace(self, healthy=0, loaded=0, works_from=None)
        healthy, loaded = self.healthy + 1, self.loaded + record.loaded
        enough = healthy * interval >= MIN_HEALTHY_TIME and loaded * interval >= MIN_LOADED_TIME
        return replace(
            self,
            healthy=healthy,
            loaded=loaded,
            works_from=record.time if self.works_from is None else self.works_from,
            presumed_known=record.time if enough else None,
        )


_NUMBERS = dict.fromkeys(("energy", "last", "fallen"), pa.float64())
_KINDS = {"gpu_serial": pa.string(), **_NUMBERS}
RECOVERIES = pa.schema(
    [(name, _KINDS.get(name, pa.int64())) for name in Recovery.__dataclass_fields__]
)


def recovery_table(recoveries: Iterable[Recovery]) -> pa.Table:
    """Return RECOVERIES, sorted by serial, failure and hour."""
    rows = [astuple(recovery) for recovery in recoveries]
    rows.sort(key=lambda row: row[:3])
    columns = list(zip(*rows, strict=True)) or [()] * len(RECOVERIES)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, RECOVERIES, strict=True)]
    return pa.table(arrays, schema=RECOVERIES)


def recoveries_from_table(table: pa.Table) -> list[Recovery]:
    """Return the rows of RECOVERIES; rows of versions that did not count work are dropped."""
    return [Recovery(**row) for row in table.filter(pc.is_valid(table["worked"])).to_pylist()]


def evidence_rows(records: pa.Table) -> list[tuple[str, RecoveryEvidence]]:
    """Return the states of GPUs according to records, sorted by serial and time.

    Parameters
    ----------
    records : pyarrow.Table
        RECORDS; columns that no source has may be missing.
    """
    answered = pc.is_valid(pc.coalesce(*(_column(records, name) for name in GAUGES)))
    asks = (pc.greater(_column(records, name), 0) for name in _REQUEST_COLUMNS)
    healthy = pc.and_not(answered, pc.or_(*(pc.fill_null(column, False) for column in asks)))
    utilization = pc.divide(_column(records, "utilization_gpu"), 100.0)
    use = pc.coalesce(utilization, _column(records, "sm_active"))
    busy = pc.fill_null(pc.greater_equal(use, _MIN_BUSY_UTILIZATION), False)
    energy = _column(records, "energy_consumption")
    columns = (
        records["timestamp"].cast(pa.int64()),
        # An exporter that did not read the counter shows 0.
        pc.if_else(pc.greater(energy, 0), energy, None),
        healthy,
        pc.and_(healthy, busy),
        _column(records, "power_draw"),
    )
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    evidence = zip(
        records["gpu_serial"].to_pylist(), (RecoveryEvidence(*row) for row in rows), strict=True
    )
    return sorted(evidence, key=lambda pair: (pair[0], pair[1].time))


def _column(records: pa.Table, name: str) -> pa.ChunkedArray:
    if name in records.column_names:
        return records[name]
    return pa.chunked_array([pa.nulls(len(records), pa.float64())])
