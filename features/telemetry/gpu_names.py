"""Names of GPUs whose rows have only a UUID: the serial that other readings show for it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.gpu_boards import without_zeros

__all__ = ["GPU_NAMES", "names_by_uuid", "with_known_names"]

# Name of a GPU by UUID: its serial, or `SERIAL/UUID`.
GPU_NAMES = pa.schema([("gpu_uuid", pa.string()), ("gpu_serial", pa.string())])


def names_by_uuid(places: pa.Table) -> pa.Table:
    """Return GPU_NAMES: UUIDs that were seen with exactly one name, sorted.

    A UUID with several serials is ambiguous, as is a serial with several UUIDs that is not a known
    board. Rows with such a UUID and without a serial are named by the UUID.

    Parameters
    ----------
    places : pyarrow.Table
        PLACES of all readings.
    """
    columns = [without_zeros(places["gpu_uuid"]), places["gpu_serial"]]
    pairs = pa.table(columns, schema=GPU_NAMES)
    pairs = pairs.filter(pc.not_equal(pairs["gpu_uuid"], pairs["gpu_serial"]))
    pairs = pairs.group_by(GPU_NAMES.names, use_threads=False).aggregate([])
    for name in GPU_NAMES.names:
        pairs = pairs.append_column(f"{name}_once", _is_only(pairs[name]))
    single = pairs.filter(pc.and_(pairs["gpu_uuid_once"], pairs["gpu_serial_once"]))
    return single.select(GPU_NAMES.names).sort_by("gpu_uuid").cast(GPU_NAMES)


def _is_only(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Tell whether each name occurs once."""
    counts = pc.value_counts(names.combine_chunks())
    once = counts.filter(pc.equal(counts.field("counts"), 1)).field("values")
    return pc.is_in(names, once)


def with_known_names(table: pa.Table, names: pa.Table) -> pa.Table:
    """Replace the names of GPUs that are named by their UUID by their known name.

    Parameters
    ----------
    table : pyarrow.Table
        With `gpu_serial`.
    names : pyarrow.Table
        GPU_NAMES.
    """
    which = pc.index_in(table["gpu_serial"], names["gpu_uuid"].combine_chunks())
    if which.null_count == len(table):
        return table
    known = names["gpu_serial"].combine_chunks().take(which.combine_chunks())
    index = table.schema.get_field_index("gpu_serial")
    serials = pc.coalesce(known, table["gpu_serial"])
    return table.set_column(index, table.schema.field(index), serials)
