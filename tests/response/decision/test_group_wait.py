"""Length of the group wait, in minutes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.response.decision.group_wait import group_wait_ends_at
from forewarn.response.decision.situation import Situation, group_by_machine
from forewarn.response.state.finding import Finding, FindingKind, Provenance
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.response_settings import ResponseSettings

START = Nanoseconds(100 * DAY)
XID = Finding(
    source="records",
    id="1",
    kind=FindingKind.XID,
    cause="xid 119",
    machine="n0",
    at=START,
    valid_until=Nanoseconds(START + DAY),
)
NO_POLICY: Any = None


def incident(number: int, after: int, cause: str = "xid 119") -> Incident:
    at = Nanoseconds(START + after)
    finding = replace(XID, machine=f"n{number}", id=f"{number} {after}", at=at, cause=cause)
    return Incident(number, f"n{number}", None, at, findings=(finding,))


def minutes(
    *after: int,
    jobs: tuple[str, ...] = (),
    opened: int = 0,
    cause: str = "xid 119",
    vouched: Provenance = Provenance.HOST,
    **settings: Any,
) -> float:
    """Return how long n0 waits if others in its rack follow after these minutes."""
    fleet = {
        f"n{n}": Machine(f"n{n}", ServiceState.IN_SERVICE, jobs=jobs, gpus=8, rack="r0")
        for n in range(5)
    }
    first = replace(incident(0, 0, cause), opened_at=Nanoseconds(START + opened))
    others = [incident(number, value * MINUTE) for number, value in enumerate(after, start=1)]
    others = [
        replace(other, findings=tuple(replace(f, vouched=vouched) for f in other.findings))
        for other in others
    ]
    situation = Situation(
        now=Nanoseconds(START + HOUR),
        fleet=fleet,
        pools={},
        policy=NO_POLICY,
        open=group_by_machine([first, *others]),
        settings=ResponseSettings(**settings),
    )
    end = group_wait_ends_at(first.findings[0], first, situation)
    return (end - START) / MINUTE


def test_machine_without_shared_job_waits_two_minutes() -> None:
    assert minutes() == 2


def test_machine_of_large_job_waits_fifteen_minutes() -> None:
    assert minutes(jobs=("4711",)) == 15


def test_collective_timeout_replaces_group_wait() -> None:
    timeouts = {"4711": Nanoseconds(30 * MINUTE)}
    assert minutes(jobs=("4711",), job_timeouts=timeouts) == 30


def test_certain_damage_on_one_machine_waits_briefly() -> None:
    assert minutes(jobs=("4711",), cause="xid 79") == 2
    assert minutes(1, jobs=("4711",), cause="xid 79") == 15


@pytest.mark.parametrize(("after", "waited"), [((1,), 3), ((1, 10), 12), ((14, 14, 14), 15)])
def test_wait_extends_up_to_fifteen_minutes(after: tuple[int, ...], waited: int) -> None:
    assert minutes(*after) == waited


def test_shared_tokens_do_not_delay_host_findings() -> None:
    for cause in ("xid 119", "xid 79"):
        assert minutes(1, 3, cause=cause, vouched=Provenance.SHARED) == 2
        assert minutes(1, 3, cause=cause) == 5


def test_old_findings_do_not_extend_wait() -> None:
    assert minutes(-60) == 2


def test_late_finding_waits_from_arrival() -> None:
    assert minutes(opened=20 * MINUTE) == 22


def test_prediction_does_not_wait() -> None:
    finding = replace(XID, kind=FindingKind.AT_RISK, cause="at_risk")
    about = Incident(0, "n0", None, START, findings=(finding,))
    situation = Situation(now=START, fleet={}, pools={}, policy=NO_POLICY)
    assert group_wait_ends_at(finding, about, situation) == START
