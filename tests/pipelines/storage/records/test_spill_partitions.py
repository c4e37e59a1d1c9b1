from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forewarn.pipelines.storage.records.spill_partitions import SpillPartitions

SCHEMA = pa.schema(
    {
        "text": pa.dictionary(pa.int32(), pa.string()),
        "count": pa.int64(),
        "links": pa.list_(pa.int8()),
    }
)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["a", "b", "c", "d", None]),
        st.sampled_from([1, 2, None]),
        st.sampled_from([[1], [], None]),
    ),
    max_size=12,
)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    arrays = [pa.array(column, kind) for column, kind in zip(columns[1:], KINDS, strict=True)]
    return pa.Table.from_arrays([arrays[0].dictionary_encode(), *arrays[1:]], schema=SCHEMA)


KINDS = (pa.string(), pa.int64(), pa.list_(pa.int8()))


@given(st.lists(ROWS, max_size=4))
def test_partitions_keep_row_order(tables: list[list[tuple[Any, ...]]]) -> None:
    divided = SpillPartitions(io.BytesIO(), SCHEMA)
    for rows in tables:
        divided.add(table_of(rows), np.array([row[0] for row in rows], dtype=np.uint8))
    everything = [row for rows in tables for row in rows]
    texts = list(dict.fromkeys(row[1] for row in everything if row[1] is not None))
    for number in range(4):
        mine = [row for row in everything if row[0] == number]
        rows = divided.rows(number)
        assert rows.schema == SCHEMA
        assert rows.to_pylist() == table_of(mine).to_pylist()
        occurring = {row[1] for row in mine}
        expected = [text for text in texts if text in occurring]  # as in one concatenated table
        assert rows["text"].combine_chunks().dictionary.to_pylist() == expected
