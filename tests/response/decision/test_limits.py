"""Limits, by numbers small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.response.example_actions import drain

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.decision.killed_jobs import find_eviction_blocker
from forewarn.response.decision.limits import Blocker, find_blocker, high_outage_alert
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.pool import Limits, Pool
from forewarn.response.state.step import DrainMode, Step

NOW = Nanoseconds(100 * DAY)
DRAIN = drain(NOW, Nanoseconds(NOW + DAY), id=0, cause="xid 119")
LOOSE = Limits(share=1.0, rack=100, job=100, cause=100, fleet_rate=100, killed_jobs=100)


def fleet(size: int, out: tuple[int, ...] = (), **changes: Any) -> list[Machine]:
    """Return machines n0, n1 and so on, some of them out of service by somebody else."""
    state = dict.fromkeys(out, ServiceState.DRAINED)
    return [
        Machine(
            f"n{number}",
            state.get(number, ServiceState.IN_SERVICE),
            reason="bad cable" if number in out else "",
            **{"gpus": 8, "pool": "train", **changes},
        )
        for number in range(size)
    ]


def ours(number: int, machine: str, **changes: Any) -> Action:
    return replace(DRAIN, id=number, machine=machine, state=ActionState.HOLDING, **changes)


def held(
    machines: list[Machine],
    *recent: Action,
    limits: Limits = LOOSE,
    certain: bool = False,
    **changes: Any,
) -> Blocker | None:
    return find_blocker(
        replace(DRAIN, **changes),
        pools={"train": Pool("train", limits=limits)},
        fleet=machines,
        recent=recent,
        now=NOW,
        certain=certain,
    )


def test_the_share_counts_our_drains_and_not_those_of_others() -> None:
    limits = replace(LOOSE, share=0.05)
    assert held(fleet(40, out=tuple(range(1, 9))), limits=limits) is None
    words = "forewarn has 2 of 40 machines of pool train out, at most 2"
    assert held(fleet(40), ours(5, "n1"), ours(6, "n2"), limits=limits) == Blocker(words, None)


@pytest.mark.parametrize("cause", ["xid 79", "xid 48", "xid 64", "xid 95", "xid 140", "lost"])
def test_certain_damage_neither_counts_for_the_share_nor_is_held_back_by_it(cause: str) -> None:
    limits = replace(LOOSE, share=0.05, rack=1)
    racks = fleet(40, rack="r7")
    certain = [ours(number, f"n{number}", cause=cause, rack="r7") for number in range(1, 9)]
    assert held(racks, *certain, limits=limits, rack="r7") is None
    reversible = [ours(number, f"n{number}", rack="r7") for number in (1, 2)]
    assert held(racks, *reversible, limits=limits, rack="r7") is not None
    assert held(racks, *reversible, limits=limits, rack="r7", certain=True) is None


def test_a_mark_without_an_action_is_ours_and_counts() -> None:
    limits = replace(LOOSE, share=0.05)
    marked = [replace(m, reason=f"forewarn:{n} lost") for n, m in enumerate(fleet(3, out=(1, 2)))]
    words = "forewarn has 2 of 40 machines of pool train out, at most 2"
    assert held([*marked, *fleet(40)[3:]], limits=limits) == Blocker(words, None)


@pytest.mark.parametrize(
    ("hours_ago", "free_in"), [(2, 22), (23, 1), (25, 0), (None, None)], ids=str
)
def test_a_mark_without_an_action_counts_for_the_rate_since_it_was_set(
    hours_ago: int | None, free_in: int | None
) -> None:
    at = None if hours_ago is None else Nanoseconds(NOW - hours_ago * HOUR)
    marked = [replace(m, reason="forewarn:9 lost", reason_at=at) for m in fleet(2, out=(0, 1))][1:]
    now_held = held([*marked, *fleet(40)[2:]], limits=replace(LOOSE, fleet_rate=1), certain=True)
    if free_in == 0:
        assert now_held is None
    else:
        assert now_held is not None
        assert now_held.until == (None if free_in is None else NOW + free_in * HOUR)


@pytest.mark.parametrize(("size", "rate"), [(1, 2), (100, 2), (299, 2), (300, 3), (4000, 40)])
def test_the_rate_of_a_fleet_is_one_percent_of_it_and_at_least_two(size: int, rate: int) -> None:
    assert Limits().max_rate(size) == rate
    assert Limits(fleet_rate=7).max_rate(size) == 7


def test_certain_damage_keeps_to_the_rate_of_the_fleet() -> None:
    limits = replace(LOOSE, fleet_rate=None)
    recent = [ours(number, f"n{number}", at=Nanoseconds(NOW - HOUR)) for number in (1, 2)]
    words = "2 machines taken out within 1 day in the whole fleet, at most 2"
    assert held(fleet(40), *recent, limits=limits, certain=True) == Blocker(
        words, Nanoseconds(NOW + 23 * HOUR)
    )


def test_the_number_holds_beside_the_share() -> None:
    limits = replace(LOOSE, machines=1)
    words = "1 of 40 machines of pool train is out, at most 1"
    assert held(fleet(40, out=(1,)), limits=limits) == Blocker(words, None)


def test_machines_without_gpus_count_neither_as_out_nor_as_size() -> None:
    limits = replace(LOOSE, share=1.0, machines=2)
    plain = [replace(machine, gpus=0) for machine in fleet(40, out=tuple(range(20, 30)))[20:]]
    machines = [*fleet(20, out=(1,)), *plain]
    assert held(machines, limits=limits) is None
    machines = [*fleet(20, out=(1, 2)), *plain]
    words = "2 of 20 machines of pool train are out, at most 2"
    assert held(machines, limits=limits) == Blocker(words, None)


def test_other_pools_do_not_count_for_a_pool() -> None:
    other = [replace(m, name=f"i{m.name}", pool="infer") for m in fleet(10, out=(1, 2, 3))]
    assert held([*fleet(10), *other], limits=replace(LOOSE, share=0.1)) is None


def test_a_small_pool_may_lose_one_while_none_is_out() -> None:
    limits = replace(LOOSE, share=0.02)
    assert held(fleet(4), limits=limits) is None
    words = "forewarn has 1 of 4 machines of pool train out, at most 1"
    assert held(fleet(4), ours(5, "n3"), limits=limits) == Blocker(words, None)


def test_a_share_of_nothing_lets_no_machine_out() -> None:
    assert held(fleet(400), limits=replace(LOOSE, share=0.0)) is not None


def test_what_is_intended_counts_before_anybody_sees_it_and_once_when_it_is_seen() -> None:
    limits = replace(LOOSE, machines=2)
    intended = replace(ours(7, "n1"), state=ActionState.INTENDED)
    assert held(fleet(40), intended, limits=limits) is None
    assert held(fleet(40, out=(2,)), intended, limits=limits) is not None
    assert held(fleet(40, out=(1,)), intended, limits=limits) is None


def test_an_action_on_a_machine_that_nobody_lists_counts() -> None:
    assert held(fleet(40), ours(7, "gone"), limits=replace(LOOSE, machines=1)) is not None


@pytest.mark.parametrize("state", [ServiceState.DOWN, ServiceState.UNKNOWN, ServiceState.DRAINING])
def test_a_machine_that_does_not_serve_is_out(state: ServiceState) -> None:
    machines = [*fleet(9), Machine("d", state, gpus=8, pool="train")]
    assert held(machines, limits=replace(LOOSE, machines=1)) is not None


def test_a_rack_counts_what_we_have_out_or_took_out_within_a_day() -> None:
    limits = replace(LOOSE, rack=1)
    racks = fleet(10, rack="r7")
    down = [replace(racks[3], state=ServiceState.DOWN), *racks[:3], *racks[4:]]
    assert held(down, rack="r7", limits=limits) is None
    out = ours(3, "n3", rack="r7", at=Nanoseconds(NOW - 2 * DAY))
    assert held(racks, out, rack="r7", limits=limits) == Blocker(
        "1 machine of rack r7 out by forewarn or taken out within 1 day, at most 1", None
    )
    back = replace(out, at=Nanoseconds(NOW - HOUR), state=ActionState.RELEASED)
    first_free = held(racks, back, rack="r7", limits=limits)
    assert first_free is not None
    assert first_free.until == NOW + 23 * HOUR
    long_ago = replace(back, at=Nanoseconds(NOW - DAY))
    assert held(racks, long_ago, rack="r7", limits=limits) is None
    assert held(racks, out, rack="r8", limits=limits) is None


def test_a_job_loses_no_more_machines_than_it_may() -> None:
    limits = replace(LOOSE, job=1)
    machines = fleet(10, jobs=("4711",))
    gone = replace(machines[1], state=ServiceState.DRAINED, jobs=())
    rest = [machines[0], gone, *machines[2:]]
    assert held(rest, limits=limits) is None
    words = "1 machine of job 4711 out now or taken out within 1 day, at most 1"
    assert held(rest, ours(7, "n1", job="4711"), limits=limits) == Blocker(words, None)


def test_a_cause_is_refilled_with_its_oldest() -> None:
    limits = replace(LOOSE, cause=2)
    recent = [ours(n, f"n{n}", at=Nanoseconds(NOW - n * HOUR)) for n in (2, 5)]
    words = "2 machines taken out within 1 day for cause xid 119, at most 2"
    assert held(fleet(40), *recent, limits=limits) == Blocker(words, Nanoseconds(NOW + 19 * HOUR))
    other = [replace(action, cause="xid 95") for action in recent]
    assert held(fleet(40), *other, limits=limits) is None


def test_the_rate_of_the_fleet_counts_all_pools_and_what_was_given_back() -> None:
    limits = replace(LOOSE, fleet_rate=2)
    recent = [
        replace(ours(5, "x", pool="infer", at=Nanoseconds(NOW - HOUR)), cause="xid 95"),
        replace(ours(6, "y", at=Nanoseconds(NOW - 2 * HOUR)), state=ActionState.RELEASED),
    ]
    words = "2 machines taken out within 1 day in the whole fleet, at most 2"
    assert held(fleet(40), *recent, limits=limits) == Blocker(words, Nanoseconds(NOW + 22 * HOUR))


@pytest.mark.parametrize("state", [ActionState.FAILED, ActionState.EXPIRED])
def test_what_never_began_counts_for_nothing(state: ActionState) -> None:
    limits = Limits(share=0.02, cause=1, fleet_rate=1)
    assert held(fleet(40), replace(ours(5, "n5"), state=state), limits=limits) is None


def test_of_several_limits_the_one_that_holds_longest_is_named() -> None:
    limits = replace(LOOSE, cause=1, machines=1)
    longest = held(fleet(40), ours(5, "n5"), limits=limits)
    assert longest == Blocker("1 of 40 machines of pool train is out, at most 1", None)


def test_a_machine_is_not_taken_out_twice() -> None:
    assert held(fleet(40), ours(5, "n0")) == Blocker("action 5 takes n0 out already", None)
    assert held(fleet(40, out=(0,))) == Blocker("n0 is out of service already", None)


def test_avoid_is_no_isolation_and_has_a_bound_of_its_own() -> None:
    limits = Limits(machines=0, avoided=0.25)
    machines = fleet(8)
    machines[1] = replace(machines[1], avoided=True)
    avoid: dict[str, Any] = {"step": Step.AVOID, "mode": None}
    assert held(machines, limits=limits, **avoid) is None
    second = ours(5, "n2", step=Step.AVOID, mode=None)
    words = "2 of 8 machines of pool train are avoided, at most 2"
    assert held(machines, second, limits=limits, **avoid) == Blocker(words, None)
    assert held(machines, second, limits=LOOSE) is None


def test_to_tell_is_held_back_by_nothing() -> None:
    nothing = Limits(machines=0, share=0.0, fleet_rate=0)
    assert held(fleet(4), limits=nothing, step=Step.TELL, mode=None) is None


def test_a_drain_now_may_end_no_more_jobs_than_allowed() -> None:
    limits = replace(LOOSE, killed_jobs=2)
    now: dict[str, Any] = {"mode": DrainMode.NOW}
    assert held(fleet(9, jobs=("a", "b")), limits=limits, **now) is None
    assert held(fleet(9), ours(5, "n5", jobs=2, **now), limits=limits, **now) is None
    words = "1 job would be ended, and 2 were within 1 day, at most 2"
    busy = fleet(9, jobs=("a",))
    assert held(busy, ours(5, "n5", jobs=2, **now), limits=limits, **now) == Blocker(words, None)
    rested = replace(ours(5, "n5", jobs=2, **now), state=ActionState.DRAINED)
    assert held(busy, rested, limits=limits, **now) == Blocker(words, Nanoseconds(NOW + DAY))
    assert held(busy, ours(5, "n5", jobs=2, **now), limits=limits) is None


def evicted(action: Action, *recent: Action, now: Nanoseconds) -> Blocker | None:
    pool = Pool("train", limits=replace(LOOSE, killed_jobs=1))
    return find_eviction_blocker(action, 1, pool=pool, recent=recent, now=now)


def test_of_two_deadlines_the_first_may_end_its_job() -> None:
    first = ours(1, "n1", mode=DrainMode.DEADLINE, jobs=1)
    second = replace(first, id=2, machine="n2", valid_until=Nanoseconds(NOW + DAY + HOUR))
    soon = Nanoseconds(NOW + DAY + 2 * HOUR)
    assert evicted(first, first, second, now=soon) is None
    assert evicted(second, first, second, now=soon) == Blocker(
        "1 job would be ended, and 1 was within 1 day, at most 1", None
    )


def test_a_drain_that_came_to_rest_before_its_deadline_ended_no_job() -> None:
    first = ours(1, "n1", mode=DrainMode.DEADLINE, jobs=1)
    rested = replace(first, state=ActionState.DRAINED, changed_at=Nanoseconds(NOW + HOUR))
    killed = replace(rested, changed_at=Nanoseconds(NOW + DAY + HOUR))
    second = replace(first, id=2, machine="n2")
    later = Nanoseconds(NOW + DAY + 2 * HOUR)
    assert evicted(second, rested, now=later) is None
    assert evicted(second, killed, now=later) is not None


def test_a_pool_without_rules_is_left_alone() -> None:
    no_rules = find_blocker(DRAIN, pools={}, fleet=fleet(3), recent=(), now=NOW)
    assert no_rules == Blocker("pool train has no rules", None)


def test_a_clock_that_jumped_back_refills_nothing() -> None:
    ahead = ours(5, "n5", at=Nanoseconds(NOW + 3 * DAY))
    assert held(fleet(40), ahead, limits=replace(LOOSE, cause=1)) is not None


def test_more_than_eight_percent_out_in_all_is_an_alert_whoever_took_them_out() -> None:
    assert high_outage_alert(fleet(100, out=tuple(range(8))), ["train"], share=0.08) == ""
    assert high_outage_alert(fleet(4, out=(1,)), ["train"], share=0.08) == ""
    assert high_outage_alert(fleet(100, out=tuple(range(9))), ["train"], share=0.08) == (
        "more than 8% of the machines of pool train are out of service, whoever took them out"
    )
    assert high_outage_alert(fleet(100, out=tuple(range(9))), ["infer"], share=0.08) == ""
