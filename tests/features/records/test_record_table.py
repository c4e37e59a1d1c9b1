from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from forewarn.features.errors import InputError
from forewarn.features.records.record_table import CheckReport, FeatureKinds, Records, RecordsError

Make = Callable[..., Records]
Rows = Callable[..., list[dict[str, object]]]

KINDS = FeatureKinds(
    categorical=("gpu_type",), float=("temperature_gpu",), counter=("ecc",), code=("xid",)
)


@pytest.fixture
def fleet(assembled: Make, rows: Rows) -> Records:
    # B's record of minute 20 is missing, and filled.
    return assembled(
        rows("B", [0, 10, 30], temperature_gpu=[50.0, 51.0, 53.0], ecc=[1, 2, 4], xid=[0, 13, 79])
        + rows("A", [0, 10, 20], temperature_gpu=[40.0, 41.0, None], ecc=[5, 5, 9], xid=0),
        kinds=KINDS.among({"temperature_gpu", "ecc", "xid"}),
    )


def test_names_are_ordered_by_kind() -> None:
    kinds = FeatureKinds(("a",), ("b", "c"), ("d",), ("e",), ("f",), ("g",))
    assert kinds.names == ("a", "b", "c", "d", "e", "f", "g")


def test_among_keeps_kind_and_order() -> None:
    kinds = FeatureKinds(float=("x", "y", "z"), code=("xid",)).among({"z", "x", "other"})
    assert kinds == FeatureKinds(float=("x", "z"))


def test_zero_counts_give_no_notes() -> None:
    assert CheckReport(rows=5, nulls={"x": 0}).notes() == []


def test_notes_show_nonzero_counts() -> None:
    seen = CheckReport(99, 11, 22, 33, 44, 55, 77, naive_time=True, nulls={"x": 66, "y": 0})
    notes = " ".join(seen.notes())
    counts = ["11", "22", "33", "44", "55", "66", "77"]
    assert [number for number in counts if number in notes] == counts
    assert "`x`" in notes
    assert "`y`" not in notes
    assert "UTC" in notes
    assert len(seen.notes()) == 8


def test_bad_records_are_an_input_error() -> None:
    assert issubclass(RecordsError, InputError)
    assert issubclass(InputError, ValueError)


def test_rows_are_sorted_by_serial_and_time(
    fleet: Records, minutes: Callable[..., list[float]]
) -> None:
    assert fleet.serials == ("A", "B")
    assert fleet.gpu.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert minutes(fleet.time) == [0, 10, 20, 0, 10, 20, 30]
    assert fleet.filled.tolist() == [False] * 5 + [True, False]
    assert len(fleet) == 7


def test_filled_record_repeats_numbers_but_no_event(fleet: Records) -> None:
    rows = np.arange(3, 7)
    assert fleet.numbers("temperature_gpu", rows).tolist() == [50.0, 51.0, 51.0, 53.0]
    assert fleet.numbers("xid", rows).tolist() == [0.0, 13.0, 0.0, 79.0]


def test_numbers_have_the_shape_of_the_rows(fleet: Records) -> None:
    windows = np.array([[3, 4], [5, 6]])
    assert fleet.numbers("xid", windows).tolist() == [[0.0, 13.0], [0.0, 79.0]]
    assert fleet.numbers("ecc", windows)[:, 1].tolist() == [1.0, 2.0]


def test_null_is_not_a_number(fleet: Records) -> None:
    assert np.isnan(fleet.numbers("temperature_gpu", np.array([2]))).all()


def test_codes_follow_row_order(assembled: Make, rows: Rows) -> None:
    records = assembled(
        rows("B", [0, 10], gpu_type="V100")
        + rows("A", [0, 10], gpu_type="P4")
        + rows("C", [0], gpu_type=None),
        kinds=KINDS.among({"gpu_type"}),
    )
    assert records.texts["gpu_type"].texts == ("P4", "V100")
    assert records.codes("gpu_type", np.arange(5)).tolist() == [0, 0, 1, 1, -1]


def test_between_is_half_open(
    fleet: Records, at: Callable[[float], int], minutes: Callable[..., list[float]]
) -> None:
    part = fleet.between(at(10), at(20))
    assert minutes(part.time) == [10, 10]
    assert fleet.rows_between(at(10), at(20)).tolist() == [1, 4]


def test_between_cuts_every_column(fleet: Records, at: Callable[[float], int]) -> None:
    part, rows = fleet.between(at(10), at(40)), fleet.rows_between(at(10), at(40))
    mine = np.arange(len(part))
    for name in ("temperature_gpu", "ecc", "xid"):
        assert np.array_equal(part.numbers(name, mine), fleet.numbers(name, rows), equal_nan=True)
    assert part.gpu.tolist() == fleet.gpu[rows].tolist()
    assert part.filled.tolist() == fleet.filled[rows].tolist()
    assert part.failed.tolist() == fleet.failed[rows].tolist()


def test_bounds_include_gpus_without_rows(
    fleet: Records, at: Callable[[float], int], assembled: Make, rows: Rows
) -> None:
    assert fleet.gpu_bounds().tolist() == [0, 3, 7]
    records = assembled(rows("A", [0]) + rows("B", [50]) + rows("C", [0, 10]))
    assert records.between(at(0), at(20)).gpu_bounds().tolist() == [0, 1, 1, 3]
    assert records.between(at(99), at(100)).gpu_bounds().tolist() == [0, 0, 0, 0]
