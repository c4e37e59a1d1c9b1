from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.key_survey import KeySurvey, KeyTotals
from forewarn.features.records.ordering import stable_order
from forewarn.features.time_units import MINUTE


def survey(*rows: tuple[int, float, int], parts: int = 1) -> KeySurvey:
    """Survey rows (GPU, minute, machine), in parts of GPUs."""
    gpus, minutes, machines = (np.array(column) for column in zip(*rows, strict=True))
    times = np.round(minutes * MINUTE).astype(np.int64)
    gpu, machine = gpus.astype(np.int32), machines.astype(np.int32)
    totals = KeyTotals()
    while True:
        for part in range(parts):
            order = stable_order(gpu, times)
            order = order[gpu[order] % parts == part]
            totals.add(gpu[order], times[order], machine[order])
        if totals.cadence == totals.median_step:
            return totals.survey()
        totals = KeyTotals(totals.median_step)


def test_cadence_gaps_and_missing_records() -> None:
    found = survey(*((0, minute, 0) for minute in (0, 10, 20, 50, 60)), (1, 5, 0))
    assert found.cadence == 10 * MINUTE
    assert (found.records, found.gaps, found.missing) == (6, 1, 2)
    assert found.coverage == 6 / 8


def test_a_single_record_has_no_cadence() -> None:
    found = survey((0, 5, 0))
    assert (found.cadence, found.gaps, found.coverage) == (0, 0, 1.0)


def test_simultaneous_machines_are_no_move() -> None:
    found = survey(
        *((0, minute, 0) for minute in (0, 10, 20)),
        *((1, minute, 1) for minute in (0, 10, 20)),
        (1, 10, 2),
        (2, 0, 3),
        (2, 10, 4),
    )
    assert found.two_machines == (1,)
    assert found.moved == 1
    assert found.doubled == 1


def test_unknown_machine_is_no_move() -> None:
    found = survey((0, 0, 0), (0, 10, -1), (0, 20, 0))
    assert found.two_machines == ()
    assert found.moved == 0


def test_clock_out_of_phase_is_reported() -> None:
    regular = [(gpu, minute, gpu) for gpu in range(5) for minute in range(0, 100, 10)]
    late = [(9, minute + 3, 9) for minute in range(0, 100, 10)]
    early = [(8, minute - 2 + 10, 8) for minute in range(0, 100, 10)]
    found = survey(*regular, *late, *early)
    assert {machine: round(off / MINUTE) for machine, off in found.clocks.items()} == {9: 3, 8: -2}


def test_without_common_phase_no_clock_is_reported() -> None:
    rows = [(gpu, minute + gpu, gpu) for gpu in range(10) for minute in range(0, 100, 10)]
    assert survey(*rows).clocks == {}


@given(st.permutations([(g, m, g % 2) for g in range(3) for m in (0, 10, 20, 40)]))
def test_row_order_does_not_matter(rows: list[tuple[int, float, int]]) -> None:
    assert survey(*rows) == survey(*sorted(rows))


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([0, 3, 10, 20, 27, 40]), st.integers(-1, 3)),
        min_size=1,
        max_size=60,
    ),
    st.integers(2, 7),
)
def test_parts_match_the_whole_fleet(rows: list[tuple[int, float, int]], parts: int) -> None:
    assert survey(*rows, parts=parts) == survey(*rows)
