"""Policy replays over a small history, and properties for any history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.response.replay.fleet_history import FleetHistory, PastFailure, PastFinding
from forewarn.response.replay.policy_replay import ReplayRules, replay
from forewarn.response.replay.replay_decision import ReplayDecision
from forewarn.response.replay.replay_metrics import (
    every_xid_baseline,
    find_blocked_drains,
    isolating_actions,
    measure_drains,
    random_baseline,
)
from forewarn.response.replay.replay_outcome import OutcomeJudge
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Outcome
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.pool import Limits, Pool, PoolMode

START = Nanoseconds(20_000 * DAY)
END = Nanoseconds(START + 10 * DAY)
POLICY = load_policy()
QUIET = 2 * MINUTE  # group wait of a machine without a shared job


def rules(**limits: Any) -> ReplayRules:
    values: dict[str, Any] = {
        "share": 0.5,
        "rack": 9,
        "cause": 99,
        "fleet_rate": 99,
        "avoided": 1.0,
    }
    values |= limits
    return ReplayRules(POLICY, {"fleet": Pool("fleet", PoolMode.ACT, limits=Limits(**values))})


def at(hours: float) -> Nanoseconds:
    return Nanoseconds(START + round(hours * HOUR))


def seen(cause: str, machine: int, hours: float, **fields: Any) -> PastFinding:
    """Return a finding about a machine's first GPU, known at once and valid for a day."""
    kind = FindingKind.XID if cause.startswith("xid") else FindingKind(cause)
    values: dict[str, Any] = {
        "source": "test",
        "id": f"{cause} {machine} {hours}",
        "cause": cause,
        "machine": f"node-{machine}",
        "gpu_serial": f"gpu-{machine}",
        "valid_until": at(hours + 24),
    }
    return PastFinding(at(hours), Finding(kind=kind, at=at(hours), **(values | fields)))


def failed(
    machine: int, hours: float, repaired: float | None = None, cause: str = ""
) -> PastFailure:
    back = None if repaired is None else at(repaired)
    name = f"node-{machine}"
    return PastFailure(name, f"gpu-{machine}", at(hours), at(hours), back, cause)


def past(*events: PastFinding | PastFailure, machines: int = 4) -> FleetHistory:
    return FleetHistory(
        findings=[event for event in events if isinstance(event, PastFinding)],
        failures=[event for event in events if isinstance(event, PastFailure)],
        machines=[
            Machine(f"node-{n}", ServiceState.IN_SERVICE, gpus=1, pool="fleet")
            for n in range(machines)
        ],
        gpus=frozenset(f"gpu-{n}" for n in range(machines)),
        start=START,
        end=END,
    )


def steps(rows: list[ReplayDecision]) -> list[tuple[float, str, str]]:
    """Return hour, machine and step of each action."""
    done = [row.taken.action for row in rows if row.taken]
    return [((a.at - START) / HOUR, a.machine, str(a.step)) for a in done]


# --- single cases ---------------------------------------------------------------------------------


def test_lone_fatal_xid_drains_after_group_wait() -> None:
    rows = replay(past(seen("xid 79", 0, 5.0)), rules())
    assert steps(rows) == [(5.0, "node-0", "avoid"), (5.0 + 2 / 60, "node-0", "restart")]
    drain = isolating_actions(rows)[0]
    assert drain.until == drain.action.at + DAY
    assert [row.blocked_by for row in rows] == [None, None]


def test_nothing_is_decided_before_finding_is_known() -> None:
    late = replace(seen("xid 79", 0, 5.0), known_at=at(9.0))
    rows = replay(past(late), rules())
    assert rows[0].decision.at == at(9.0)
    too_late = replace(seen("xid 79", 0, 5.0), known_at=at(5.0 + 24.5))
    assert steps(replay(past(too_late), rules())) == []


def test_second_machine_waits_for_first() -> None:
    events = (seen("xid 79", 0, 5.0), seen("xid 119", 1, 6.0))
    rows = replay(past(*events), rules(machines=1))
    first, second = isolating_actions(rows)
    assert (first.action.machine, second.action.machine) == ("node-0", "node-1")
    assert second.action.at == first.until
    blocked_by = [row.blocked_by for row in rows if row.blocked_by]
    assert blocked_by == ["1 of 4 machines of pool fleet is out, at most 1"]


def test_more_severe_incident_goes_first() -> None:
    events = (seen("xid 74", 0, 5.0), seen("xid 79", 1, 5.0))
    rows = replay(past(*events), rules(machines=1))
    assert isolating_actions(rows)[0].action.machine == "node-1"


def test_expired_finding_is_never_acted_on() -> None:
    events = (seen("xid 79", 0, 5.0), failed(0, 5.0, 100.0), seen("xid 119", 1, 6.0))
    world = past(*events)
    rows = replay(world, rules(machines=1))
    assert [action.action.machine for action in isolating_actions(rows)] == ["node-0"]
    (waiting,) = find_blocked_drains(rows, OutcomeJudge(world, DAY), world)
    assert (waiting.row.machine, waiting.judged.outcome) == ("node-1", Outcome.NOT_CONFIRMED)


def test_failed_machine_returns_when_repaired() -> None:
    rows = replay(past(seen("xid 79", 0, 5.0), failed(0, 5.0, 60.0)), rules())
    assert isolating_actions(rows)[0].until == at(60.0)


def test_external_drain_counts_for_limits() -> None:
    events = (failed(0, 5.0, 70.0), seen("xid 119", 1, 5.5), seen("xid 119", 2, 40.0))
    rows = replay(past(*events), rules(machines=1))
    assert [action.action.machine for action in isolating_actions(rows)] == ["node-1"]
    assert rows[-1].blocked_by == "1 of 4 machines of pool fleet is out, at most 1"
    later = replay(past(failed(0, 5.0, 60.0), seen("xid 119", 1, 6.5)), rules(machines=1))
    assert isolating_actions(later) == []


def test_finding_before_return_does_not_drain() -> None:
    world = past(failed(0, 5.0, 10.0), seen("xid 79", 0, 7.0), seen("xid 79", 0, 11.0))
    rows = replay(world, rules())
    assert [action.action.at for action in isolating_actions(rows)] == [at(11.0) + QUIET]
    assert find_blocked_drains(rows, OutcomeJudge(world, DAY), world) == []


def test_likely_prediction_drains_until_horizon() -> None:
    likely = seen("at_risk", 0, 5.0, evidence={"probability": 0.7}, valid_until=at(20.0))
    (drain,) = isolating_actions(replay(past(likely), rules()))
    assert (drain.action.at, drain.until) == (at(5.0), at(20.0))


def test_shared_event_drains_no_machine() -> None:
    events = [seen("xid 79", n, 5.0 + n / 600) for n in range(12)]
    rows = replay(past(*events, machines=40), rules())
    assert isolating_actions(rows) == []
    assert "machines" in rows[-1].decision.reason


def test_repeats_of_a_day_are_one_decision() -> None:
    storm = [seen("xid 31", 0, 5.0 + n / 100, id="the same") for n in range(500)]
    rows = replay(past(*storm), rules())
    assert len(rows) == 1
    assert rows[0].decision.step == "tell"


def test_frequent_contained_errors_are_checked() -> None:
    often = [seen("xid 94", 0, 5.0 + n) for n in range(5)]
    rows = replay(past(*often), rules())
    assert steps(rows)[-1][1:] == ("node-0", "check")


def test_addresses_identify_gpus_without_serial() -> None:
    def by_address(address: str, hours: float) -> PastFinding:
        where = {"gpu_serial": None, "evidence": {"pci": address}, "id": f"{address} {hours}"}
        return seen("xid 94", 0, hours, **where)

    two = [by_address(f"0000:{n % 2}a:00", 5.0 + n) for n in range(8)]
    assert steps(replay(past(*two), rules()))[-1][2] == "avoid"


# --- metrics --------------------------------------------------------------------------------------


def test_drain_outcome_depends_on_horizon() -> None:
    world = past(
        seen("xid 79", 0, 5.0),
        failed(0, 20.0, 30.0),  # 15 h later
        seen("xid 79", 1, 40.0),
        failed(1, 39.5, 60.0),  # half an hour before
        seen("xid 79", 2, 80.0),  # never
        seen("xid 79", 3, 239.0),  # the records end an hour later
    )
    judge = OutcomeJudge(world, DAY)
    taken = isolating_actions(replay(world, rules()))
    outcomes = [str(judge.outcome(action.findings).outcome) for action in taken]
    assert outcomes == ["confirmed", "confirmed", "not_confirmed", "unknown"]
    figures = measure_drains(taken, judge, world)
    assert (figures.drains, figures.machines, figures.at_once) == (4, 4, 1)
    assert (figures.rightly, figures.wrongly, figures.unknown) == (2, 1, 1)
    assert (figures.ahead, figures.caught) == (1, 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"failures": [failed(0, 5.0, None, "xid 79")]}, "only the same Xid shows"),
        ({"failures_known": False}, "no failures are recorded"),
        ({"gpus": frozenset()}, "the GPU has no records"),
    ],
)
def test_unknowable_outcome_is_unknown(change: dict[str, Any], why: str) -> None:
    world = replace(past(seen("xid 79", 0, 5.0)), **change)
    judged = OutcomeJudge(world, DAY).outcome([world.findings[0].finding])
    assert judged.outcome is Outcome.UNKNOWN
    assert why in judged.why


def test_xid_failure_confirms_prediction() -> None:
    world = past(seen("at_risk", 0, 5.0), failed(0, 9.0, None, "xid 79"))
    judged = OutcomeJudge(world, DAY).outcome([world.findings[0].finding])
    assert (judged.outcome, judged.failed_at) == (Outcome.CONFIRMED, at(9.0))


def test_missing_serial_needs_machine_failure() -> None:
    nameless = {"gpu_serial": None, "evidence": {"pci": "0000:1a:00"}}
    world = past(
        seen("xid 79", 0, 5.0, **nameless), seen("xid 79", 1, 5.0, **nameless), failed(1, 9.0)
    )
    judge = OutcomeJudge(world, DAY)
    outcomes = [judge.outcome([known.finding]) for known in world.findings]
    assert [o.outcome for o in outcomes] == [Outcome.UNKNOWN, Outcome.CONFIRMED]
    assert outcomes[0].why == "the serial of the GPU is unknown"


def test_every_xid_baseline_includes_application_errors() -> None:
    world = past(seen("xid 31", 0, 5.0), seen("xid 31", 0, 9.0), seen("xid 13", 1, 9.0))
    taken = every_xid_baseline(world, DAY)
    assert [(a.action.machine, a.action.at) for a in taken] == [
        ("node-0", at(5)),
        ("node-1", at(9)),
    ]
    assert measure_drains(taken, OutcomeJudge(world, DAY), world).at_once == 2


def test_random_baseline_matches_failure_rate() -> None:
    # 4 GPUs, outcomes are known for 9 of 10 days; two failures cover a day each: 2 of 36 GPU-days.
    world = past(failed(0, 100.0), failed(1, 150.0))
    expected = random_baseline(18, world, DAY, DAY)
    assert expected is not None
    assert expected.rightly == pytest.approx(18 * 2 / 36)
    assert random_baseline(18, replace(world, failures_known=False), DAY, DAY) is None


# --- properties -----------------------------------------------------------------------------------

causes = st.sampled_from(["xid 13", "xid 45", "xid 63", "xid 79", "xid 94", "xid 119", "at_risk"])
hours = st.integers(0, 230).map(float)
some_findings = st.builds(
    lambda cause, machine, hour, chance: seen(
        cause, machine, hour, evidence={"probability": chance}, id=f"{cause} {machine} {hour}"
    ),
    causes,
    st.integers(0, 3),
    hours,
    st.sampled_from([0.1, 0.8]),
)
some_failures = st.builds(
    lambda machine, hour, lasts: failed(machine, hour, None if lasts is None else hour + lasts),
    st.integers(0, 3),
    hours,
    st.sampled_from([None, 3.0, 50.0]),
)
pasts = st.lists(some_findings | some_failures, max_size=14).map(lambda events: past(*events))


def up_to(world: FleetHistory, moment: Nanoseconds) -> FleetHistory:
    """Return what was known before a moment, without later repairs."""
    failures = [f for f in world.failures if f.known_at < moment]
    return replace(
        world,
        findings=[known for known in world.findings if known.known_at < moment],
        failures=failures,
        end=Nanoseconds(moment - 1),
    )


@settings(max_examples=60)
@given(pasts, hours)
def test_future_changes_no_past_decision(world: FleetHistory, hour: float) -> None:
    moment = at(hour)
    before = [row for row in replay(world, rules(machines=1)) if row.decision.at < moment]
    alone = replay(up_to(world, moment), rules(machines=1))
    assert [row.decision for row in before] == [row.decision for row in alone]


@settings(max_examples=60)
@given(pasts, st.integers(1, 3))
def test_limit_is_never_exceeded(world: FleetHistory, most: int) -> None:
    taken = isolating_actions(replay(world, rules(machines=most)))
    assert (measure_drains(taken, OutcomeJudge(world, DAY), world).at_once or 0) <= most
    names = [(a.action.machine, a.action.at, a.until) for a in taken]
    for machine, start, end in names:
        overlapping = [n for n in names if n[0] == machine and n[1] < end and start < n[2]]
        assert len(overlapping) == 1


@settings(max_examples=40)
@given(pasts, st.randoms(use_true_random=False))
def test_order_of_history_does_not_matter(world: FleetHistory, random: Any) -> None:
    shuffled = replace(
        world,
        findings=random.sample(world.findings, len(world.findings)),
        failures=random.sample(world.failures, len(world.failures)),
    )
    expected = [
        (r.decision.at, r.machine, r.decision.step, r.blocked_by) for r in replay(world, rules())
    ]
    assert expected == [
        (r.decision.at, r.machine, r.decision.step, r.blocked_by) for r in replay(shuffled, rules())
    ]
