"""Comparison of the local clock with other clocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.response.state.clock_readings import ClockReadings

NOW = Nanoseconds(20_000 * DAY)


def readings(**offsets: int | None) -> ClockReadings:
    """Return readings of clocks at these offsets from the local one."""
    values: Any = {name: None if off is None else NOW + off for name, off in offsets.items()}
    return ClockReadings(NOW, every=MINUTE, **values)


@pytest.mark.parametrize("who", ["scheduler", "database"])
@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (-25 * HOUR, "ahead of"),
        (-5 * MINUTE - 1, "ahead of"),
        (-5 * MINUTE, ""),
        (0, ""),
        (5 * MINUTE, ""),
        (5 * MINUTE + 1, "behind"),
        (400 * DAY, "behind"),
    ],
)
def test_clocks_may_differ_by_five_minutes(who: str, offset: int, words: str) -> None:
    other = {"scheduler": "database", "database": "scheduler"}[who]
    for rest in (None, 0):
        text = readings(**{who: offset, other: rest}).disagreement()
        expected = f"the local clock is more than 5 minutes {words} that of the {who}"
        assert text == (expected if words else "")


def test_clock_set_back_contradicts_last_call() -> None:
    for reference in (None, 0):
        back = readings(scheduler=reference, last_call=2 * MINUTE)
        assert back.disagreement() == "the local clock is behind the last call of the loop"
    assert readings(scheduler=0, last_call=10**8).disagreement() == ""  # skew of another host


def test_pause_needs_second_clock() -> None:
    assert readings(last_call=-25 * HOUR).interruption()
    assert readings(last_call=-6 * MINUTE).interruption() == ""
    assert readings().interruption() == ""  # the first call
    assert readings(scheduler=0, last_call=-25 * HOUR).interruption() == ""
    assert readings(database=0, last_call=-25 * HOUR).interruption() == ""


def test_only_external_clock_counts_as_second() -> None:
    assert readings(last_call=-MINUTE).is_alone
    assert not readings(scheduler=0).is_alone
    assert not readings(database=0).is_alone


OFFSET = st.one_of(st.none(), st.integers(-2 * DAY, 2 * DAY))


@given(scheduler=OFFSET, database=OFFSET, last_call=OFFSET, later=st.integers(0, 10 * MINUTE))
def test_text_is_stable_without_changes(
    scheduler: int | None, database: int | None, last_call: int | None, later: int
) -> None:
    first = readings(scheduler=scheduler, database=database, last_call=last_call)
    moved = {
        name: None if value is None else Nanoseconds(value + later)
        for name, value in (("scheduler", first.scheduler), ("database", first.database))
    }
    again = ClockReadings(
        Nanoseconds(first.now + later), first.every, **moved, last_call=first.last_call
    )
    if last_call is None or last_call <= 0:
        assert again.disagreement() == first.disagreement()
    apart = [off for off in (scheduler, database) if off is not None and abs(off) > 5 * MINUTE]
    assert bool(first.disagreement()) == bool(apart or (last_call or 0) > 10**9)
