"""Limits, with numbers small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    """Return machines n0, n1 and so on, some of them drained externally."""
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
    changes = {"state": ActionState.HOLDING} | changes
    return replace(DRAIN, id=number, machine=machine, **changes)


def blocked_by(
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


def test_share_ignores_external_drains() -> None:
    limits = replace(LOOSE, share=0.05)
    assert blocked_by(fleet(40, out=tuple(range(1, 9))), limits=limits) is None
    words = "forewarn has 2 of 40 machines of pool train out, at most 2"
    assert blocked_by(fleet(40), ours(5, "n1"), ours(6, "n2"), limits=limits) == Blocker(
        words, None
    )


@pytest.mark.parametrize("cause", ["xid 79", "xid 48", "xid 64", "xid 95", "xid 140", "lost"])
def test_certain_damage_is_exempt_from_share(cause: str) -> None:
    limits = replace(LOOSE, share=0.05, rack=1)
    racks = fleet(40, rack="r7")
    certain = [ours(number, f"n{number}", cause=cause, rack="r7") for number in range(1, 9)]
    assert blocked_by(racks, *certain, limits=limits, rack="r7") is None
    reversible = [ours(number, f"n{number}", rack="r7") for number in (1, 2)]
    assert blocked_by(racks, *reversible, limits=limits, rack="r7") is not None
    assert blocked_by(racks, *reversible, limits=limits, rack="r7", certain=True) is None


def test_unknown_mark_counts_as_drain() -> None:
    limits = replace(LOOSE, share=0.05)
    marked = [replace(m, reason=f"forewarn:{n} lost") for n, m in enumerate(fleet(3, out=(1, 2)))]
    words = "forewarn has 2 of 40 machines of pool train out, at most 2"
    assert blocked_by([*marked, *fleet(40)[3:]], limits=limits) == Blocker(words, None)


@pytest.mark.parametrize(
    ("hours_ago", "free_in"), [(2, 22), (23, 1), (25, 0), (None, None)], ids=str
)
def test_unknown_mark_counts_for_rate(hours_ago: int | None, free_in: int | None) -> None:
    at = None if hours_ago is None else Nanoseconds(NOW - hours_ago * HOUR)
    marked = [replace(m, reason="forewarn:9 lost", reason_at=at) for m in fleet(2, out=(0, 1))][1:]
    now_held = blocked_by(
        [*marked, *fleet(40)[2:]], limits=replace(LOOSE, fleet_rate=1), certain=True
    )
    if free_in == 0:
        assert now_held is None
    else:
        assert now_held is not None
        assert now_held.until == (None if free_in is None else NOW + free_in * HOUR)


@pytest.mark.parametrize(("size", "rate"), [(1, 2), (100, 2), (299, 2), (300, 3), (4000, 40)])
def test_default_fleet_rate_is_one_percent(size: int, rate: int) -> None:
    assert Limits().max_rate(size) == rate
    assert Limits(fleet_rate=7).max_rate(size) == 7


def test_certain_damage_respects_fleet_rate() -> None:
    limits = replace(LOOSE, fleet_rate=None)
    recent = [ours(number, f"n{number}", at=Nanoseconds(NOW - HOUR)) for number in (1, 2)]
    words = "2 machines drained within 1 day in the whole fleet, at most 2"
    assert blocked_by(fleet(40), *recent, limits=limits, certain=True) == Blocker(
        words, Nanoseconds(NOW + 23 * HOUR)
    )


def test_predictions_use_half_of_fleet_rate() -> None:
    limits = replace(LOOSE, fleet_rate=5)
    at = Nanoseconds(NOW - HOUR)
    recent = [ours(1, "n1", cause="at_risk", at=at), ours(2, "n2", cause="at_risk by ml", at=at)]
    words = "2 machines drained within 1 day for predictions in the whole fleet, at most 2"
    blocker = Blocker(words, Nanoseconds(NOW + 23 * HOUR))
    assert blocked_by(fleet(40), *recent, limits=limits, cause="at_risk by other") == blocker
    assert blocked_by(fleet(40), *recent, limits=limits, cause="at_risk", certain=True) is None
    assert blocked_by(fleet(40), *recent, limits=limits) is None
    assert blocked_by(fleet(40), recent[0], limits=limits, cause="at_risk") is None


@given(
    rate=st.integers(0, 6) | st.none(),
    requests=st.lists(st.sampled_from(["at_risk", "at_risk by ml", "xid 119", "xid 79"])),
    first=st.integers(0, 12),
)
def test_predictions_never_block_certain_damage(
    rate: int | None, requests: list[str], first: int
) -> None:
    """Predictions come first, then any evidence; `fleet_rate` is 2 by default."""
    limits, bound = replace(LOOSE, fleet_rate=rate), 2 if rate is None else rate
    machines, actions = fleet(40), list[Action]()
    for number, cause in enumerate(["at_risk"] * first + requests, 1):
        certain = cause == "xid 79"
        request: dict[str, Any] = {"cause": cause, "machine": f"n{number % 40}"}
        blocker = blocked_by(machines, *actions, limits=limits, certain=certain, **request)
        others = sum(not action.cause.startswith("at_risk") for action in actions)
        if certain and others < bound - bound // 2:
            assert blocker is None
        if blocker is None:
            ended = {"state": ActionState.RELEASED, "cause": cause}
            actions.append(ours(number, f"n{number % 40}", **ended))
        assert len(actions) <= bound


def test_machine_count_applies_besides_share() -> None:
    limits = replace(LOOSE, machines=1)
    words = "1 of 40 machines of pool train is out, at most 1"
    assert blocked_by(fleet(40, out=(1,)), limits=limits) == Blocker(words, None)


def test_machines_without_gpus_do_not_count() -> None:
    limits = replace(LOOSE, share=1.0, machines=2)
    plain = [replace(machine, gpus=0) for machine in fleet(40, out=tuple(range(20, 30)))[20:]]
    machines = [*fleet(20, out=(1,)), *plain]
    assert blocked_by(machines, limits=limits) is None
    machines = [*fleet(20, out=(1, 2)), *plain]
    words = "2 of 20 machines of pool train are out, at most 2"
    assert blocked_by(machines, limits=limits) == Blocker(words, None)


def test_other_pools_do_not_count() -> None:
    other = [replace(m, name=f"i{m.name}", pool="infer") for m in fleet(10, out=(1, 2, 3))]
    assert blocked_by([*fleet(10), *other], limits=replace(LOOSE, share=0.1)) is None


def test_small_pool_may_lose_one_machine() -> None:
    limits = replace(LOOSE, share=0.02)
    assert blocked_by(fleet(4), limits=limits) is None
    words = "forewarn has 1 of 4 machines of pool train out, at most 1"
    assert blocked_by(fleet(4), ours(5, "n3"), limits=limits) == Blocker(words, None)


def test_zero_share_allows_no_drain() -> None:
    assert blocked_by(fleet(400), limits=replace(LOOSE, share=0.0)) is not None


def test_intended_action_counts_once() -> None:
    limits = replace(LOOSE, machines=2)
    intended = replace(ours(7, "n1"), state=ActionState.INTENDED)
    assert blocked_by(fleet(40), intended, limits=limits) is None
    assert blocked_by(fleet(40, out=(2,)), intended, limits=limits) is not None
    assert blocked_by(fleet(40, out=(1,)), intended, limits=limits) is None


def test_action_on_unlisted_machine_counts() -> None:
    assert blocked_by(fleet(40), ours(7, "gone"), limits=replace(LOOSE, machines=1)) is not None


@pytest.mark.parametrize("state", [ServiceState.DOWN, ServiceState.UNKNOWN, ServiceState.DRAINING])
def test_machine_in_any_other_state_is_out(state: ServiceState) -> None:
    machines = [*fleet(9), Machine("d", state, gpus=8, pool="train")]
    assert blocked_by(machines, limits=replace(LOOSE, machines=1)) is not None


def test_rack_counts_current_and_recent_drains() -> None:
    limits = replace(LOOSE, rack=1)
    racks = fleet(10, rack="r7")
    down = [replace(racks[3], state=ServiceState.DOWN), *racks[:3], *racks[4:]]
    assert blocked_by(down, rack="r7", limits=limits) is None
    out = ours(3, "n3", rack="r7", at=Nanoseconds(NOW - 2 * DAY))
    assert blocked_by(racks, out, rack="r7", limits=limits) == Blocker(
        "1 machine of rack r7 out by forewarn or drained within 1 day, at most 1", None
    )
    back = replace(out, at=Nanoseconds(NOW - HOUR), state=ActionState.RELEASED)
    first_free = blocked_by(racks, back, rack="r7", limits=limits)
    assert first_free is not None
    assert first_free.until == NOW + 23 * HOUR
    long_ago = replace(back, at=Nanoseconds(NOW - DAY))
    assert blocked_by(racks, long_ago, rack="r7", limits=limits) is None
    assert blocked_by(racks, out, rack="r8", limits=limits) is None


def test_job_limit_counts_its_machines() -> None:
    limits = replace(LOOSE, job=1)
    machines = fleet(10, jobs=("4711",))
    gone = replace(machines[1], state=ServiceState.DRAINED, jobs=())
    rest = [machines[0], gone, *machines[2:]]
    assert blocked_by(rest, limits=limits) is None
    words = "1 machine of job 4711 out now or drained within 1 day, at most 1"
    assert blocked_by(rest, ours(7, "n1", job="4711"), limits=limits) == Blocker(words, None)


def test_oldest_action_refills_cause_limit() -> None:
    limits = replace(LOOSE, cause=2)
    recent = [ours(n, f"n{n}", at=Nanoseconds(NOW - n * HOUR)) for n in (2, 5)]
    words = "2 machines drained within 1 day for cause xid 119, at most 2"
    assert blocked_by(fleet(40), *recent, limits=limits) == Blocker(
        words, Nanoseconds(NOW + 19 * HOUR)
    )
    other = [replace(action, cause="xid 95") for action in recent]
    assert blocked_by(fleet(40), *other, limits=limits) is None


def test_fleet_rate_counts_all_pools_and_returns() -> None:
    limits = replace(LOOSE, fleet_rate=2)
    recent = [
        replace(ours(5, "x", pool="infer", at=Nanoseconds(NOW - HOUR)), cause="xid 95"),
        replace(ours(6, "y", at=Nanoseconds(NOW - 2 * HOUR)), state=ActionState.RELEASED),
    ]
    words = "2 machines drained within 1 day in the whole fleet, at most 2"
    assert blocked_by(fleet(40), *recent, limits=limits) == Blocker(
        words, Nanoseconds(NOW + 22 * HOUR)
    )


@pytest.mark.parametrize("state", [ActionState.FAILED, ActionState.EXPIRED])
def test_unstarted_action_does_not_count(state: ActionState) -> None:
    limits = Limits(share=0.02, cause=1, fleet_rate=1)
    assert blocked_by(fleet(40), replace(ours(5, "n5"), state=state), limits=limits) is None


def test_longest_limit_is_reported() -> None:
    limits = replace(LOOSE, cause=1, machines=1)
    longest = blocked_by(fleet(40), ours(5, "n5"), limits=limits)
    assert longest == Blocker("1 of 40 machines of pool train is out, at most 1", None)


def test_machine_is_not_drained_twice() -> None:
    assert blocked_by(fleet(40), ours(5, "n0")) == Blocker("action 5 already drains n0", None)
    assert blocked_by(fleet(40, out=(0,))) == Blocker("n0 is out of service already", None)


def test_avoid_has_its_own_limit() -> None:
    limits = Limits(machines=0, avoided=0.25)
    machines = fleet(8)
    machines[1] = replace(machines[1], avoided=True)
    avoid: dict[str, Any] = {"step": Step.AVOID, "mode": None}
    assert blocked_by(machines, limits=limits, **avoid) is None
    second = ours(5, "n2", step=Step.AVOID, mode=None)
    words = "2 of 8 machines of pool train are avoided, at most 2"
    assert blocked_by(machines, second, limits=limits, **avoid) == Blocker(words, None)
    assert blocked_by(machines, second, limits=LOOSE) is None


def test_tell_has_no_limit() -> None:
    nothing = Limits(machines=0, share=0.0, fleet_rate=0)
    assert blocked_by(fleet(4), limits=nothing, step=Step.TELL, mode=None) is None


@pytest.mark.parametrize("mode", [DrainMode.NOW, DrainMode.MOVED])
def test_drain_now_is_limited_by_killed_jobs(mode: DrainMode) -> None:
    limits = replace(LOOSE, killed_jobs=2)
    now: dict[str, Any] = {"mode": mode}
    assert blocked_by(fleet(9, jobs=("a", "b")), limits=limits, **now) is None
    assert blocked_by(fleet(9), ours(5, "n5", jobs=2, **now), limits=limits, **now) is None
    words = "1 job would be ended, and 2 were within 1 day, at most 2"
    busy = fleet(9, jobs=("a",))
    assert blocked_by(busy, ours(5, "n5", jobs=2, **now), limits=limits, **now) == Blocker(
        words, None
    )
    rested = replace(ours(5, "n5", jobs=2, **now), state=ActionState.DRAINED)
    assert blocked_by(busy, rested, limits=limits, **now) == Blocker(words, Nanoseconds(NOW + DAY))
    assert blocked_by(busy, ours(5, "n5", jobs=2, **now), limits=limits) is None


def evicted(action: Action, *recent: Action, now: Nanoseconds) -> Blocker | None:
    pool = Pool("train", limits=replace(LOOSE, killed_jobs=1))
    return find_eviction_blocker(action, 1, pool=pool, recent=recent, now=now)


def test_earliest_deadline_ends_its_jobs_first() -> None:
    first = ours(1, "n1", mode=DrainMode.DEADLINE, jobs=1)
    second = replace(first, id=2, machine="n2", valid_until=Nanoseconds(NOW + DAY + HOUR))
    soon = Nanoseconds(NOW + DAY + 2 * HOUR)
    assert evicted(first, first, second, now=soon) is None
    assert evicted(second, first, second, now=soon) == Blocker(
        "1 job would be ended, and 1 was within 1 day, at most 1", None
    )


def test_drain_before_deadline_killed_no_job() -> None:
    first = ours(1, "n1", mode=DrainMode.DEADLINE, jobs=1)
    rested = replace(first, state=ActionState.DRAINED, changed_at=Nanoseconds(NOW + HOUR))
    killed = replace(rested, changed_at=Nanoseconds(NOW + DAY + HOUR))
    second = replace(first, id=2, machine="n2")
    later = Nanoseconds(NOW + DAY + 2 * HOUR)
    assert evicted(second, rested, now=later) is None
    assert evicted(second, killed, now=later) is not None


def test_pool_without_rules_is_blocked() -> None:
    no_rules = find_blocker(DRAIN, pools={}, fleet=fleet(3), recent=(), now=NOW)
    assert no_rules == Blocker("pool train has no rules", None)


def test_clock_set_back_refills_nothing() -> None:
    ahead = ours(5, "n5", at=Nanoseconds(NOW + 3 * DAY))
    assert blocked_by(fleet(40), ahead, limits=replace(LOOSE, cause=1)) is not None


def test_high_outage_share_raises_alert() -> None:
    assert high_outage_alert(fleet(100, out=tuple(range(8))), ["train"], share=0.08) == ""
    assert high_outage_alert(fleet(4, out=(1,)), ["train"], share=0.08) == ""
    assert high_outage_alert(fleet(100, out=tuple(range(9))), ["train"], share=0.08) == (
        "more than 8% of the machines of pool train are out of service, for any reason"
    )
    assert high_outage_alert(fleet(100, out=tuple(range(9))), ["infer"], share=0.08) == ""


def test_drained_gpu_counts_as_its_machine() -> None:
    machines = fleet(10)
    machines[1] = replace(machines[1], device_actions={1: ()})
    other = ours(1, "n1", gpu_serial="a")
    limits = replace(LOOSE, machines=1)
    assert blocked_by(machines, other, limits=limits) is not None
    for serial, expected in (("a", True), ("b", False), (None, False)):  # the same machine
        blocker = blocked_by(machines, other, limits=limits, machine="n1", gpu_serial=serial)
        assert (blocker is not None) is expected
    unexplained = blocked_by(machines, limits=limits)  # after the loss of the ledger
    assert unexplained is not None
    assert high_outage_alert(machines[:2], ["train"], share=0.1) == ""
    machines[2] = replace(machines[2], device_actions={2: ()})
    assert "more than 10%" in high_outage_alert(machines, ["train"], share=0.1)
