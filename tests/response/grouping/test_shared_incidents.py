"""Events on many machines: one shared incident, no drain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.response.example_actions import drain

from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND, Nanoseconds
from forewarn.response.grouping.shared_incidents import (
    SharedIncident,
    event_ends_at,
    first_affected_machines,
    shared_incidents,
)
from forewarn.response.state.action import ActionState
from forewarn.response.state.finding import Finding, FindingKind, Provenance
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.response_settings import ResponseSettings

START = Nanoseconds(100 * DAY)
SETTINGS = ResponseSettings()


def fleet(size: int, *, per_rack: int = 7, job: str | None = None) -> dict[str, Machine]:
    return {
        f"n{number}": Machine(
            f"n{number}",
            ServiceState.IN_SERVICE,
            jobs=(job,) if job else (),
            gpus=8,
            pool="train",
            rack=f"r{number // per_rack}",
        )
        for number in range(size)
    }


def incident(number: int, after: int, machine: str | None = None, **changes: Any) -> Incident:
    """Return an incident of machine n<number> with one finding `after` nanoseconds."""
    name = machine or f"n{number}"
    values: dict[str, Any] = {"kind": FindingKind.XID, "cause": "xid 45", **changes}
    at = Nanoseconds(START + after)
    finding = Finding(
        source="records",
        id=f"{name} {at} {values['cause']}",
        machine=name,
        at=at,
        valid_until=Nanoseconds(at + DAY),
        **values,
    )
    return Incident(number + 1, name, None, at, findings=(finding,))


def events(
    incidents: Iterable[Incident], machines: dict[str, Machine], after: int = HOUR
) -> list[SharedIncident]:
    now = Nanoseconds(START + after)
    return shared_incidents(list(incidents), machines, settings=SETTINGS, now=now)


def as_open(event: SharedIncident, parts: Iterable[Incident], number: int = 999) -> Incident:
    """Apply a shared incident as the ledger does."""
    joined = [part for part in parts if part.id in event.incidents]
    return Incident(
        number,
        event.machine,
        None,
        START,
        shared=event.shared,
        machines=event.machines,
        findings=tuple(finding for part in joined for finding in part.findings),
    )


@pytest.mark.parametrize("job", ["4711", None], ids=["its job is known", "its job is over"])
def test_crash_on_77_machines_is_one_incident(job: str | None) -> None:
    crash = [incident(number, number * SECOND) for number in range(77)]
    (event,) = events(crash, fleet(100, job=job))
    assert event.machine == "n0"
    assert event.machines == tuple(f"n{number}" for number in range(77))
    assert event.incidents == tuple(range(1, 78))
    assert event.shared == ("job 4711" if job else "cause xid 45")
    assert event.candidates == ("n0", "n1", "n2")


def test_job_in_findings_is_enough() -> None:
    crash = [incident(number, 0, job="4711") for number in range(3)]
    (event,) = events(crash, fleet(100, per_rack=1))
    assert event.shared == "job 4711"


def test_few_or_distant_findings_are_no_event() -> None:
    machines = fleet(21)
    assert events([incident(n, 0) for n in range(2)], machines) == []
    assert events([incident(n, n * 8 * MINUTE) for n in range(3)], machines) == []
    (event,) = events([incident(n, n * 7 * MINUTE) for n in range(3)], machines)
    assert event.shared == "rack r0"


def test_unrelated_machines_need_many_findings() -> None:
    machines = fleet(100, per_rack=1)
    assert events([incident(n, 0) for n in range(9)], machines) == []
    assert len(events([incident(n, 0) for n in range(10)], machines)) == 1


def test_collective_timeout_replaces_default_span() -> None:
    slow = [incident(n, n * 14 * MINUTE) for n in range(3)]
    machines = fleet(100, per_rack=1, job="4711")
    assert events(slow, machines) == []
    settings = ResponseSettings(job_timeouts={"4711": Nanoseconds(30 * MINUTE)})
    now = Nanoseconds(START + HOUR)
    (event,) = shared_incidents(slow, machines, settings=settings, now=now)
    assert event_ends_at(as_open(event, slow), settings, now) == START + 58 * MINUTE


def test_predictions_and_external_drains_are_no_event() -> None:
    machines = fleet(20, per_rack=20)
    for kind in (FindingKind.AT_RISK, FindingKind.EXTERNAL_DRAIN):
        assert events([incident(n, 0, kind=kind) for n in range(20)], machines) == []


def test_first_machine_is_named_by_clock() -> None:
    crash = [incident(0, 30 * SECOND), incident(1, 0), incident(2, 20 * SECOND)]
    (event,) = events(crash, fleet(7))
    assert event.candidates == ("n1",)
    assert event.machines == ("n1", "n2", "n0")
    assert event.why == (
        "3 machines of rack r0 at once: one event, no machine is drained for it; n1 was first"
    )


def test_clock_skew_gives_several_candidates() -> None:
    crash = [incident(0, 30 * SECOND), incident(1, 0), incident(2, 20 * SECOND)]
    skewed = ResponseSettings(skews={"n2": Nanoseconds(20 * SECOND)})
    now = Nanoseconds(START + HOUR)
    (event,) = shared_incidents(crash, fleet(7), settings=skewed, now=now)
    assert event.candidates == ("n1", "n2")
    assert event.why.endswith("clocks cannot tell which of n1, n2 was first")


def test_earlier_findings_are_not_first_of_event() -> None:
    findings = [incident(n, after).findings[0] for n, after in ((0, -HOUR), (1, 0), (2, MINUTE))]
    assert first_affected_machines(findings, "rack r0", SETTINGS) == ("n1",)


def test_later_incidents_join_open_event() -> None:
    crash = [incident(number, 0) for number in range(5)]
    (event,) = events(crash, fleet(7))
    late = incident(5, 10 * MINUTE)
    (more,) = events([as_open(event, crash), late], fleet(7))
    assert (more.into, more.incidents) == (999, (6,))
    assert more.machines == ("n0", "n1", "n2", "n3", "n4", "n5")


def test_unchanged_event_is_not_reported() -> None:
    crash = [incident(number, 0) for number in range(5)]
    (event,) = events(crash, fleet(7))
    assert events([as_open(event, crash)], fleet(7)) == []


def test_few_new_incidents_wait_many_join() -> None:
    crash = [incident(number, 0) for number in range(5)]
    (event,) = events(crash, fleet(7))
    graver = [replace(incident(n, MINUTE, cause="xid 79"), id=100 + n) for n in range(3)]
    assert events([as_open(event, crash), *graver[:2]], fleet(7)) == []
    (wave,) = events([as_open(event, crash), *graver], fleet(7))
    assert (wave.into, wave.incidents) == (999, (100, 101, 102))


def test_same_cause_joins_event() -> None:
    crash = [incident(number, 0) for number in range(5)]
    (event,) = events(crash, fleet(7))
    same = replace(incident(2, MINUTE), id=100)
    (more,) = events([as_open(event, crash), same], fleet(7))
    assert more.incidents == (100,)


def test_event_ends_after_fifteen_quiet_minutes() -> None:
    crash = [incident(number, number * MINUTE) for number in range(5)]
    (event,) = events(crash, fleet(7))
    assert event_ends_at(as_open(event, crash), SETTINGS, Nanoseconds(START + HOUR)) == (
        START + 19 * MINUTE
    )


def test_drained_machine_stays_separate() -> None:
    drained = drain(START, Nanoseconds(START + DAY), id=7, rack="r0", state=ActionState.HOLDING)
    crash = [incident(number, 0) for number in range(5)]
    crash[0] = replace(crash[0], actions=(drained,))
    (event,) = events(crash, fleet(7))
    assert event.incidents == (2, 3, 4, 5)
    assert event.machines == ("n0", "n1", "n2", "n3", "n4")


def test_shared_token_makes_no_storm() -> None:
    """The other machines have old host findings, so their incidents count as reported by hosts."""
    machines = fleet(20, per_rack=20)
    faults = [incident(0, 9 * HOUR, cause="xid 79")]
    for number in range(1, 20):
        old = incident(number, number * 20 * MINUTE, cause="xid 31")
        forged = incident(number, 9 * HOUR, cause="xid 79", vouched=Provenance.SHARED)
        faults.append(replace(old, findings=(*old.findings, *forged.findings)))
    assert events(faults, machines, after=10 * HOUR) == []


def test_shared_token_does_not_prolong_event() -> None:
    crash = [incident(number, 0) for number in range(3)]
    (event,) = events(crash, fleet(3))
    shared = as_open(event, crash)
    forged = incident(0, 50 * MINUTE, vouched=Provenance.SHARED).findings
    longer = replace(shared, findings=(*shared.findings, *forged))
    now = Nanoseconds(START + HOUR)
    assert event_ends_at(longer, SETTINGS, now) == event_ends_at(shared, SETTINGS, now)
