"""Records of NCCL's inspector plugin: when and how long each rank was in each collective."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from forewarn.features.array_types import Int64Array
from forewarn.features.diagnosis.communicators.communicator_state import (
    BrokenStatusError,
    CommunicatorState,
    GpuProcess,
    StatusSnapshot,
)
from forewarn.features.diagnosis.ranks import MAX_RANKS

__all__ = ["RankCollectives", "communicators_of_records", "parse_inspector"]


_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]  # nanoseconds fit into 64 bits


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int


class _Metadata(msgspec.Struct):
    dump_timestamp_us: _Number = 0
    hostname: str = ""
    pid: int = -1


class _Trace(msgspec.Struct):
    coll_start_ts: _Number = 0


class _Collective(msgspec.Struct):
    coll: str
    coll_sn: _Number
    coll_exec_time_us: _Number
    event_trace_ts: _Trace = msgspec.field(default_factory=_Trace)


class _Record(msgspec.Struct):
    header: _Header
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    coll_perf: _Collective | None = None


_DECODER = msgspec.json.Decoder(_Record)


@dataclass(frozen=True, slots=True)
class RankCollectives:
    """Collectives that a rank has finished in one communicator.

    Attributes
    ----------
    communicator : str
    size : int
    rank : int
        Of the communicator.
    process : GpuProcess
    operation : str
        Such as `AllReduce`; its kinds are numbered separately.
    rows : ndarray of shape (n_operations, 3)
        Sequence number, microseconds in the kernel, and microseconds since 1970 UTC of its start
        or, without a trace, of the dump. By number.
    """

    communicator: str
    size: int
    rank: int
    process: GpuProcess
    operation: str
    rows: Int64Array


def parse_inspector(text: str) -> list[RankCollectives]:
    """Parse the records of a process.

    Raises
    ------
    BrokenStatusError
        If no record is readable.
    """
    rows: dict[tuple[str, int, int, str], list[tuple[int, int, int]]] = {}
    processes: dict[tuple[str, int], GpuProcess] = {}
    is_any = False
    for record in _records(text):
        is_any = True
        header, metadata, collective = record.header, record.metadata, record.coll_perf
        if collective is None or not 0 <= header.rank < header.n_ranks <= MAX_RANKS:
            continue
        time = collective.event_trace_ts.coll_start_ts or metadata.dump_timestamp_us
        processes[header.id, header.rank] = GpuProcess(metadata.hostname, metadata.pid)
        key = header.id, header.n_ranks, header.rank, collective.coll
        rows.setdefault(key, []).append((collective.coll_sn, collective.coll_exec_time_us, time))
    if not is_any:
        raise BrokenStatusError("contains no whole record, expected one per collective")
    return [
        RankCollectives(name, size, rank, processes[name, rank], operation, _by_number(values))
        for (name, size, rank, operation), values in rows.items()
    ]


def _by_number(values: Sequence[tuple[int, int, int]]) -> Int64Array:
    """Return the rows by sequence number; of a repeated number the last one counts."""
    latest = {row[0]: row for row in values}
    return np.array([latest[number] for number in sorted(latest)], dtype=np.int64)


def _records(text: str) -> Iterator[_Record]:
    """Yield the readable records: one a line, or spread over lines."""
    for line in text.splitlines():
        if line.startswith("{") and line.rstrip().endswith("}"):
            try:
                yield _DECODER.decode(line)
            except (msgspec.ValidationError, msgspec.DecodeError):
                continue
        elif line.rstrip() == "{":
            yield from _spread_records(text)
            return


def _spread_records(text: str) -> Iterator[_Record]:
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            yield msgspec.convert(value, _Record)
        except msgspec.ValidationError:
            pass
        except (ValueError, RecursionError):
            return
        start = text.find("{", end)


def communicators_of_records(records: Sequence[RankCollectives]) -> StatusSnapshot:
    """Return the communicators with their processes.

    The job has as many ranks as processes, if a communicator has that size: with several ranks a
    process, numbers of the job's ranks are not known from it.
    """
    processes: dict[tuple[str, int], dict[int, GpuProcess]] = {}
    for record in records:
        processes.setdefault((record.communicator, record.size), {})[record.rank] = record.process
    counts = Counter(p for by_rank in processes.values() for p in {*by_rank.values()})
    sizes = {size for _, size in processes}
    n_ranks = len(counts) if len(counts) in sizes else None
    states = (CommunicatorState(name, size, {}, by) for (name, size), by in processes.items())
    return StatusSnapshot(tuple(states), n_ranks)
