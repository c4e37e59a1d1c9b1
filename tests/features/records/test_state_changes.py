from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.failures import Failures
from forewarn.features.records.file_check import Keys, check_keys
from forewarn.features.records.state_changes import PastStates, StateChangeScan

Rows = Callable[..., list[dict[str, Any]]]
SERIALS = ("A", "B")
states = st.lists(
    st.tuples(st.sampled_from(["A", "B", "Z"]), st.booleans()), min_size=1, max_size=30
)


def _keys(found: list[tuple[str, int, bool]], rows: Rows, table: Any) -> Keys:
    listed = [row for serial, at, bad in found for row in rows(serial, [at], failure=int(bad))]
    return check_keys(table(listed), file="f")


@given(states, st.integers(1, 4))
def test_changes_show_same_failures_as_rows(
    rows: Rows, table: Any, found: list[tuple[str, bool]], n_files: int
) -> None:
    timed = [(serial, 10 * i, bad) for i, (serial, bad) in enumerate(found)]
    files = [_keys(timed[i : i + n_files], rows, table) for i in range(0, len(timed), n_files)]
    changes = StateChangeScan()
    assert all(changes.add(keys) for keys in files)
    few = changes.past().for_gpus(SERIALS)
    everything = PastStates.from_all_rows(files).for_gpus(SERIALS)
    if few is None:
        assert everything is None
    else:
        assert everything is not None
        assert len(few.gpu) <= len(everything.gpu)
        short, whole = Failures.from_rows(*few), Failures.from_rows(*everything)
        for name in Failures.__slots__:
            assert np.array_equal(getattr(short, name), getattr(whole, name))


def test_healthy_gpus_are_not_stored(rows: Rows, table: Any) -> None:
    changes = StateChangeScan()
    assert changes.add(_keys([("A", 0, False), ("B", 0, True), ("B", 10, False)], rows, table))
    past = changes.past()
    assert past.serials == ("B",)
    assert past.states.gpu.tolist() == [0, 0]


def test_unsorted_or_repeated_rows_are_reported(rows: Rows, table: Any) -> None:
    for late in (0, 10):
        changes = StateChangeScan()
        assert changes.add(_keys([("A", 0, False), ("A", 10, True)], rows, table))
        assert not changes.add(_keys([("B", 0, False), ("A", late, False)], rows, table))
