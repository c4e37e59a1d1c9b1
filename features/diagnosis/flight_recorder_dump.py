"""Flight recorder dumps: the last operations of one rank as arrays.

Reads dump formats 2.x, written by torch 2.5 to 2.13, as JSON or pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from forewarn.features.diagnosis.dump_groups import group_members, last_enqueued
from forewarn.features.diagnosis.plain_pickle import BrokenPickleError, read_plain_pickle
from forewarn.features.errors import InputError

__all__ = [
    "COMPLETED",
    "ENTRY",
    "SCHEDULED",
    "STARTED",
    "BrokenDumpError",
    "FlightRecorderDump",
    "parse_dump",
]

SCHEDULED, STARTED, COMPLETED = 0, 1, 2
_STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}

# One operation. `group`, `name` and `signature` index the texts of the dump. Times are nanoseconds
# since 1970 UTC, 0 if the recorder has none.
ENTRY = np.dtype(
    [
        ("group", np.int32),
        ("name", np.int32),
        ("signature", np.int32),
        ("is_p2p", np.bool_),
        ("seq", np.int64),
        ("created", np.int64),
        ("started", np.int64),
        ("completed", np.int64),
        ("state", np.int8),
    ]
)

_Sizes = Annotated[
    tuple[Annotated[tuple[int, ...], msgspec.Meta(max_length=64)], ...],
    msgspec.Meta(max_length=4096),
]
_Seq = Annotated[int, msgspec.Meta(ge=0, lt=2**39)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Types = Annotated[tuple[str, ...], msgspec.Meta(max_length=4096)]


class _Entry(msgspec.Struct, gc=False):
    """Fields read from an entry; the others, such as its stack, are skipped."""

    process_group: tuple[str, str]
    profiling_name: str
    collective_seq_id: _Seq
    time_created_ns: _Time
    pg_id: int = 0
    record_id: int = 0
    p2p_seq_id: _Seq = 0
    is_p2p: bool = False
    state: str = "scheduled"
    retired: bool = False
    time_discovered_started_ns: _Time | None = None
    time_discovered_completed_ns: _Time | None = None
    input_sizes: _Sizes = ()
    input_dtypes: _Types = ()
    output_sizes: _Sizes = ()


class _Dump(msgspec.Struct, gc=False):
    version: str
    entries: list[_Entry] = []  # msgspec copies the default
    pg_config: dict[str, dict[str, Any]] = {}
    pg_status: dict[str, dict[str, int | None]] = {}
    rank: Any = None
    global_rank: Any = None


_DECODER = msgspec.json.Decoder(_Dump, strict=False)  # non-strict: numbers may be strings


class BrokenDumpError(InputError):
    """A dump that is empty, truncated, of another version, or not a dump."""


@dataclass(frozen=True, slots=True)
class FlightRecorderDump:
    """Last operations of one rank.

    Attributes
    ----------
    entries : ndarray of ENTRY
        In the order in which the rank entered them; `state` is `COMPLETED` for all finished ones.
    groups : tuple of str
        Names of process groups, which are the same on all ranks (their numbers are not).
    descriptions : tuple of str
        Purpose of each group, such as `tp`.
    names : tuple of str
        Operations, such as `nccl:all_reduce`.
    signatures : tuple of str
        Types and sizes, such as `Float[[1000]]->[[1000]]`.
    members : mapping of str to tuple of int
        Ranks of each group that the dump describes, in group order.
    enqueued : mapping of str to int
        Last sequence number that the rank has entered in each group, where the dump says it. It
        also counts entries that the dump does not hold.
    rank : int or None
        The rank that wrote it, if the dump says it.
    """

    entries: npt.NDArray[np.void]
    groups: tuple[str, ...]
    descriptions: tuple[str, ...]
    names: tuple[str, ...]
    signatures: tuple[str, ...]
    members: Mapping[str, tuple[int, ...]]
    enqueued: Mapping[str, int] = field(default_factory=dict)
    rank: int | None = None


def parse_dump(data: bytes) -> FlightRecorderDump:
    """Parse a dump in JSON or pickle form.

    Raises
    ------
    BrokenDumpError
        If the data is empty, truncated, of another version, or not a dump.
    ForbiddenOpcodeError
        If it is a pickle that contains more than plain values.
    """
    if not data.strip():
        raise BrokenDumpError("is empty")
    try:
        dump = _decode(data)
        if not dump.version.startswith("2."):
            raise BrokenDumpError(f"has version {dump.version[:20]!r}, expected 2.x")
        return _to_arrays(dump)
    except msgspec.ValidationError as error:
        raise BrokenDumpError(f"is not a flight recorder dump: {error}") from None
    except (msgspec.DecodeError, BrokenPickleError, OverflowError) as error:
        raise BrokenDumpError(f"is truncated or not a flight recorder dump: {error}") from None
    except RecursionError:
        raise BrokenDumpError("is nested too deep for a flight recorder dump") from None


def _decode(data: bytes) -> _Dump:
    if data[:1] == b"\x80":
        return msgspec.convert(read_plain_pickle(data), _Dump, strict=False)
    return _DECODER.decode(data)


def _to_arrays(dump: _Dump) -> FlightRecorderDump:
    rows = sorted(dump.entries, key=lambda entry: entry.record_id)
    groups, names = _TextIndex(), _TextIndex()
    signatures: dict[tuple[Any, ...], int] = {}
    table = np.zeros(len(rows), dtype=ENTRY)
    table["group"] = groups.number(entry.process_group[0] for entry in rows)
    table["name"] = names.number(entry.profiling_name for entry in rows)
    table["signature"] = [
        signatures.setdefault(
            (entry.input_dtypes, entry.input_sizes, entry.output_sizes), len(signatures)
        )
        for entry in rows
    ]
    table["is_p2p"] = [entry.is_p2p for entry in rows]
    table["seq"] = [e.p2p_seq_id if e.is_p2p else e.collective_seq_id for e in rows]
    table["created"] = [entry.time_created_ns for entry in rows]
    table["started"] = [entry.time_discovered_started_ns or 0 for entry in rows]
    table["completed"] = [entry.time_discovered_completed_ns or 0 for entry in rows]
    table["state"] = _states(rows, dump.pg_status)
    texts = tuple(_format_signature(*parts) for parts in signatures)
    described = dict(entry.process_group for entry in reversed(rows))
    uses = tuple(described[name] for name in groups.texts)
    members = group_members(dump.pg_config)
    names_by_id = {entry.pg_id: entry.process_group[0] for entry in rows}
    enqueued = last_enqueued(dump.pg_status, dump.pg_config, names_by_id)
    rank = next((n for n in (dump.global_rank, dump.rank) if isinstance(n, int) and n >= 0), None)
    return FlightRecorderDump(
        table, groups.texts, uses, names.texts, texts, members, enqueued, rank
    )


class _TextIndex:
    """Numbering of texts in the order of their first occurrence."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    def number(self, texts: Iterable[str]) -> list[int]:
        numbers = self._numbers
        return [numbers.setdefault(text, len(numbers)) for text in texts]


def _states(rows: Sequence[_Entry], status: Mapping[str, Mapping[str, int | None]]) -> list[int]:
    """Return the state of each operation; gloo leaves the `state` field at "scheduled"."""
    last = {
        int(number): values.get("last_completed_collective") or 0
        for number, values in status.items()
        if number.isdecimal() and number.isascii()
    }
    return [
        COMPLETED
        if entry.retired
        or (not entry.is_p2p and entry.collective_seq_id <= last.get(entry.pg_id, 0))
        else _STATES.get(entry.state, SCHEDULED)
        for entry in rows
    ]


def _format_signature(types: Sequence[str], inputs: object, outputs: object) -> str:
    """Format types and sizes for people."""
    sizes = [json.dumps(part, separators=(",", ":")) for part in (inputs, outputs)]
    return f"{','.join(dict.fromkeys(types))}{sizes[0]}->{sizes[1]}"
