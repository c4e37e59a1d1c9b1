"""Spill partitions: rows on disk by partition number, because they exceed the memory."""

from __future__ import annotations

from collections import defaultdict
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forewarn.features.threads import map_threads
from forewarn.pipelines.storage.records.ordered_column import reorder_column, without_unused_texts

__all__ = ["SpillPartitions"]

# A sixth of the bytes for 10 % more CPU time.
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class SpillPartitions:
    """Rows by partition number, in the order in which they were added.

    Parameters
    ----------
    file : binary file
        Empty, opened for writing and reading.
    schema : pyarrow.Schema
        Texts are dictionaries.
    """

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file, self._schema = file, schema
        self._stored = pa.schema([field.with_type(_stored(field.type)) for field in schema])
        # The texts of all rows so far, in the order of a single concatenated table.
        self._texts = schema.empty_table()
        self._pieces: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def add(self, table: pa.Table, number: npt.NDArray[np.uint8]) -> None:
        """Add rows; `number` is the partition of each."""
        both = pa.concat_tables([self._texts, table]).unify_dictionaries()
        self._texts = both.slice(0, 0)
        order = np.argsort(number, kind="stable")
        rows = pa.array(order.astype(np.uint32))
        added = [pa.chunked_array(c.chunks[1:], c.type) for c in both.columns]
        columns = map_threads(lambda column: _codes(reorder_column(column, rows)), added)
        batch = pa.RecordBatch.from_arrays(columns, schema=self._stored)
        first = 0
        for which, n_rows in enumerate(np.bincount(number).tolist()):
            if n_rows:
                self._pieces[which].append(self._write(batch.slice(first, n_rows)))
            first += n_rows

    def _write(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Write rows; return their offset and size in bytes."""
        start = self._file.tell()
        with pa.ipc.new_stream(self._file, self._stored, options=_OPTIONS) as writer:
            writer.write_batch(batch)
        return start, self._file.tell() - start

    def rows(self, which: int) -> pa.Table:
        """Return the rows of a partition in the order of adding; this works once per partition."""
        batches = [self._read(start, n_bytes) for start, n_bytes in self._pieces.pop(which, ())]
        table = pa.Table.from_batches(batches, schema=self._stored)
        columns = [
            _texts_of(codes, texts.chunk(0).dictionary) if _is_text(texts.type) else codes
            for codes, texts in zip(table.columns, self._texts.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _read(self, start: int, n_bytes: int) -> pa.RecordBatch:
        self._file.seek(start)
        with pa.ipc.open_stream(pa.py_buffer(self._file.read(n_bytes))) as reader:
            return reader.read_next_batch()


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type on disk: codes for texts, whose dictionary stays in memory."""
    return kind.index_type if _is_text(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind))


def _codes(array: pa.Array) -> pa.Array:
    return array.indices if _is_text(array.type) else array


def _texts_of(codes: pa.ChunkedArray, texts: pa.Array) -> pa.Array:
    """Return texts by their codes, in a dictionary of the texts that occur."""
    array = codes.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    return without_unused_texts(pa.DictionaryArray.from_arrays(array, texts))
