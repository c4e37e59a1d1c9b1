"""Flight recorder dumps of a simulated job, in the formats that torch writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from forewarn.evaluation.simulation.jobs.job_timeline import Activity, JobTimeline
from forewarn.evaluation.simulation.jobs.rank_layout import RankLayout
from forewarn.features.array_types import Int64Array
from forewarn.features.time_units import SECOND

__all__ = ["flight_dumps"]

_AXES = ("world", "tp", "pp", "dp")
_SIZES = {"all_reduce": [[4096, 4096]], "broadcast": [[4096, 4096]], "barrier": [[1]]}
# Probability that a rank leaves no dump, by the activity it is stuck in: a stopped process, or one
# in an uninterruptible system call, writes none.
_SILENT = {Activity.STOPPED: 1.0, Activity.GONE: 1.0, Activity.SLEEP: 0.7, Activity.LOAD: 0.1}


def flight_dumps(timeline: JobTimeline, begin: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each rank's dump; some are empty, truncated or missing.

    Parameters
    ----------
    timeline : JobTimeline
    begin : int
        Start of the job, nanoseconds since 1970 UTC.
    """
    plan = timeline.plan
    rng = np.random.default_rng([plan.seed, 11])
    times = _times(timeline, begin)
    for rank in range(plan.layout.n_ranks):
        draw, cut = rng.random(2)
        silent = (
            _SILENT.get(Activity(int(timeline.stuck_in[rank])), 0.0)
            if _is_stuck(timeline, rank)
            else 0
        )
        if rng.random() < silent:
            continue
        if draw < plan.missing:
            if cut < 1 / 3:
                continue
            data = b"" if cut < 2 / 3 else _dump(timeline, rank, times)[:-200]
        else:
            data = _dump(timeline, rank, times)
        yield (f"nccl_trace_rank_{rank}" if not plan.is_gloo else f"dump_{rank}.json"), data


def _is_stuck(timeline: JobTimeline, rank: int) -> bool:
    return bool(timeline.stuck_at[rank] <= timeline.plan.end)


def _times(timeline: JobTimeline, begin: int) -> tuple[Int64Array, Int64Array]:
    """Return when each rank entered and left each collective, by its machine's clock.

    Shapes (n_collectives, n_ranks), nanoseconds since 1970 UTC; -1 where a rank is not a member,
    or has not entered or left until the end.
    """
    plan = timeline.plan
    machine = np.arange(plan.layout.n_ranks) // plan.layout.per_machine
    base = begin + np.round(np.array(plan.skew) * SECOND).astype(np.int64)[machine]
    moments = []
    for name in ("entered", "ended"):
        seconds = np.array([getattr(meeting, name) for meeting in timeline.meetings])
        happened = seconds <= plan.end  # false for NaN
        nanoseconds = np.round(np.where(happened, seconds, 0.0) * SECOND).astype(np.int64)
        moments.append(np.where(happened, base + nanoseconds, -1))
    return moments[0], moments[1]


def _dump(timeline: JobTimeline, rank: int, times: tuple[Int64Array, Int64Array]) -> bytes:
    plan = timeline.plan
    entries = list(_entries(timeline, rank, times))
    dump = {
        "version": "2.10",
        "comm_lib_version": "2.21.5",
        "pg_config": {} if plan.is_gloo else _groups(plan.layout, rank),
        "pg_status": _status(entries),
        "entries": entries,
    }
    if plan.is_pickled and not plan.is_gloo:
        return _Pickle().whole(dump)
    return msgspec.json.encode(dump)


def _groups(layout: RankLayout, rank: int) -> dict[str, dict[str, str]]:
    groups = {}
    for axis in _AXES:
        name = _group_name(layout, axis, rank)
        members = layout.members(axis, int(layout.groups(axis)[rank]))
        groups[name] = {"name": name, "desc": _use(axis), "ranks": json.dumps(members)}
    return groups


def _group_name(layout: RankLayout, axis: str, rank: int) -> str:
    return f"{_AXES.index(axis)}{int(layout.groups(axis)[rank]):05d}" if axis != "world" else "0"


def _use(axis: str) -> str:
    return "default_pg" if axis == "world" else axis


def _status(entries: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    status: dict[str, dict[str, str]] = {}
    for entry in entries:
        row = status.setdefault(str(entry["pg_id"]), {"last_completed_collective": "0"})
        row["last_enqueued_collective"] = str(entry["collective_seq_id"])
        row["last_started_collective"] = str(entry["collective_seq_id"])
        if entry["retired"]:
            row["last_completed_collective"] = str(entry["collective_seq_id"])
    return status


def _entries(
    timeline: JobTimeline, rank: int, times: tuple[Int64Array, Int64Array]
) -> Iterator[dict[str, Any]]:
    """Yield the entries of a rank until the end, the oldest first."""
    plan = timeline.plan
    counts = dict.fromkeys(_AXES, 1000)
    names = {axis: [_group_name(plan.layout, axis, rank), _use(axis)] for axis in _AXES}
    library = "gloo" if plan.is_gloo else "nccl"
    number = 0
    columns = (column[:, rank].tolist() for column in times)
    for meeting, entered, ended in zip(timeline.meetings, *columns, strict=True):
        if entered < 0 or (meeting.axis == "pp" and plan.is_gloo):
            continue
        counts[meeting.axis] += 1
        number += 1
        is_done = ended >= 0
        begun = not plan.is_gloo and not meeting.broken[rank]
        name = meeting.name(rank)
        sizes = _SIZES.get(name, [[2048, 4096]])
        yield {
            "record_id": number,
            "pg_id": _AXES.index(meeting.axis) + (rank % 3 if plan.is_gloo else 0) * 4,
            "process_group": names[meeting.axis],
            "collective_seq_id": counts[meeting.axis] if meeting.axis != "pp" else 0,
            "p2p_seq_id": counts["pp"] if meeting.axis == "pp" else 0,
            "op_id": number,
            "profiling_name": f"{library}:{name}",
            "time_created_ns": entered,
            "time_discovered_started_ns": entered + 20_000 if begun else None,
            "time_discovered_completed_ns": ended if is_done and not plan.is_gloo else None,
            "input_sizes": sizes,
            "input_dtypes": ["BFloat16"],
            "output_sizes": sizes,
            "output_dtypes": ["BFloat16"],
            "state": _state(begun, is_done),
            "retired": is_done,
            "timeout_ms": 1_800_000,
            "is_p2p": meeting.axis == "pp",
        }


def _state(begun: bool, is_done: bool) -> str:
    if not begun:
        return "scheduled"
    return "completed" if is_done else "started"


class _Pickle:
    """Writes plain values with the opcodes of pickle protocol 2, like torch's C++ writer."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._parts: list[bytes] = []

    def whole(self, value: Any) -> bytes:
        """Return a value as a pickle."""
        self._put(value)
        return b"\x80\x02" + b"".join(self._parts) + b"."

    def _put(self, value: Any) -> None:
        if value is None or isinstance(value, bool):
            self._parts.append({None: b"N", True: b"\x88", False: b"\x89"}[value])
        elif isinstance(value, int):
            self._put_number(value)
        elif isinstance(value, str):
            self._put_text(value)
        elif isinstance(value, dict):
            self._parts.append(b"}(")
            for key, item in value.items():
                self._put(key)
                self._put(item)
            self._parts.append(b"u")
        else:
            self._parts.append(b"](")
            for item in value:
                self._put(item)
            self._parts.append(b"e")

    def _put_number(self, value: int) -> None:
        if 0 <= value < 256:
            self._parts.append(b"K" + bytes([value]))
        elif -(2**31) <= value < 2**31:
            self._parts.append(b"J" + value.to_bytes(4, "little", signed=True))
        else:
            data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
            self._parts.append(b"\x8a" + bytes([len(data)]) + data)

    def _put_text(self, value: str) -> None:
        number = self._texts.get(value)
        if number is not None:
            self._parts.append(b"j" + number.to_bytes(4, "little"))
            return
        number = self._texts[value] = len(self._texts)
        data = value.encode()
        self._parts += [b"X", len(data).to_bytes(4, "little"), data]
        self._parts += [b"r", number.to_bytes(4, "little")]
