from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.ordering import sampling_hash, stable_order
from forewarn.features.time_units import MINUTE

# Numbers below and above 16 bits, so that both passes of the sort are needed.
numbers = st.sampled_from([0, 1, 2, 65_535, 65_536, 65_537, 131_072, 200_000])
keys = st.lists(st.tuples(numbers, st.integers(-3, 3)), max_size=40)


@given(keys)
def test_order_is_that_of_sorted_and_stable(keys: list[tuple[int, int]]) -> None:
    gpu = np.array([gpu for gpu, _ in keys], dtype=np.int32)
    time = np.array([time for _, time in keys], dtype=np.int64)
    expected = sorted(range(len(keys)), key=lambda row: keys[row])
    assert stable_order(gpu, time).tolist() == expected


@given(keys, st.randoms(use_true_random=False))
def test_sorted_keys_are_independent_of_row_order(
    keys: list[tuple[int, int]], random: object
) -> None:
    shuffled = keys.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    tables = []
    for rows in (keys, shuffled):
        gpu = np.array([gpu for gpu, _ in rows], dtype=np.int32)
        time = np.array([time for _, time in rows], dtype=np.int64)
        order = stable_order(gpu, time)
        tables.append((gpu[order].tolist(), time[order].tolist()))
    assert tables[0] == tables[1]


def test_rows_sorted_by_time_keep_file_order() -> None:
    gpu = np.array([1, 0, 1, 0, 1], dtype=np.int32)
    time = np.array([5, 5, 5, 6, 7], dtype=np.int64)
    assert stable_order(gpu, time).tolist() == [1, 3, 0, 2, 4]


SERIALS = ("A", "B", "C", "D")
rows_of_instances = st.lists(
    st.tuples(st.sampled_from(SERIALS), st.integers(0, 2**62)), min_size=1, max_size=30
)


def _hashes(seed: int, serials: tuple[str, ...], rows: list[tuple[str, int]]) -> list[int]:
    gpu = np.array([serials.index(serial) for serial, _ in rows], dtype=np.int32)
    time = np.array([time for _, time in rows], dtype=np.int64)
    hashes = sampling_hash(seed, serials, gpu, time)
    assert hashes.dtype == np.uint64
    return [int(one) for one in hashes]


@given(rows_of_instances, st.permutations(SERIALS), st.data())
def test_hash_depends_on_serial_and_time_only(
    rows: list[tuple[str, int]], serials: list[str], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    plain = _hashes(7, SERIALS, rows)
    shuffled = _hashes(7, ("0", *serials), [rows[i] for i in order])
    assert shuffled == [plain[i] for i in order]


@given(st.sets(st.tuples(st.sampled_from(SERIALS), st.integers(0, 2**40)), min_size=2))
def test_instances_have_distinct_hashes(rows: set[tuple[str, int]]) -> None:
    assert len(set(_hashes(0, SERIALS, sorted(rows)))) == len(rows)


def test_seed_changes_every_hash() -> None:
    rows = [("A", 5), ("B", 5), ("A", 6)]
    assert not set(_hashes(0, SERIALS, rows)) & set(_hashes(1, SERIALS, rows))


def test_hashes_are_spread_evenly() -> None:
    rows = [("A", i * 10 * MINUTE) for i in range(4_000)]
    quarters = np.array([one >> 62 for one in _hashes(3, SERIALS, rows)])
    shares = np.bincount(quarters, minlength=4) / len(rows)
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.03)


def test_hash_is_stable_across_versions() -> None:
    # The sample of a published backtest must not change with the code.
    hashes = _hashes(0, ("GPU-1",), [("GPU-1", 1_700_000_000_000_000_000)])
    assert hashes == [17_210_921_374_464_105_052]
