from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.record_table import Records

Make = Callable[..., Records]
Rows = Callable[..., list[dict[str, Any]]]
Minutes = Callable[..., list[float]]
Fail = Callable[..., Failures]

Listed = list[tuple[str, float, float | None, float]]


@pytest.fixture(scope="module")
def fleet(assembled: Make, rows: Rows) -> Records:
    return assembled(rows("A", [0, 10, 20]) + rows("B", [0, 10, 20]) + rows("C", [0, 10, 20]))


@pytest.fixture(scope="module")
def listed(minutes: Minutes) -> Callable[[Failures, Records], Listed]:
    """Return `listed(failures, records)`: serial, failed, repaired (None if open), known."""

    def of(failures: Failures, records: Records) -> Listed:
        repaired = [None if r == NEVER else minutes(r)[0] for r in failures.repaired_at]
        serials = [records.serials[gpu] for gpu in failures.gpu]
        failed, known = minutes(failures.failed_at), minutes(failures.known_at)
        return list(zip(serials, failed, repaired, known, strict=True))

    return of


Listing = Callable[[Failures, Records], Listed]


def test_failure_lasts_until_next_healthy_record(
    assembled: Make, rows: Rows, listed: Listing
) -> None:
    records = assembled(
        rows("A", range(0, 70, 10), failure=[0, 1, 1, 0, 0, 1, 0])
        + rows("B", range(0, 40, 10), failure=[0, 0, 1, 1])
        + rows("C", range(0, 30, 10), failure=0)
    )
    assert listed(Failures.from_records(records), records) == [
        ("A", 10, 30, 10),
        ("A", 50, 60, 50),
        ("B", 20, None, 20),
    ]


def test_gpu_may_be_failed_from_first_record(assembled: Make, rows: Rows, listed: Listing) -> None:
    records = assembled(
        rows("A", [0, 10, 20], failure=[0, 0, 1]) + rows("B", [0, 10, 20], failure=[1, 1, 0])
    )
    assert listed(Failures.from_records(records), records) == [("A", 20, None, 20), ("B", 0, 20, 0)]


def test_filled_record_shows_no_repair(assembled: Make, rows: Rows, listed: Listing) -> None:
    records = assembled(
        rows("A", [0, 10, 30, 40], failure=[0, 1, 0, 0]) + rows("B", [0, 10, 20, 30])
    )
    assert listed(Failures.from_records(records), records) == [("A", 10, 30, 10)]


def test_gap_while_failed_is_one_failure(assembled: Make, rows: Rows, listed: Listing) -> None:
    found = rows("A", [0, 10, 500, 510], failure=[0, 1, 1, 0]) + rows("B", range(0, 90, 10))
    records = assembled(found)
    assert listed(Failures.from_records(records), records) == [("A", 10, 510, 10)]


def test_healthy_records_have_no_failure(fleet: Records) -> None:
    assert len(Failures.from_records(fleet)) == 0
    assert len(Failures.empty()) == 0
    assert len(Failures.empty().episodes()) == 0


def test_failures_are_independent_of_row_order(
    fleet: Records, at: Callable[[float], int], listed: Listing
) -> None:
    gpu = np.array([1, 0, 0, 1, 0, 0], dtype=np.int32)
    time = np.array([at(minute) for minute in (0, 20, 0, 10, 10, 30)])
    failed = np.array([False, True, False, True, True, False])
    expected = [("A", 10, 30, 10), ("B", 10, None, 10)]
    assert listed(Failures.from_rows(gpu, time, failed), fleet) == expected
    back = slice(None, None, -1)
    assert listed(Failures.from_rows(gpu[back], time[back], failed[back]), fleet) == expected


def test_later_of_simultaneous_rows_wins(
    fleet: Records, at: Callable[[float], int], listed: Listing
) -> None:
    gpu, failed = np.zeros(4, dtype=np.int32), np.array([False, True, False, True])
    time = np.array([at(0), at(10), at(10), at(20)])
    assert listed(Failures.from_rows(gpu, time, failed), fleet) == [("A", 20, None, 20)]
    twice = Failures.from_rows(gpu, time, failed[[0, 2, 1, 3]])
    assert listed(twice, fleet) == [("A", 10, None, 10)]


@given(st.lists(st.lists(st.booleans(), max_size=8), min_size=1, max_size=3))
def test_failures_match_reference_loop(
    assembled: Make, rows: Rows, listed: Listing, failed: list[list[bool]]
) -> None:
    found, expected = rows("Z", [0]), []
    for serial, flags in zip("ABC", failed, strict=False):
        found += rows(serial, [10 * i for i in range(len(flags))], failure=[int(f) for f in flags])
        since = None
        for i, flag in enumerate([*flags, None]):
            if flag and since is None:
                since = 10.0 * i
            elif not flag and since is not None:
                expected.append((serial, since, None if flag is None else 10.0 * i, since))
                since = None
    records = assembled(found)
    assert listed(Failures.from_records(records), records) == expected


def test_later_known_failures_are_excluded(
    fleet: Records, failures: Fail, at: Callable[[float], int], listed: Listing
) -> None:
    found = failures(fleet, ("A", 10), ("B", 10, None, 30), ("C", 20, None, 5))
    assert listed(found.known_before(at(10)), fleet) == [("C", 20, None, 5)]
    assert listed(found.known_before(at(30)), fleet) == [("A", 10, None, 10), ("C", 20, None, 5)]
    assert len(found.known_before(at(30) + 1)) == 3


def test_later_repair_is_excluded(
    fleet: Records, failures: Fail, at: Callable[[float], int], listed: Listing
) -> None:
    found = failures(fleet, ("A", 10, 40))
    assert listed(found.known_before(at(40)), fleet) == [("A", 10, None, 10)]
    assert listed(found.known_before(at(40) + 1), fleet) == [("A", 10, 40, 10)]


def test_end_counts_once_it_is_known(
    fleet: Records, failures: Fail, at: Callable[[float], int], listed: Listing
) -> None:
    found = failures(fleet, ("A", 10, 20, 10, 40, 90))
    early, late = found.known_before(at(40)), found.known_before(at(40) + 1)
    assert listed(early, fleet) == [("A", 10, None, 10)]
    assert listed(late, fleet) == [("A", 10, 20, 10)]
    assert (early.presumed.tolist(), late.presumed.tolist()) == ([False], [True])
    assert late.unknown_until.tolist() == [at(90)]
    assert listed(found.as_observed(), fleet) == [("A", 10, 40, 10)]


def test_cancelled_presumed_end_keeps_first_start(
    fleet: Records, failures: Fail, minutes: Minutes
) -> None:
    found = failures(
        fleet,
        *(("A", 10, 20, 10, 30, 90), ("A", 80, 85, 80, 88, 170), ("A", 100, None, 100)),
        *(("B", 10, 20, 10, 30, 90), ("B", 90, None, 90), ("C", 10, 20), ("C", 30, 40)),
    )
    assert minutes(found.since()) == [10, 10, 10, 10, 90, 10, 30]


def test_observed_failure_starts_when_known(
    fleet: Records, failures: Fail, listed: Listing
) -> None:
    found = failures(fleet, ("A", 10, 40, 20), ("B", 10), ("C", 10, 15, 30))
    assert listed(found.as_observed(), fleet) == [
        ("A", 20, 40, 20),
        ("B", 10, None, 10),
        ("C", 30, 30, 30),
    ]


def test_joined_concatenates_both_sources(fleet: Records, failures: Fail, listed: Listing) -> None:
    both = failures(fleet, ("A", 10, 20)).joined(failures(fleet, ("B", 5, None, 7)))
    assert listed(both, fleet) == [("A", 10, 20, 10), ("B", 5, None, 7)]


def test_select_keeps_the_given_rows(fleet: Records, failures: Fail, listed: Listing) -> None:
    found = failures(fleet, ("A", 10, 20), ("B", 5), ("C", 7))
    assert listed(found.select(np.array([2, 0])), fleet) == [("C", 7, None, 7), ("A", 10, 20, 10)]


def test_overlapping_failures_are_merged(fleet: Records, failures: Fail, listed: Listing) -> None:
    seen = failures(fleet, ("A", 10, 40), ("B", 10, 20))
    tickets = failures(fleet, ("A", 7, 30, 90), ("B", 15, 60, 12), ("C", 1))
    assert listed(seen.joined(tickets).episodes(), fleet) == [
        ("A", 7, 40, 10),
        ("B", 10, 60, 10),
        ("C", 1, None, 1),
    ]


def test_repaired_gpu_may_fail_again(fleet: Records, failures: Fail, listed: Listing) -> None:
    found = failures(fleet, ("A", 50, 60), ("A", 10, 20), ("A", 30))
    assert listed(found.episodes(), fleet) == [("A", 10, 20, 10), ("A", 30, None, 30)]


def test_nested_failure_does_not_end_outer_one(
    fleet: Records, failures: Fail, listed: Listing
) -> None:
    found = failures(fleet, ("A", 10, 90), ("A", 20, 30), ("A", 80, 85))
    assert listed(found.episodes(), fleet) == [("A", 10, 90, 10)]


spans = st.lists(
    st.tuples(
        st.sampled_from("AB"),
        st.integers(0, 12),
        st.integers(1, 6) | st.none(),
        st.integers(-2, 8),
    ),
    max_size=8,
)


@given(spans)
def test_episodes_cover_exactly_all_sources(
    fleet: Records, failures: Fail, listed: Listing, spans: list[Any]
) -> None:
    found = [(s, f, None if d is None else f + d, f + k) for s, f, d, k in spans]
    episodes = listed(failures(fleet, *found).episodes(), fleet)

    def down(table: Any, serial: str, moment: float) -> bool:
        return any(
            s == serial and f <= moment < (math.inf if r is None else r) for s, f, r, _ in table
        )

    for serial in "AB":
        for moment in range(30):
            assert down(episodes, serial, moment) == down(found, serial, moment)
    for before, after in pairwise(episodes):
        assert before[0] < after[0] or (before[2] is not None and before[2] < after[1])


@given(spans)
def test_episode_is_known_from_first_source(
    fleet: Records, failures: Fail, listed: Listing, spans: list[Any]
) -> None:
    found = [(s, f, None if d is None else f + d, f + k) for s, f, d, k in spans]
    for serial, failed, repaired, known in listed(failures(fleet, *found).episodes(), fleet):
        end = math.inf if repaired is None else repaired
        assert known == min(k for s, f, _, k in found if s == serial and failed <= f <= end)
