"""What the kernel logs of hosts said at a time: Xids to lay beside a verdict."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.errors import InputError
from forewarn.features.records import HOUR
from forewarn.pipelines.moments import iso
from forewarn.pipelines.store import open_parquet

__all__ = ["HostEvents", "HostEventsError"]

_COLUMNS = ("timestamp", "machine_id", "gpu_serial", "kind", "code", "raw")
_MOST = 5


class HostEventsError(InputError):
    """Events that cannot be used."""


@dataclass(frozen=True, slots=True)
class HostEvents:
    """The EVENTS of a folder of records, as `forewarn collect` and `ingest` write them.

    Attributes
    ----------
    folder : Path
        `date=YYYY-MM-DD/HH.parquet` lie in it.
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
        folder = records / "_events"
        if not folder.is_dir():
            raise HostEventsError(f"{records}: holds no `_events`, expected what `collect` writes.")
        return cls(folder)

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
            If a file has another form.
        """
        parts = [
            _xids(path, machine, start, end) for path in self._files(start, end) if path.exists()
        ]
        if not parts:
            return []
        rows = pa.concat_tables(parts).sort_by([("timestamp", "descending")]).slice(0, _MOST)
        times = rows["timestamp"].cast(pa.int64()).to_pylist()
        texts = (rows[name].to_pylist() for name in ("code", "gpu_serial", "raw"))
        names = ("time", "xid", "gpu_serial", "raw")
        found = zip(map(iso, times), *texts, strict=True)
        return [dict(zip(names, row, strict=True)) for row in found]

    def _files(self, start: int, end: int) -> Iterator[Path]:
        for hour in range(start // HOUR, end // HOUR + 1):
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(hours=hour)
            yield self.folder / f"date={moment:%Y-%m-%d}" / f"{moment:%H}.parquet"


def _xids(path: Path, machine: str, start: int, end: int) -> pa.Table:
    file = open_parquet(path)
    missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
    if missing:
        raise HostEventsError(f"{path}: column `{missing[0]}` is missing.")
    rows = file.read(columns=list(_COLUMNS))
    time = rows["timestamp"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
    mine = pc.and_(pc.equal(rows["machine_id"], machine), pc.equal(rows["kind"], "xid"))
    inside = pc.and_(pc.greater_equal(time, start), pc.less_equal(time, end))
    return rows.filter(pc.and_(mine, inside))
