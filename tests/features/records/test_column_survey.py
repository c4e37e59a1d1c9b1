from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.column_survey import (
    ColumnSurvey,
    ColumnTotals,
    FloatSurvey,
    FloatTotals,
    day_extremes,
    day_starts,
)

NAN = float("nan")


def gpus(*numbers: int) -> npt.NDArray[np.int32]:
    return np.array(numbers, dtype=np.int32)


def counter(*rows: tuple[int, float]) -> ColumnSurvey:
    """Survey a counter with rows (GPU, value) sorted by time."""
    ordered = sorted(rows, key=lambda row: row[0])
    values = np.array([value for _, value in ordered], dtype=np.float64)
    return ColumnSurvey.from_counter("ecc_corrected", values, gpus(*(gpu for gpu, _ in ordered)))


def test_missing_and_impossible_values_are_counted() -> None:
    column = ColumnTotals("temperature_gpu")
    for values in ([40.0, NAN, 900.0, -300.0], [130.0, -20.0]):
        column.add(ColumnSurvey.from_values(column.name, np.array(values)), np.arange(0), 0)
    assert (column.rows, column.nulls, column.impossible) == (6, 1, 2)


def test_unknown_column_has_no_impossible_values() -> None:
    values = np.array([-1e9, NAN, 1e9, 0.5])
    assert ColumnSurvey.from_values("vibration", values).impossible == 0
    assert (
        ColumnSurvey.from_values("vibration", values, code=True).impossible == 2
    )  # below 0, and 0.5
    counted = ColumnSurvey.from_counter("vibration", values, gpus(0, 0, 0, 0))
    assert (counted.rows, counted.nulls, counted.impossible) == (4, 1, 1)


def test_resets_count_within_and_between_parts() -> None:
    column, number = ColumnTotals("ecc_corrected"), np.arange(2)
    # A decreases once (7 to 2); B starts lower than A ended, which is no reset.
    column.add(counter((0, 5.0), (0, NAN), (0, 7.0), (0, 2.0), (1, 1.0)), number, 2)
    assert column.resets == 1
    column.add(counter((0, 0.0), (1, 1.0)), number, 2)  # A decreased from 2, B is constant
    assert column.resets == 2


def test_gpus_are_renumbered_to_the_fleet() -> None:
    column = ColumnTotals("ecc_corrected")
    column.add(counter((0, 5.0), (1, 1.0)), np.array([0, 1]), 2)
    column.add(counter((0, 1.0), (1, 9.0)), np.array([1, 2]), 3)  # B is constant, C is new
    assert column.resets == 0
    column.add(counter((0, 8.0), (1, 4.0)), np.array([2, 0]), 3)  # C decreased from 9, A from 5
    assert column.resets == 2


@given(
    st.lists(st.tuples(st.integers(0, 1), st.floats(0, 9) | st.just(NAN)), max_size=30),
    st.integers(0, 30),
)
def test_resets_are_independent_of_parts(rows: list[tuple[int, float]], cut: int) -> None:
    whole, parts = ColumnTotals("c"), ColumnTotals("c")
    for column, pieces in ((whole, [rows]), (parts, [rows[:cut], rows[cut:]])):
        for piece in pieces:
            column.add(counter(*piece), np.arange(2), 2)
    expected = 0
    for gpu in (0, 1):
        mine = [value for number, value in rows if number == gpu and value == value]
        expected += sum(later < earlier for earlier, later in itertools.pairwise(mine))
    assert whole.resets == parts.resets == expected
    assert whole.counts() == parts.counts()


def test_extremes_without_values_are_missing() -> None:
    low, high, n = day_extremes(np.array([NAN, NAN, 2.0]), np.array([0, 2]))
    assert np.isnan(low[0])
    assert np.isnan(high[0])
    assert n.tolist() == [0, 1]


def day(
    frozen: bool, moving: bool = True, level: float = 70.0
) -> dict[str, npt.NDArray[np.float64]]:
    """Return a day of 20 GPUs with 24 readings each; the first GPU is as given."""
    wave = np.tile(np.arange(24.0), 20)
    temperature, power = 50.0 + wave, 100.0 + wave
    if frozen:
        temperature[:24] = level
    if not moving:
        power[:24] = 60.0
    return {"temperature_gpu": temperature, "power_draw": power}


SERIALS = tuple(f"G{number:02}" for number in range(20))


def survey_of(values: dict[str, npt.NDArray[np.float64]]) -> FloatSurvey:
    gpu = np.repeat(np.arange(20, dtype=np.int32), 24)
    starts = day_starts(gpu)
    extremes = {name: day_extremes(column, starts) for name, column in values.items()}
    return FloatSurvey.from_extremes(extremes, gpu[starts])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (day(frozen=True), {"temperature_gpu": {"G00": 1}}),
        (day(frozen=False), {}),
        (day(frozen=True, moving=False), {}),  # nothing changes: possibly idle
        (day(frozen=True, level=0.0), {}),  # zero is idleness
        # 16 lanes on all GPUs: constant by nature is not frozen
        (day(frozen=False) | {"pcie_link_width": np.full(480, 16.0)}, {}),
    ],
)
def test_constant_sensor_among_changing_ones_is_frozen(
    values: dict[str, npt.NDArray[np.float64]],
    expected: dict[str, dict[str, int]],
) -> None:
    totals = FloatTotals()
    totals.add(survey_of(values), np.arange(20), 20)
    assert totals.frozen(SERIALS) == expected


def test_frozen_days_are_summed_by_fleet_gpu() -> None:
    totals = FloatTotals()
    orders = (np.arange(20), np.arange(20), np.arange(20)[::-1], np.arange(20, 40))
    for frozen, number in zip((True, False, True, True), orders, strict=True):
        totals.add(survey_of(day(frozen)), number, 1 + int(number.max()))
    serials = [f"S{99 - number}" for number in range(40)]  # results are sorted by serial
    frozen_days = totals.frozen(serials)["temperature_gpu"]
    assert list(frozen_days.items()) == [("S79", 1), ("S80", 1), ("S99", 1)]


def test_two_days_of_one_gpu_count_twice() -> None:
    totals = FloatTotals()
    totals.add(FloatSurvey({"volts": 40}, {"volts": gpus(1, 1)}), np.array([5, 0]), 6)
    assert totals.frozen(SERIALS) == {"volts": {"G00": 2}}
