"""Tests of leader election with a real API server, and of the term in every write of the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.incidents.schedulers.kubernetes.conftest import Cluster

from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.config.respond_tables import RespondTable
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.leader_election import lead
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.pipelines.incidents.schedulers.kubernetes.lease import Lease
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding, FindingKind

CONFIG = """
[respond]
driver = "kubernetes"
first_day = "1ms"
[respond.pools.train]
selector = "pool=train"
mode = "act"
share = 0.5
"""
LEASE = "/apis/coordination.k8s.io/v1/namespaces/forewarn/leases/respond"
NOW = Nanoseconds(100)


def no_limit(recent: Sequence[Action]) -> None:
    del recent


@dataclass(slots=True)
class SetClock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(slots=True)
class Rival:
    """A responder with its own connection to the ledger."""

    lease: Lease
    ledger: Ledger

    def leads(self) -> bool:
        return lead(self.lease, self.ledger)

    def write(self) -> None:
        self.ledger.record_heartbeat("loop", NOW)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def rivals(kubernetes: Cluster, url: str, ledger: Ledger, clock: SetClock) -> Iterator[list[Rival]]:
    del ledger  # it creates the tables
    leases = [Lease(kubernetes.server, "forewarn/respond", who, 15, clock) for who in "ab"]
    with Ledger.open(url) as first, Ledger.open(url) as second:
        yield [Rival(leases[0], first), Rival(leases[1], second)]
    kubernetes.http.delete(LEASE)


def test_one_of_two_leads(rivals: list[Rival], clock: SetClock) -> None:
    first, second = rivals
    assert (first.leads(), second.leads()) == (True, False)
    assert second.lease.holder == "a"
    clock.seconds = 14
    assert (first.leads(), second.leads()) == (True, False)  # renewed: the wait begins again
    clock.seconds = 28
    assert (second.leads(), first.leads()) == (False, True)
    assert first.ledger.database.term == 1


def test_write_of_a_stale_leader_is_refused(
    rivals: list[Rival],
    clock: SetClock,
    finding: Callable[..., Finding],
    action: Callable[..., Action],
) -> None:
    first, second = rivals
    assert (first.leads(), second.leads()) == (True, False)
    first.ledger.record_findings([finding("1", "m1")], now=NOW)
    clock.seconds = 15  # the first one hangs in its round
    assert second.leads()
    for write in (
        first.write,
        lambda: first.ledger.record_findings([finding("2", "m2")], now=NOW),
        lambda: first.ledger.act(action(1, "m1"), no_limit),
    ):
        with pytest.raises(LedgerError, match="term 2 has taken over from term 1"):
            write()
    assert second.ledger.open_actions() == []
    assert len(second.ledger.open_incidents()) == 1
    assert not first.leads()
    first.write()  # the API of a standby still serves people


def test_terms_grow_over_a_deleted_lease(rivals: list[Rival], kubernetes: Cluster) -> None:
    first, second = rivals
    assert first.leads()
    first.write()
    kubernetes.call("DELETE", LEASE)
    assert (second.leads(), second.ledger.database.term) == (True, 2)
    with pytest.raises(LedgerError, match="term 2"):
        first.write()


def test_faster_rival_takes_the_lease(rivals: list[Rival], clock: SetClock) -> None:
    first, second = rivals
    assert first.leads()
    assert not second.leads()
    clock.seconds = 20
    server = second.lease.server

    def renew_first(request: str) -> None:
        if request.startswith("PATCH"):
            assert first.leads()

    server.before = renew_first  # type: ignore[attr-defined]
    assert not second.leads()


def test_next_leader_continues_the_drain(
    rivals: list[Rival], kubernetes: Cluster, clock: SetClock, tmp_path: Path
) -> None:
    """One leader stops between its call of the scheduler and reading back; nothing is doubled."""
    (tmp_path / "my.toml").write_text(CONFIG)
    site = ResponseSite.from_config(tmp_path / "my.toml")
    servers = [kubernetes.server, kubernetes.server]
    loops = [
        Responder(site, rival.ledger, site.policy(), replace(kubernetes.driver, server=server))
        for rival, server in zip(rivals, servers, strict=True)
    ]

    def rounds() -> list[bool]:
        led = [rival.leads() for rival in rivals]
        for loop, leads in zip(loops, led, strict=True):
            if leads:
                loop.once()
        return led

    assert rounds() == [True, False]  # the first round records the new policy
    finding = fault("node-00001")
    rivals[0].ledger.record_findings([finding], now=finding.at)
    servers[0].losses[:] = ["PATCH", "PATCH"]
    assert rounds() == [True, False]
    rivals.reverse()
    loops.reverse()
    clock.seconds = 20
    for _ in range(2):
        assert rounds() == [True, False]
    (incident,) = rivals[0].ledger.open_incidents()
    assert [action.state for action in incident.actions] == [ActionState.DRAINED]
    assert kubernetes.taints("node-00001") == [("forewarn.io/out", "1", "NoSchedule")]
    assert [m.name for m in kubernetes.driver.read().machines if m.out] == ["node-00001"]


def fault(machine: str) -> Finding:
    at = Nanoseconds(time.time_ns() - 20 * MINUTE)
    until = Nanoseconds(at + HOUR)
    return Finding("test", machine, FindingKind.XID, "xid 79", machine, at, until)


def test_missing_right_to_leases_is_named(rivals: list[Rival]) -> None:
    lease = replace(rivals[0].lease, name="default/respond")
    with pytest.raises(DriverError, match=r"lacks the right `get leases\.coordination\.k8s\.io`"):
        lease.acquire(0)


def test_lease_needs_postgresql() -> None:
    values: Any = {"kubernetes": {"lease": "forewarn/respond"}}
    with pytest.raises(ValueError, match=r"expected PostgreSQL, found 'sqlite:///ledger\.db'"):
        RespondTable(**values)
    RespondTable(**values, ledger="postgresql://forewarn@db/ledger")
