"""Repair cases, repeat offenders, and board told from chassis."""

from __future__ import annotations

import pytest

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.repair.board_or_chassis import (
    Culprit,
    GpuIncident,
    Placement,
    judge_separations,
)
from forewarn.response.repair.repair_case import (
    RepairCase,
    RepairEvent,
    RepairStage,
    repair_cases,
)
from forewarn.response.repair.repeat_offenders import offender_text, repeat_offenders

S = RepairStage


def day(number: float) -> Nanoseconds:
    return Nanoseconds(int(number * DAY))


def event(
    at: float, stage: RepairStage, machine: str = "a", incident: int = 1, **fields: str
) -> RepairEvent:
    return RepairEvent(day(at), machine, stage, incident, **fields)


def case(start: float, end: float | None = None, *more: RepairEvent, **fields: str) -> RepairCase:
    events = [event(start, S.DETECTED, incident=int(start), **fields), *more]
    if end is not None:
        events.append(event(end, S.RETURNED, incident=int(start)))
    (made,) = repair_cases(events)
    return made


def test_case_lasts_from_first_finding_to_return() -> None:
    events = [
        event(1, S.DETECTED),
        event(2, S.DRAINED),
        event(2, S.DETECTED, incident=2),
        event(5, S.RETURNED),
        event(9, S.DETECTED, incident=3),
        event(1, S.DETECTED, "b", 4),
    ]
    cases = repair_cases(reversed(events))
    assert [(c.machine, c.incidents, c.returned_at) for c in cases] == [
        ("a", (1, 2), day(5)),
        ("b", (4,), None),
        ("a", (3,), None),
    ]


def test_ages_of_stages() -> None:
    (one,) = repair_cases([event(1, S.DETECTED), event(2, S.DRAINED), event(4, S.TICKET)])
    assert one.ages(day(10)) == {S.DETECTED: DAY, S.DRAINED: 2 * DAY, S.TICKET: 6 * DAY}
    assert one.stage is S.TICKET
    assert one.missing == (S.EVIDENCE,)


def test_swap_after_failed_acceptance_is_the_last_one() -> None:
    one = case(1, None, event(2, S.SWAPPED), event(3, S.SWAPPED), event(4, S.ACCEPTED))
    assert one.stages[S.SWAPPED] == day(3)


def test_returned_without_acceptance_is_incomplete() -> None:
    one = case(1, 3, event(2, S.DRAINED))
    assert one.missing == (S.EVIDENCE, S.TICKET, S.ACCEPTED)


def test_return_of_a_machine_without_case_is_none() -> None:
    assert repair_cases([event(1, S.RETURNED)]) == []


def test_three_cases_in_28_days_are_an_offence() -> None:
    cases = [case(1), case(10), case(28)]
    # Open cases, so none is after a return; made one by one as if independent.
    (offender,) = repeat_offenders(cases, day(29))
    assert (offender.kind, offender.name, offender.cases) == ("machine", "a", (1, 10, 28))
    assert repeat_offenders(cases, day(30)) == []
    assert repeat_offenders(cases, day(27)) == []


def test_two_cases_after_a_return_are_an_offence() -> None:
    cases = [case(1, 10), case(15, 20), case(30)]
    (offender,) = repeat_offenders(cases, day(31))
    assert offender.cases == (15, 30)
    assert "after a return" in offender.why
    assert repeat_offenders([case(1, 10), case(15)], day(31)) == []


def test_incidents_of_one_outage_are_one() -> None:
    events = [event(number, S.DETECTED, incident=number) for number in (1, 2, 3, 4)]
    assert repeat_offenders(repair_cases(events), day(5)) == []


def test_swap_begins_the_count_again_for_the_machine_but_not_the_serial() -> None:
    where = {"gpu_serial": "s", "slot": "3"}
    first = [case(1, 2, **where), case(5, 6, **where)]
    swapped = case(10, 11, event(10.5, S.SWAPPED, incident=10), **where)
    offenders = repeat_offenders([*first, swapped], day(12))
    assert [(o.kind, o.name) for o in offenders] == [("serial", "s")]
    unchanged = repeat_offenders([*first, case(10, 11, **where)], day(12))
    assert {o.kind for o in unchanged} == {"machine", "serial", "slot"}


def test_offender_text_says_why() -> None:
    cases = [case(1), case(10), case(28)]
    assert offender_text("a", cases, day(29)) == "machine a: 3 independent incidents in 28 days"
    assert offender_text("b", cases, day(29)) is None


def test_swapped_board_does_not_hold_its_old_machine() -> None:
    first = [case(1, 2, gpu_serial="s"), case(5, 6, gpu_serial="s")]
    swapped = case(10, None, event(11, S.SWAPPED, incident=10), gpu_serial="s")
    assert offender_text("a", [*first, swapped], day(12)) is None
    assert offender_text("a", [*first, case(10, gpu_serial="s")], day(12)) is not None


PLACES = [
    Placement("s1", "a", "0", day(0), day(10)),
    Placement("s2", "a", "0", day(11), day(60)),
    Placement("s1", "b", "4", day(12), day(60)),
]


@pytest.mark.parametrize(
    ("later", "culprit"),
    [
        ([("b", "4")] * 3, Culprit.BOARD),
        ([("a", "0")] * 3, Culprit.CHASSIS),
        ([("b", "4"), ("a", "0")] * 2, Culprit.UNKNOWN),
        ([("b", "4")] * 2, Culprit.UNKNOWN),  # three in 60 days: 0.77 for the board
        ([], Culprit.NEITHER),
    ],
)
def test_incidents_follow_the_board_or_stay(later: list[tuple[str, str]], culprit: Culprit) -> None:
    incidents = [GpuIncident(*where, day(20 + number)) for number, where in enumerate(later)]
    (row,) = judge_separations(PLACES, [GpuIncident("a", "0", day(9)), *incidents])
    assert (row.gpu_serial, row.machine, row.slot, row.at) == ("s1", "a", "0", day(10))
    assert row.culprit is culprit


def test_slot_that_stays_quiet_tells_the_board_without_seeing_it_again() -> None:
    """The vendor keeps the board, and the slot has no further incident.

    Three incidents in ten days are those of a bad part. With 60 quiet days a bad board is
    exp((1/14 - 1/365) x 60) = 61 times as likely as a bad slot, with 40 days 16 times.
    """
    incidents = [GpuIncident("a", "0", day(at)) for at in (5, 7, 9)]
    for days, culprit in ((40, Culprit.UNKNOWN), (60, Culprit.BOARD)):
        places = [PLACES[0], Placement("s2", "a", "0", day(11), day(11 + days))]
        (row,) = judge_separations(places, incidents)
        assert row.culprit is culprit


def test_one_incident_in_a_long_time_is_the_fault_of_neither() -> None:
    places = [
        Placement("s1", "a", "0", day(0), day(200)),
        Placement("s2", "a", "0", day(200), day(201)),
    ]
    (row,) = judge_separations(places, [GpuIncident("a", "0", day(199))])
    assert row.culprit is Culprit.NEITHER


def test_board_without_incident_or_separation_is_not_judged() -> None:
    assert judge_separations(PLACES, []) == []
    assert judge_separations(PLACES[:1], [GpuIncident("a", "0", day(9))]) == []
