"""Kernel log events of hosts, shown next to a verdict."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.errors import InputError
from forewarn.features.records.record_table import HOUR, RecordsError
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.records.parquet_files import read_columns

__all__ = ["HostEvents", "HostEventsError"]

_COLUMNS = {
    "timestamp": pa.timestamp("ns", "UTC"),
    "code": pa.int64(),
    **dict.fromkeys(("machine_id", "gpu_serial", "kind", "raw"), pa.string()),
    **dict.fromkeys(("check", "severity"), pa.string()),
}
_OPTIONAL = ("check", "severity")  # missing in older events
_GRAVE = ("error", "critical")  # of errors of a GPU without Xids
_LANDING_FOLDERS = ("_events", "_readings", "_state")
_XID_FIELDS = ("time", "xid", "gpu_serial", "raw")
_MAX_SHOWN_XIDS = 5


class HostEventsError(InputError):
    """Invalid events."""


@dataclass(frozen=True, slots=True)
class HostEvents:
    """The EVENTS of a folder of records, as `forewarn collect` and `ingest` write them.

    Attributes
    ----------
    folder : Path
        Contains `date=YYYY-MM-DD/HH.parquet`.
    """

    folder: Path

    @classmethod
    def open(cls, records: Path) -> HostEvents:
        """Find the events of a folder of records.

        Raises
        ------
        HostEventsError
            If it has none.
        """
        if not any((records / name).is_dir() for name in _LANDING_FOLDERS):
            raise HostEventsError(f"{records}: holds no `_events`, expected what `collect` writes.")
        return cls(records / "_events")  # the first event creates it

    def xids(self, machine: str, start: int, end: int) -> list[dict[str, Any]]:
        """Return the last Xids of a machine in [start, end], the newest first.

        Parameters
        ----------
        machine : str
            Its `machine_id`.
        start, end : int
            Nanoseconds since 1970 UTC.

        Returns
        -------
        list of dict
            `time`, `xid`, `gpu_serial`, and `raw`, the line as the kernel wrote it.

        Raises
        ------
        HostEventsError
            If a file has another format.
        """
        rows = self.grave_events((machine,), start, end, kinds=("xid",))
        return [{name: row[name] for name in _XID_FIELDS} for row in rows[:_MAX_SHOWN_XIDS]]

    def grave_events(
        self,
        machines: Collection[str],
        start: int,
        end: int,
        kinds: Sequence[str] = ("xid", "lost", GPU_ERROR),
    ) -> list[dict[str, Any]]:
        """Return the Xids, lost GPUs and grave errors of machines, the newest first.

        Parameters
        ----------
        machines : collection of str
        start, end : int
            Nanoseconds since 1970 UTC, both inclusive.
        kinds : sequence of str

        Returns
        -------
        list of dict
            As `xids`, with `machine_id`, `kind`, `check` and `severity`.

        Raises
        ------
        HostEventsError
            If a file has another format.
        """
        parts = [
            _events(path, machines, kinds, start, end)
            for path in self._files(start, end)
            if path.exists()
        ]
        if not parts:
            return []
        rows = pa.concat_tables(parts).sort_by([("timestamp", "descending")])
        times = map(format_iso, rows["timestamp"].to_pylist())
        texts = (
            rows[name].to_pylist()
            for name in ("code", "gpu_serial", "raw", "machine_id", "kind", *_OPTIONAL)
        )
        names = (*_XID_FIELDS, "machine_id", "kind", *_OPTIONAL)
        return [dict(zip(names, row, strict=True)) for row in zip(times, *texts, strict=True)]

    def _files(self, start: int, end: int) -> Iterator[Path]:
        # An event is stored in the hour in which the interval of its record ends.
        for hour in range(start // HOUR, end // HOUR + 2):
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(hours=hour)
            yield self.folder / f"date={moment:%Y-%m-%d}" / f"{moment:%H}.parquet"


def _events(
    path: Path, machines: Collection[str], kinds: Sequence[str], start: int, end: int
) -> pa.Table:
    """Return the events of a file, with times in nanoseconds since 1970."""
    try:
        table = read_columns(path, _COLUMNS, "events", optional=_OPTIONAL)
    except RecordsError as error:
        raise HostEventsError(str(error)) from None
    time = table["timestamp"].cast(pa.int64())
    table = table.set_column(0, "timestamp", time)
    of_machines = pc.is_in(table["machine_id"], pa.array(sorted(machines), pa.string()))
    of_kinds = pc.is_in(table["kind"], pa.array(list(kinds), pa.string()))
    inside = pc.and_(pc.greater_equal(time, start), pc.less_equal(time, end))
    is_grave = pc.is_in(table["severity"], pa.array(_GRAVE))
    counts = pc.or_(pc.not_equal(table["kind"], GPU_ERROR), is_grave)
    return table.filter(pc.and_(pc.and_(of_machines, of_kinds), pc.and_(inside, counts)))
