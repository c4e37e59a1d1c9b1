"""Boards with several GPUs, which share a serial and differ by UUID."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.parsers.gpu_reading import ZEROS_PATTERN
from forewarn.features.time_units import MINUTE

__all__ = [
    "BOARDS",
    "detect_boards",
    "gpus_by_serial",
    "merge_boards",
    "plain_serials",
    "with_board_keys",
    "without_zeros",
]

# Serials of boards with several GPUs, and the time in nanoseconds at which this was first seen.
BOARDS = pa.schema([("gpu_serial", pa.string()), ("known_at", pa.int64())])
# One call of nvidia-smi reads all GPUs of a host within seconds.
_SAME_TIME_TOLERANCE = MINUTE


class _Observation(NamedTuple):
    """The time of a reading, and what distinguishes its GPU from others of the same serial."""

    time: int
    uuid: str | None
    pci: str | None
    slot: int | None

    def is_other_gpu(self, other: _Observation) -> bool:
        """Tell whether simultaneous readings of one serial and host are of two GPUs.

        A UUID that changes at one address means that the board was flashed or exchanged.
        """
        if self.uuid is not None and self.uuid == other.uuid:
            return False
        if self.pci is not None and other.pci is not None:
            return self.pci != other.pci
        if None in (self.uuid, other.uuid):
            return False
        return None in (self.slot, other.slot) or self.slot != other.slot


def detect_boards(readings: pa.Table, ticks: npt.NDArray[np.int64]) -> pa.Table:
    """Return BOARDS: serials that two GPUs of one host report at the same time.

    Parameters
    ----------
    readings : pyarrow.Table
        With serials, those of boards without a UUID (`with_serials`).
    ticks : ndarray of int64
        Ends of their intervals; only readings of one interval are compared.
    """
    readings, ticks = _with_several(readings, ticks)
    by_round: dict[tuple[str, str, int], list[_Observation]] = defaultdict(list)
    uuids = without_zeros(readings["gpu_uuid"])
    what = (
        readings["gpu_serial"],
        readings["machine_id"],
        uuids,
        readings["pci"],
        readings["slot"],
    )
    columns = [column.to_pylist() for column in what]
    times = readings["timestamp"].cast(pa.int64()).to_pylist()
    for serial, host, *gpu, time, tick in zip(*columns, times, ticks.tolist(), strict=True):
        if serial is not None and host is not None:
            by_round[serial, host, tick].append(_Observation(time, *gpu))
    rows = [
        {"gpu_serial": serial, "known_at": known_at}
        for (serial, _, _), seen in by_round.items()
        if (known_at := _first_pair(sorted(seen, key=lambda row: row.time))) is not None
    ]
    return merge_boards(pa.Table.from_pylist(rows, schema=BOARDS))


def _with_several(
    readings: pa.Table, ticks: npt.NDArray[np.int64]
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Return the readings of serials with several UUIDs or addresses in one interval."""
    table = readings.select(["gpu_serial", "machine_id", "gpu_uuid", "pci"])
    by_round = table.append_column("tick", pa.array(ticks)).group_by(
        ["gpu_serial", "machine_id", "tick"], use_threads=False
    )
    counts = by_round.aggregate([("gpu_uuid", "count_distinct"), ("pci", "count_distinct")])
    several = pc.or_(
        pc.greater(counts["gpu_uuid_count_distinct"], 1),
        pc.greater(counts["pci_count_distinct"], 1),
    )
    serials = pc.unique(counts.filter(several)["gpu_serial"]).drop_null()
    chosen = pc.is_in(readings["gpu_serial"], serials)
    return readings.filter(chosen), ticks[chosen.to_numpy()]


def without_zeros(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return serials or UUIDs; those that consist of zeros name nothing and become null."""
    return pc.if_else(pc.match_substring_regex(names, f"^(?:{ZEROS_PATTERN})$"), None, names)


def _first_pair(seen: Sequence[_Observation]) -> int | None:
    """Return when two GPUs were first seen simultaneously; readings are sorted by time."""
    for i, later in enumerate(seen):
        for earlier in reversed(seen[:i]):
            if later.time - earlier.time > _SAME_TIME_TOLERANCE:
                break
            if later.is_other_gpu(earlier):
                return later.time
    return None


def merge_boards(*tables: pa.Table) -> pa.Table:
    """Merge tables of BOARDS: each serial once with its earliest time, sorted by serial."""
    grouped = pa.concat_tables(tables).group_by("gpu_serial", use_threads=False)
    earliest = grouped.aggregate([("known_at", "min")]).rename_columns(BOARDS.names)
    return earliest.sort_by("gpu_serial").cast(BOARDS)


def with_board_keys(table: pa.Table, boards: Collection[str]) -> pa.Table:
    """Name the GPUs of boards `SERIAL/UUID`; a GPU without a UUID gets no name.

    Parameters
    ----------
    table : pyarrow.Table
        With `gpu_serial` and `gpu_uuid`.
    boards : collection of str
        Serials.
    """
    if not boards:
        return table
    names = table["gpu_serial"]
    on_board = pc.is_in(names, pa.array(sorted(boards), pa.string()))
    keys = pc.binary_join_element_wise(names, without_zeros(table["gpu_uuid"]), "/")
    index = table.schema.get_field_index("gpu_serial")
    return table.set_column(index, table.schema.field(index), pc.if_else(on_board, keys, names))


def plain_serials(table: pa.Table) -> list[str | None]:
    """Return the serials of a table, without the UUID that was added for boards."""
    pairs = zip(table["gpu_serial"].to_pylist(), table["gpu_uuid"].to_pylist(), strict=True)
    return [name and name.removesuffix(f"/{uuid}") for name, uuid in pairs]


def gpus_by_serial(places: pa.Table) -> dict[str, list[str]]:
    """Return the names of the GPUs with each serial: several for a board, else the serial."""
    named: dict[str, set[str]] = defaultdict(set)
    for serial, name in zip(plain_serials(places), places["gpu_serial"].to_pylist(), strict=True):
        if serial is not None:
            named[serial].add(name)
    return {serial: sorted(names) for serial, names in named.items()}
