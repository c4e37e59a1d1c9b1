"""Xids and lost GPUs of a job's machines, from the events of a folder of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.diagnosis.log_matcher import LogMatcher
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.errors import InputError
from forewarn.models.diagnosis.crash_machines import MachineSign, hanging_machines
from forewarn.models.diagnosis.rank_end import RankEnd, sign_of_line
from forewarn.pipelines.diagnosis.part import Case, Judged

__all__ = ["EventsError", "EventsPart", "event_signs", "read_machine_events"]

_COLUMNS = {
    "timestamp": pa.timestamp("ns", "UTC"),
    "known_at": pa.timestamp("ns", "UTC"),
    "gpu_serial": pa.string(),
    "machine_id": pa.string(),
    "kind": pa.string(),
    "code": pa.int64(),
    "pci": pa.string(),
}
_RECENT = 30 * 60 * 10**9
_MOST = 100_000


class EventsError(InputError):
    """Events that cannot be used."""


@dataclass(frozen=True, slots=True)
class EventsPart:
    """Events of the machines of a job.

    Attributes
    ----------
    events : tuple of (MachineSign, int)
        And when anybody knew of them, nanoseconds since 1970 UTC.
    """

    events: tuple[tuple[MachineSign, int], ...]

    @property
    def ranks(self) -> frozenset[int]:
        """It mentions machines, and no ranks that `ranks.csv` does not have."""
        return frozenset()

    @property
    def last(self) -> None:
        """Events go on after a job, so that they do not tell its end."""
        return None

    def signs(self, at: int) -> list[MachineSign]:
        """Return what was known at a moment."""
        return [sign for sign, known in self.events if known <= at]

    def judge(self, case: Case) -> Judged:
        """Say what failed in the last half hour; where there are logs, these say it with them."""
        if "logs" in case.parts or "exits" in case.parts:
            return Judged()
        recent = [
            sign for sign in self.signs(case.at) if (sign.sign.time or 0) >= case.at - _RECENT
        ]
        ends = [RankEnd(rank, case.ranks.machine(rank)) for rank in case.ranks.table]
        finding = hanging_machines(recent, ends)
        return Judged(findings=() if finding is None else (finding,))


def event_signs(case: Case) -> list[MachineSign]:
    """Return the events of a case up to its moment; none where none were read."""
    events = case.parts.get("events")
    return events.signs(case.at) if isinstance(events, EventsPart) else []


def read_machine_events(records: Path, ranks: Ranks, matcher: LogMatcher) -> EventsPart:
    """Read the `_events` of a folder of records, those of the machines of a job.

    Parameters
    ----------
    records : Path
    ranks : Ranks
    matcher : LogMatcher
        Says what an Xid means.

    Raises
    ------
    EventsError
        If there are no events, or a file of them has another form.
    """
    paths = sorted((records / "_events").glob("date=*/[0-9]*.parquet"))
    if not paths:
        raise EventsError(f"{records}: holds no events, expected `_events/date=.../*.parquet`.")
    machines = pa.array(sorted({row.machine for row in ranks.table.values() if row.machine}))
    rows = [row for path in paths for row in _rows(path, machines)]
    signs = (_sign(row, ranks, matcher) for row in rows[-_MOST:])
    return EventsPart(tuple(pair for pair in signs if pair is not None))


def _rows(path: Path, machines: pa.Array) -> Iterator[Mapping[str, Any]]:
    try:
        table = pq.read_table(path, columns=list(_COLUMNS), partitioning=None)
        table = table.select(list(_COLUMNS)).cast(pa.schema(list(_COLUMNS.items())))
    except (pa.ArrowException, KeyError, OSError) as error:
        detail = (str(error).splitlines() or [""])[0][:100]
        raise EventsError(f"{path}: cannot be used as events ({detail}).") from None
    for name in ("timestamp", "known_at"):
        column = table[name].cast(pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    yield from table.filter(pc.is_in(table["machine_id"], machines)).to_pylist()


def _sign(
    row: Mapping[str, Any], ranks: Ranks, matcher: LogMatcher
) -> tuple[MachineSign, int] | None:
    """Return an event as the kernel log would have said it, and when it was known."""
    if row["timestamp"] is None or row["kind"] not in ("xid", "lost"):
        return None
    line = f"NVRM: Xid (PCI:{row['pci'] or '?'}): {row['code']}"
    if row["kind"] == "lost":
        line = "NVRM: GPU has fallen off the bus"
    pattern = matcher.first(line.encode())
    if pattern is None:
        return None
    sign = sign_of_line(pattern, line.removeprefix("NVRM: "), row["timestamp"])
    known = max(row["timestamp"], row["known_at"] or 0)
    rank = _rank_of(row["gpu_serial"], ranks)
    return MachineSign(row["machine_id"], replace(sign, source="events"), rank), known


def _rank_of(serial: str | None, ranks: Ranks) -> int | None:
    if serial is None:
        return None
    return next((n for n, row in ranks.table.items() if row.gpu_serial == serial), None)
