"""Tests of forged events, from the collector to the actions of the loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.time_units import MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.collector.batch_intake import JSON, BatchIntake
from forewarn.pipelines.collector.inbox import Inbox
from forewarn.pipelines.collector.publisher import Publisher
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.responder import LoopDecision, Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.runtime.clock import SystemClock
from forewarn.pipelines.serving.request_bodies import RefusedError
from forewarn.pipelines.serving.tokens import Tokens, parse_tokens
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.step import Step

START = Nanoseconds(1_772_366_400 * SECOND)  # 2026-03-01T12:00:00Z
CONFIG = """
[respond]
records = "records"
driver = "slurm"
first_day = "1ms"
fleet_rate = 10
[respond.pools.train]
mode = "act"
machines = 1
share = 0.9
rack = 9
"""
TOKENS = "site=everybody,bound:m[1-3]=rack1"


@dataclass
class SetClock(SystemClock):
    moment: Nanoseconds = START

    def now(self) -> int:
        return self.moment


@dataclass
class Site:
    """A collector, the loop behind it, and a pool that allows one machine out of service."""

    intake: BatchIntake
    publisher: Publisher
    responder: Responder
    driver: MemoryDriver
    clock: SetClock
    ledger: Ledger

    def send(self, token: str, machine: str, code: int, **more: object) -> None:
        """Send a kernel log event as an agent does."""
        at = self.clock.moment - MINUTE
        row = {"timestamp": at, "machine_id": machine, "kind": "xid", "code": code, "count": 1}
        row |= {"gpu_serial": f"GPU-{machine}", "id": f"{machine} {code} {at}"}
        speaker = Tokens.from_config(parse_tokens(TOKENS), {}).speaker(token)
        assert speaker is not None
        body = json.dumps({"events": [row | more]}).encode()
        self.intake.submit(body, JSON, speaker).result(60)
        self.publisher.publish()

    def after_group_wait(self) -> list[LoopDecision]:
        """Run the loop, wait for the group wait to pass, and run it again."""
        self.later(1)
        return self.later(20)

    def later(self, minutes: int) -> list[LoopDecision]:
        self.clock.moment = Nanoseconds(self.clock.moment + minutes * MINUTE)
        self.driver.now = self.clock.moment
        return self.responder.once()

    def drained(self) -> set[str]:
        return {name for name, machine in self.driver.machines.items() if machine.out}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    config, records = tmp_path / "my.toml", tmp_path / "records"
    config.write_text(CONFIG)
    in_service = ServiceState.IN_SERVICE
    machines = {
        f"m{n}": Machine(f"m{n}", in_service, gpus=8, pool="train", rack=f"r{n}", boot="1")
        for n in range(10)
    }
    driver, clock = MemoryDriver(machines, START), SetClock()
    inbox = Inbox(records / "_inbox")
    intake = BatchIntake(inbox, clock, Inbox(records / "_quarantine" / "too_old"))
    publisher = Publisher(inbox, Landing(records, 10 * MINUTE, clock=clock))
    intake.start()
    response = ResponseSite.from_config(config)
    with Ledger.open(response.ledger_url) as ledger:
        policy = response.policy()
        responder = Responder(response, ledger, policy, driver, clock, lambda *_: None)
        site = Site(intake, publisher, responder, driver, clock, ledger)
        site.later(1)
        site.later(5)
        yield site
    intake.stop()


def test_forged_xid_uses_no_drain_slot(site: Site) -> None:
    site.send("everybody", "m9", 79, vouched="host")  # the claim is ignored
    site.after_group_wait()
    (incident,) = site.ledger.open_incidents()
    assert incident.machine == "m9"
    assert [f.vouched for f in incident.findings] == ["shared"]
    assert site.drained() == set()
    assert not any(action.step.isolates for action in incident.actions)
    assert incident.decision is not None
    assert incident.decision.step.rank <= Step.AVOID.rank
    # The only slot of the pool is still free for a fault that a machine reports about itself.
    site.send("rack1", "m1", 79)
    site.after_group_wait()
    assert site.drained() == {"m1"}


def test_shared_token_cannot_hide_host_findings(site: Site) -> None:
    at = site.clock.moment - MINUTE
    site.send("everybody", "m2", 45, id=f"m2 79 {at}")  # the id that the genuine event will have
    site.send("rack1", "m2", 79)
    site.after_group_wait()
    assert site.drained() == {"m2"}


def test_forged_storm_does_not_inhibit_genuine_fault(site: Site) -> None:
    rack = {n: replace(m, rack="r0") for n, m in site.driver.machines.items()}
    site.driver.machines.update(rack)
    for machine in ("m5", "m6", "m7", "m8"):
        site.send("everybody", machine, 79)
    site.send("rack1", "m3", 79)
    site.after_group_wait()
    assert site.drained() == {"m3"}


def test_bound_token_reports_its_hosts_only(site: Site) -> None:
    with pytest.raises(RefusedError, match="the token of bound is not valid for m9"):
        site.send("rack1", "m9", 79)
    assert site.after_group_wait() == []


@pytest.mark.parametrize("count", [2**63 - 1, -(2**63), 0])
def test_event_counts_beyond_64_bits_are_accepted(site: Site, count: int) -> None:
    for code in (79, 48, 79):
        site.send("rack1", "m1", code, count=count)
        site.send("rack1", "m1", code, count=count, id=f"{code} again")
        site.later(1)
    site.after_group_wait()
    assert site.drained() == {"m1"}
