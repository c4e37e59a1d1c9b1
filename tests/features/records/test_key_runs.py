from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.earlier_states import EarlierStates
from forewarn.features.records.file_check import Keys, States
from forewarn.features.records.key_runs import KeyRuns, find_runs
from forewarn.features.records.table import Column

# Serial, spacing from the row before, state: rows of a GPU follow one another.
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "C"]), st.sampled_from([10, 10, 10, 20, 7]), st.booleans()
    ),
    min_size=1,
    max_size=40,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))
NONE = np.zeros(0, dtype=np.int64)


def keys_of(rows: list[tuple[str, int, bool]]) -> Keys:
    serials, spacings, failed = zip(*rows, strict=True)
    texts = tuple(sorted(set(serials)))
    codes = np.array([texts.index(serial) for serial in serials], dtype=np.int32)
    keep = np.full(len(rows), True)
    time = np.cumsum(np.array(spacings))
    return Keys(Column(codes, texts), time, keep, np.array(failed), len(rows), False, NONE)


def runs_of(keys: Keys, most: int) -> KeyRuns:
    changes = np.append(True, np.diff(keys.serial.codes) != 0)
    changes[1:] |= keys.failed[1:] != keys.failed[:-1]
    begin, step = find_runs(changes, keys.time, most)
    first = Keys(
        Column(keys.serial.codes[begin], keys.serial.texts),
        keys.time[begin],
        keys.keep[begin],
        keys.failed[begin],
        len(begin),
        False,
        NONE,
    )
    return KeyRuns(first, np.diff(np.append(begin, len(changes))), step, {})


def cells(keys: Keys) -> list[tuple[Any, ...]]:
    """Return serial, time and state of each row that is kept."""
    rows = np.flatnonzero(keys.keep)
    serials = [keys.serial.texts[code] for code in keys.serial.codes[rows]]
    return list(zip(serials, keys.time[rows].tolist(), keys.failed[rows].tolist(), strict=True))


@given(ROWS, st.none() | st.integers(0, 300), st.none() | st.integers(0, 300))
def test_runs_of_even_times_stand_for_all_rows(
    rows: list[tuple[str, int, bool]], start: int | None, end: int | None
) -> None:
    keys = keys_of(rows)
    laid = runs_of(keys, most=len(rows)).keys(start, end)
    assert laid is not None
    low, high = -1 if start is None else start, 10**9 if end is None else end
    within = (keys.time >= low) & (keys.time < high)
    assert laid.time.tolist() == keys.time.tolist()
    assert laid.keep.tolist() == within.tolist()
    assert laid.n_rows == within.sum()
    assert cells(laid) == [cell for cell in cells(keys) if low <= cell[1] < high]


@given(ROWS, st.none() | st.integers(0, 300))
def test_the_ends_of_runs_have_every_change_of_state(
    rows: list[tuple[str, int, bool]], end: int | None
) -> None:
    keys = keys_of(rows)
    runs = runs_of(keys, most=len(rows))
    ends, whole = runs.ends(end), runs.keys(end=end)
    assert ends is not None
    assert whole is not None
    assert ends.n_rows == whole.n_rows
    assert set(cells(ends)) <= set(cells(whole))
    of_ends, of_rows = EarlierStates(), EarlierStates()
    assert of_ends.add(ends)
    assert of_rows.add(whole)
    few, every = of_ends.past(), of_rows.past()
    assert few.serials == every.serials
    for name in States._fields:
        assert np.array_equal(getattr(few.states, name), getattr(every.states, name))


def test_a_gpu_that_reports_evenly_has_one_run_until_its_state_changes() -> None:
    rows = [("A", 10, False)] * 5 + [("A", 10, True)] * 2 + [("B", 10, False)] * 3
    runs = runs_of(keys_of(rows), most=9)
    assert runs.n_rows.tolist() == [5, 2, 3]
    assert runs.step is not None
    assert runs.step.tolist() == [10, 10, 10]
    assert runs.first.failed.tolist() == [False, True, False]


def test_uneven_times_are_left_to_be_read() -> None:
    rows = [("A", spacing, False) for spacing in (10, 11, 9, 12, 8, 10)]
    runs = runs_of(keys_of(rows), most=2)
    assert (runs.n_rows.tolist(), runs.step) == ([6], None)
    assert runs.keys() is None
    assert runs.ends() is None


def test_a_part_has_codes_of_its_own_that_may_be_renumbered() -> None:
    rows = [(serial, 10, False) for serial in "AABBCC"]
    whole = runs_of(keys_of(rows), most=6)
    texts = Column(np.array([2, -1, 0], dtype=np.int32), ("x", "y", "z"))
    part = KeyRuns(whole.first, whole.n_rows, whole.step, {"rack": texts}).part(0, 2)
    keys = part.keys()
    assert keys is not None
    assert keys.serial.texts == ("A", "B")
    text = part.text("rack")
    assert (text.codes.tolist(), text.texts) == ([2, -1], ("x", "y", "z"))
    text.codes[:] = 7
    assert part.text("rack").codes.tolist() == [2, -1]
    assert part.table("rack")["rack"].to_pylist() == ["z", None]


@pytest.mark.parametrize("most", [0, 1, 2, 3, 10])
def test_no_more_runs_than_have_room(most: int) -> None:
    changes, time = np.array([True, False, True, False]), np.array([0, 10, 0, 10])
    begin, step = find_runs(changes, time, most)
    assert begin.tolist() == [0, 2]
    assert (step is None) == (most < 2)
