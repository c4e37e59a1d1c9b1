from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.column_survey import ColumnSurvey, FloatSurvey, day_extremes

NAN = float("nan")
SERIALS = ("A", "B")


def gpus(*numbers: int) -> npt.NDArray[np.int32]:
    return np.array(numbers, dtype=np.int32)


def test_missing_and_impossible_values_are_counted() -> None:
    column = ColumnSurvey("temperature_gpu")
    column.add(np.array([40.0, NAN, 900.0, -300.0]), counter=False)
    column.add(np.array([130.0, -20.0]), counter=False)
    assert (column.rows, column.nulls, column.impossible) == (6, 1, 2)


def test_a_column_that_nobody_defined_has_no_impossible_values() -> None:
    column = ColumnSurvey("vibration")
    column.add(np.array([-1e9, 1e9]), counter=False)
    assert column.impossible == 0
    column.add(np.array([-1.0, 1e9]), counter=True)
    assert column.impossible == 1


def test_resets_are_falls_within_a_gpu_and_from_one_part_to_the_next() -> None:
    column = ColumnSurvey("ecc_corrected")
    # A: 5, missing, 7, 2 falls once; B begins lower than A ended, which is no fall.
    column.add_resets(np.array([5.0, NAN, 7.0, 2.0, 1.0]), gpus(0, 0, 0, 0, 1), SERIALS)
    assert column.resets == 1
    column.add_resets(np.array([0.0, 1.0]), gpus(0, 1), SERIALS)  # A fell from 2, B rests
    assert column.resets == 2


@given(
    st.lists(st.tuples(st.integers(0, 1), st.floats(0, 9) | st.just(NAN)), max_size=30),
    st.integers(0, 30),
)
def test_resets_do_not_depend_on_how_rows_are_cut_into_parts(
    rows: list[tuple[int, float]], cut: int
) -> None:
    whole, parts, early, late = (ColumnSurvey("c") for _ in range(4))
    pieces_of = ((whole, [rows]), (parts, [rows[:cut], rows[cut:]]))
    apart = ((early, [rows[:cut]]), (late, [rows[cut:]]))
    for column, pieces in (*pieces_of, *apart):
        for piece in pieces:
            ordered = sorted(piece, key=lambda row: row[0])
            values = np.array([value for _, value in ordered])
            column.add_resets(values, gpus(*(gpu for gpu, _ in ordered)), SERIALS)
    expected = 0
    for gpu in (0, 1):
        mine = [value for number, value in rows if number == gpu and value == value]
        expected += sum(later < earlier for earlier, later in itertools.pairwise(mine))
    assert whole.resets == parts.resets == expected
    early.take(late)
    assert early == parts == whole


def test_extremes_of_a_gpu_without_a_value_are_missing() -> None:
    low, high, n = day_extremes(np.array([NAN, NAN, 2.0]), np.array([0, 2]))
    assert np.isnan(low[0])
    assert np.isnan(high[0])
    assert n.tolist() == [0, 1]


def day(
    frozen: bool, moving: bool = True, level: float = 70.0
) -> dict[str, npt.NDArray[np.float64]]:
    """Return a day of 20 GPUs with 24 readings each, of which the first is as asked."""
    wave = np.tile(np.arange(24.0), 20)
    temperature, power = 50.0 + wave, 100.0 + wave
    if frozen:
        temperature[:24] = level
    if not moving:
        power[:24] = 60.0
    return {"temperature_gpu": temperature, "power_draw": power}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (day(frozen=True), {"temperature_gpu": {"G00": 1}}),
        (day(frozen=False), {}),
        (day(frozen=True, moving=False), {}),  # nothing moves: idle, perhaps
        (day(frozen=True, level=0.0), {}),  # zero is idleness
    ],
)
def test_frozen_is_what_stays_where_others_move(
    values: dict[str, npt.NDArray[np.float64]],
    expected: dict[str, dict[str, int]],
) -> None:
    survey = FloatSurvey()
    gpu = np.repeat(np.arange(20, dtype=np.int32), 24)
    survey.add(values, gpu, tuple(f"G{i:02}" for i in range(20)))
    assert survey.frozen() == expected


def test_a_column_that_rests_by_nature_is_not_frozen() -> None:
    survey = FloatSurvey()
    gpu = np.repeat(np.arange(20, dtype=np.int32), 24)
    values = day(frozen=False) | {"pcie_link_width": np.full(480, 16.0)}
    survey.add(values, gpu, tuple(f"G{i:02}" for i in range(20)))
    assert survey.frozen() == {}


def test_frozen_days_of_two_surveys_add_up() -> None:
    gpu = np.repeat(np.arange(20, dtype=np.int32), 24)
    serials = tuple(f"g{number}" for number in range(20))
    parts = [FloatSurvey() for _ in range(3)]
    together = FloatSurvey()
    for part, frozen in zip(parts, (True, False, False), strict=True):
        part.add(day(frozen), gpu, serials)
        together.add(day(frozen), gpu, serials)
    for part in parts[1:]:
        parts[0].take(part)
    assert parts[0] == together
    assert together.frozen()
