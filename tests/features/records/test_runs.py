from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.runs import RunsBuilder

parts = st.lists(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 2)), max_size=12), max_size=4
)


@given(parts)
def test_runs_give_back_every_value(listed: list[list[tuple[int, int]]]) -> None:
    builder, first = RunsBuilder(4), 0
    for part in listed:
        gpu, values = (np.array([row[i] for row in part], dtype=np.int32) for i in range(2))
        builder.add(values, gpu, first)
        first += len(part)
    runs = builder.runs()
    rows = [row for part in listed for row in part]
    known = np.array([i for i, (gpu, _) in enumerate(rows) if gpu >= 0], dtype=np.int64)
    gpus = np.array([rows[i][0] for i in known], dtype=np.int32)
    assert runs.at(gpus, known).tolist() == [rows[i][1] for i in known]
    assert len(runs.value) <= len(known)
    distinct = [{value for owner, value in rows if owner == gpu} for gpu in range(4)]
    expected = [min(each) if len(each) == 1 else -1 for each in distinct]
    assert runs.of_one_value().tolist() == expected


def test_a_column_that_never_changes_takes_one_run_a_gpu() -> None:
    builder = RunsBuilder(2)
    gpus = np.array([0, 1, -1] * 50, dtype=np.int32)
    builder.add(np.array([5, 7, 9] * 50, dtype=np.int32), gpus, 0)
    builder.add(np.array([5, 7, 9] * 50, dtype=np.int32), gpus, 150)
    runs = builder.runs()
    assert (runs.row.tolist(), runs.value.tolist()) == ([0, 1], [5, 7])
    # Hour by hour: no row, the first one, and one of the second part.
    grid = np.array([[-1, 0, 150], [1, -1, 151]])
    assert runs.on_grid(np.array([0, 1]), grid).tolist() == [[-1, 5, 5], [7, -1, 7]]
    assert runs.on_grid(np.array([1]), grid[1:]).tolist() == [[7, -1, 7]]
    assert runs.of_one_value().tolist() == [5, 7]
    assert runs.renumbered(np.arange(20, 30, dtype=np.int32)).value.tolist() == [25, 27]
