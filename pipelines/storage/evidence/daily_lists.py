"""Daily at-risk lists as files hold them, read page by page and kept in memory while unchanged."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.errors import InputError
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.pipelines.storage.records.parquet_files import read_parquet

__all__ = ["DailyList", "DailyLists", "GpuCounts"]

_TABLE, _EXTRACTS = "at_risk.parquet", "gpu_extracts.parquet"
_NEEDED: Final = ("gpu_serial", "rank", "flagged")
_SERIAL: Final = "gpu_serial"
_EXPECTED_REASONS: Final = ("failed", "too new")  # reasons other than missing data
_MAX_LISTS: Final = 20  # in memory
_MAX_CSV_BYTES: Final = 256 << 20


class ListError(InputError):
    """A list that cannot be used."""


@dataclass(slots=True)
class GpuCounts:
    """GPUs of a machine by what a list says of them; `probability` is the highest."""

    gpus: int = 0
    flagged: int = 0
    failed: int = 0
    without_data: int = 0
    probability: float | None = None


@dataclass(frozen=True)
class DailyList:
    """The list of one day.

    Attributes
    ----------
    date : str
    table : pyarrow.Table
        Rows of `at_risk.parquet`, by rank.
    summary : mapping
        `summary.json`; empty if there is none.
    unscored : tuple of mapping
        Rows of `unscored.csv`.
    extracts : pyarrow.Table or None
        Rows of `gpu_extracts.parquet`.
    """

    date: str
    table: pa.Table
    summary: Mapping[str, Any] = field(default_factory=dict)
    unscored: tuple[Mapping[str, str], ...] = ()
    extracts: pa.Table | None = None

    @classmethod
    def read(cls, folder: Path) -> DailyList:
        """Read a folder `date=YYYY-MM-DD`.

        Raises
        ------
        RecordsError, ListError
            If the list cannot be used. Files other than the list may be missing.
        """
        table = read_parquet(folder / _TABLE)
        absent = [name for name in _NEEDED if name not in table.column_names]
        if absent:
            raise ListError(f"{folder / _TABLE}: column `{absent[0]}` is missing.")
        if not pa.types.is_integer(table["rank"].type):
            raise ListError(f"{folder / _TABLE}: column `rank` has no whole numbers.")
        if not pa.types.is_boolean(table["flagged"].type):
            raise ListError(f"{folder / _TABLE}: column `flagged` is not true or false.")
        has_extracts = (folder / _EXTRACTS).exists()
        return cls(
            folder.name.removeprefix("date="),
            table.sort_by("rank"),
            _read_summary(folder / "summary.json"),
            tuple(_read_csv(folder / "unscored.csv")),
            read_parquet(folder / _EXTRACTS) if has_extracts else None,
        )

    def rows(self, after: int, limit: int, *, flagged: bool = False) -> list[dict[str, Any]]:
        """Return at most `limit` rows with a rank above `after`, by rank."""
        keep = pc.greater(self.table["rank"], after)
        if flagged:
            keep = pc.and_(keep, self.table["flagged"])
        return _rows(self.table.filter(keep).slice(0, limit))

    def row(self, serial: str) -> dict[str, Any] | None:
        """Return the row of a GPU; None if it is not scored."""
        return _row(self.table, serial)

    def unscored_row(self, serial: str) -> Mapping[str, str] | None:
        """Return why a GPU is not scored; None if it is scored or unknown."""
        return next((row for row in self.unscored if row.get(_SERIAL) == serial), None)

    def extract(self, serial: str) -> dict[str, Any]:
        """Return rack, events and telemetry of a GPU; empty without an extract."""
        row = None if self.extracts is None else _row(self.extracts, serial)
        if row is None:
            return {}
        return {
            "rack": row.get("rack") or None,
            "events": json.loads(row.get("events") or "[]"),
            "telemetry": json.loads(row["telemetry"]) if row.get("telemetry") else None,
        }

    def on_machine(self, machine: str) -> list[dict[str, Any]]:
        """Return the rows of a machine's GPUs, by rank."""
        if "machine_id" not in self.table.column_names:
            return []
        names = self.table["machine_id"].cast(pa.string())
        return _rows(self.table.filter(pc.equal(names, machine)))

    @cached_property
    def n_flagged(self) -> int:
        """Number of flagged rows."""
        return int(pc.sum(self.table["flagged"]).as_py() or 0)

    @cached_property
    def racks(self) -> dict[str, str]:
        """Rack of each machine with a scored GPU; empty without an extract."""
        if self.extracts is None or "machine_id" not in self.table.column_names:
            return {}
        pairs = self.extracts.select([_SERIAL, "rack"]).to_pylist()
        by_serial = {row[_SERIAL]: row["rack"] for row in pairs}
        serials, machines = (self.table[name].to_pylist() for name in (_SERIAL, "machine_id"))
        return {
            str(machine): by_serial.get(serial) or ""
            for serial, machine in zip(serials, machines, strict=True)
            if machine
        }

    @cached_property
    def gpus_by_machine(self) -> dict[str, GpuCounts]:
        """Counts of the GPUs of each machine; empty if the list names no machines."""
        columns = self.table.column_names
        if "machine_id" not in columns:
            return {}
        counts: dict[str, GpuCounts] = defaultdict(GpuCounts)
        names = [name for name in ("machine_id", "flagged", "probability") if name in columns]
        for row in _rows(self.table.select(names)):
            own = counts[str(row["machine_id"] or "")]
            own.gpus += 1
            own.flagged += bool(row["flagged"])
            chance = row.get("probability")
            if isinstance(chance, int | float) and math.isfinite(chance):
                own.probability = max(chance, own.probability or 0.0)
        for absent in self.unscored:
            own, reason = counts[absent.get("machine_id") or ""], absent.get("reason")
            own.gpus += 1
            own.failed += reason == "failed"
            own.without_data += reason not in _EXPECTED_REASONS
        counts.pop("", None)
        return dict(counts)


class DailyLists:
    """The lists below a folder; threads may read concurrently.

    Parameters
    ----------
    folder : Path
        Holds `date=YYYY-MM-DD/at_risk.parquet`. It may not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()
        self._read: dict[str, tuple[tuple[int, int], DailyList]] = {}

    def dates(self) -> list[str]:
        """Return the dates with a list, newest first."""
        paths = matching_paths(self.folder, f"date=*/{_TABLE}")
        return sorted((path.parent.name.removeprefix("date=") for path in paths), reverse=True)

    def read(self, date: str) -> DailyList | None:
        """Return the list of a date, or None if there is none.

        Raises
        ------
        RecordsError, ListError
            If it cannot be used.
        """
        folder = self.folder / f"date={date}"
        try:
            state = os.stat(folder / _TABLE)
        except (OSError, ValueError):
            return None
        version = state.st_mtime_ns, state.st_size
        with self._lock:
            known = self._read.get(date)
            if known is None or known[0] != version:
                known = version, DailyList.read(folder)
            self._read = {**self._without(date), date: known}
        return known[1]

    def _without(self, date: str) -> dict[str, tuple[tuple[int, int], DailyList]]:
        """Return the lists in memory without one date, and without the one unused longest."""
        others = [(day, known) for day, known in self._read.items() if day != date]
        return dict(others[-(_MAX_LISTS - 1) :])

    def newest(self) -> DailyList | None:
        """Return the newest list, or None if there is none."""
        return next(self.latest(1), None)

    def latest(self, n: int) -> Iterator[DailyList]:
        """Yield the n newest lists, newest first."""
        for date in self.dates()[:n]:
            daily = self.read(date)
            if daily is not None:
                yield daily


def _row(table: pa.Table, serial: str) -> dict[str, Any] | None:
    index = pc.index(table[_SERIAL].cast(pa.string()), serial).as_py()
    return None if index < 0 else _rows(table.slice(index, 1))[0]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return summary if isinstance(summary, dict) else {}


def _read_csv(path: Path) -> Sequence[dict[str, str]]:
    try:
        if path.stat().st_size > _MAX_CSV_BYTES:
            return ()
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error):
        return ()
