from __future__ import annotations

from dataclasses import replace

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.follow_up.external_drain import (
    find_external_drains,
    find_reported_problems,
)
from forewarn.response.follow_up.return_to_service import is_external_drain
from forewarn.response.state.finding import FindingKind, Severity
from forewarn.response.state.machine import Machine, ServiceState

NOW = Nanoseconds(100 * DAY + 5 * HOUR)


def test_external_drain_is_one_finding_a_day() -> None:
    drained, since = ServiceState.DRAINED, Nanoseconds(NOW - HOUR)
    machines = (
        Machine("n1", drained, "Tom: DIMM", gpus=8, reason_by="tom", reason_at=since),
        Machine("n2", drained, "forewarn:17 hot", gpus=8, reason_at=since),
        Machine("n3", ServiceState.IN_SERVICE, gpus=8),
        Machine("n4", ServiceState.DOWN, "not responding", gpus=8),
        Machine("n5", ServiceState.UNKNOWN, gpus=8),
        Machine("login", drained, "Tom: DIMM"),
    )
    first, second = find_external_drains(machines, now=NOW)
    assert (first.machine, first.kind, first.at) == ("n1", FindingKind.EXTERNAL_DRAIN, since)
    assert first.evidence == {"reason": "Tom: DIMM", "by": "tom", "state": "drained"}
    assert (second.machine, second.at) == ("n4", NOW)
    later = find_external_drains(machines, now=Nanoseconds(NOW + HOUR))
    assert [finding.id for finding in later] == [first.id, second.id]
    tomorrow = find_external_drains(machines, now=Nanoseconds(NOW + DAY))
    assert {finding.id for finding in tomorrow}.isdisjoint({first.id, second.id})


def test_reported_drain_is_not_external_drain() -> None:
    (drain,) = find_external_drains([Machine("n1", ServiceState.DRAINED, "DIMM", gpus=8)], now=NOW)
    assert is_external_drain(drain)
    assert not is_external_drain(replace(drain, source="nhc"))
    assert not is_external_drain(replace(drain, evidence={"state": ["drained"]}))


def test_reported_problem_is_one_finding_a_day() -> None:
    machine = Machine("n0", ServiceState.IN_SERVICE, gpus=8, problems={"GpuLost": "x" * 2000})
    first, again, next_day = (
        find_reported_problems([machine], now=Nanoseconds(now))
        for now in (3 * DAY, 3 * DAY + 1, 4 * DAY)
    )
    assert [finding.id for finding in first] == [finding.id for finding in again]
    assert first[0].id != next_day[0].id
    assert (first[0].severity, first[0].cause) == (Severity.WARNING, "condition GpuLost")
    assert len(first[0].evidence["message"]) == 1000
    without_gpus = replace(machine, gpus=0)
    assert find_reported_problems([without_gpus], now=Nanoseconds(0)) == []
