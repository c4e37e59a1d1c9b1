"""Reader for Arrow IPC streams from untrusted clients: bounded, uncompressed, fully validated."""

from __future__ import annotations

import pyarrow as pa
from flatbuffers.table import Table as Flat

from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, TableError, check_table

__all__ = ["read_stream"]

_MAX_ROWS = 1_000_000
# Offsets (4 + 2 * field number) in the flatbuffers of Arrow's Message and RecordBatch.
_HEADER, _COMPRESSION = 8, 10


def read_stream(data: bytes) -> tuple[pa.Table, pa.Table]:
    """Return READINGS and EVENTS of a stream; a stream with a column `kind` contains events.

    Parameters
    ----------
    data : bytes
        Stream of bounded length. Compressed buffers and dictionary-encoded strings are rejected,
        because a few bytes of either can expand to any size.

    Raises
    ------
    TableError
        If it is not such a stream, or contains invalid rows.
    """
    try:
        _check_messages(data)
        table = _whole(pa.ipc.open_stream(data))
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, IndexError, KeyError) as error:
        detail = (str(error).splitlines() or [""])[0]
        raise TableError(f"not a complete Arrow IPC stream ({detail[:120]})") from None
    if "kind" in table.column_names:
        return READINGS.empty_table(), check_table(table, EVENTS)
    return check_table(table, READINGS), EVENTS.empty_table()


def _check_messages(data: bytes) -> None:
    """Check the header of every message before any of them is decoded."""
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(data))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        head = message.metadata.to_pybytes()
        kind = message.type
        if kind == "dictionary":
            raise TableError("dictionary-encoded strings, expected plain ones")
        if kind == "record batch" and _is_compressed(head):
            raise TableError("compressed buffers, expected uncompressed ones")


def _is_compressed(head: bytes) -> bool:
    """Return whether the RecordBatch of a message has the field `compression`."""
    message = Flat(head, int.from_bytes(head[:4], "little"))
    offset = message.Offset(_HEADER)
    if not offset:
        return False
    batch = Flat(head, message.Indirect(offset + message.Pos))
    return bool(batch.Offset(_COMPRESSION))


def _whole(reader: pa.RecordBatchStreamReader) -> pa.Table:
    if len(set(reader.schema.names)) < len(reader.schema.names):
        raise TableError("a column occurs twice")
    batches, rows = [], 0
    for batch in reader:
        rows += batch.num_rows
        if rows > _MAX_ROWS:
            raise TableError(f"more than {_MAX_ROWS:,} rows, expected fewer in one batch")
        batch.validate(full=True)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)
