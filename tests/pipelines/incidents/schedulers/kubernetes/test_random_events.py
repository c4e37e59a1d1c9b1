"""Random events on a real API server: nothing is lost, doubled, or undone that was not forewarn's.

    FOREWARN_STORMS=100 .venv/bin/pytest -n 0 -k random_events tests/pipelines/incidents/schedulers

The invariants are stated in terms of what the API server shows before and after each round.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.incidents.schedulers.kubernetes.conftest import NODES, Cluster, Evictions120

from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.response.state.finding import Finding, FindingKind

pytestmark = pytest.mark.long

CONFIG = """
[respond]
driver = "kubernetes"
policy = ["policy.toml"]
first_day = "1ms"
overrides = 1000
fleet_rate = 1000
[respond.pools.train]
selector = "pool=train"
mode = "act"
machines = {most}
share = 0.5
rack = 4
cause = 1000
killed_jobs = 1000
"""
POLICY = '[kinds.at_risk]\nlikely = { probability = 0.3, step = "drain" }\n'
MOST_OUT = 5
OPTED_OUT = NODES[15]
CORDON_OWNER = "tom"


@dataclass
class Storm:
    """One simulated period; `cordons` and `taints` are what others have set and not removed."""

    cluster: Cluster
    server: Evictions120
    responder: Responder
    ledger: Ledger
    chance: random.Random
    cordons: set[str] = field(default_factory=set)
    taints: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def node(self) -> str:
        return self.chance.choice(NODES)

    # --- events -----------------------------------------------------------------------------------

    def report(self) -> None:
        self.number += 1
        name, at = self.node(), Nanoseconds(time.time_ns() - 20 * MINUTE)
        cause = self.chance.choice(["xid 79", "at_risk", "xid 95", "xid 13"])
        kind = FindingKind.AT_RISK if cause == "at_risk" else FindingKind.XID
        until = Nanoseconds(at + HOUR)
        evidence = {"probability": 0.4}
        finding = Finding("test", str(self.number), kind, cause, name, at, until, evidence=evidence)
        self.ledger.record_findings([finding], now=at)

    def cordon(self) -> None:
        if not self.cluster.cordoned(name := self.node()):
            self.cluster.cordon(name, who=CORDON_OWNER)
            self.cordons.add(name)

    def uncordon(self) -> None:
        """Return what a person has taken out, or what forewarn has."""
        self.cluster.cordon(name := self.node(), on=False, who=CORDON_OWNER)
        self.cordons.discard(name)

    def remove_mark(self) -> None:
        name = self.node()
        left = [t for t in self.cluster.taints(name) if not t[0].startswith("forewarn")]
        self.cluster.set_taints(name, *left)

    def taint(self) -> None:
        name = self.node()
        key = self.chance.choice(["sku", "acme.io/quarantine"])
        item = (key, "x", "NoSchedule")
        others = [taint for taint in self.cluster.taints(name) if taint != item]
        self.cluster.set_taints(name, *others, item)
        self.taints.setdefault(name, set()).add(item)

    def upgrade(self) -> None:
        """Replace the driver of a node as the GPU Operator does, with rounds in between."""
        name = self.node()
        self.cluster.label(name, upgrade="drain-required")
        self.round()
        self.cluster.cordon(name, on=False, who="gpu-operator")
        self.cordons.discard(name)
        self.cluster.label(name, upgrade="upgrade-done")

    def replace_node(self) -> None:
        name = self.node()
        self.cluster.call("DELETE", f"/api/v1/nodes/{name}")
        self.cordons.discard(name)
        self.taints.pop(name, None)
        self.round()
        self.cluster.create_node(name, NODES.index(name))

    def run_pod(self) -> None:
        self.number += 1
        owner = self.chance.choice([("Job", "a"), ("DaemonSet", "d"), ("JobSet", "b")])
        self.cluster.run_pod(f"pod-{self.number}", self.node(), owner=owner)

    def lose_answers(self) -> None:
        self.server.losses[:] = self.chance.choices(["PATCH", "POST", "GET"], k=3)

    def undo(self) -> None:
        incidents = self.ledger.open_incidents()
        if incidents:
            self.undo_incident(self.chance.choice(incidents).id)

    def undo_incident(self, number: int) -> None:
        Operator(self.ledger, "ann", Nanoseconds(time.time_ns()), "storm").undo(number)

    # --- rounds -----------------------------------------------------------------------------------

    def round(self) -> None:
        daemons = set(self.daemons())
        with suppress(DriverError):
            self.responder.once()
        assert set(self.daemons()) == daemons
        self.check()

    def daemons(self) -> list[str]:
        pods = self.cluster.call("GET", "/api/v1/pods")["items"]
        return [
            pod["metadata"]["name"]
            for pod in pods
            if pod["metadata"].get("ownerReferences", [{}])[0].get("kind") == "DaemonSet"
        ]

    def check(self) -> None:
        nodes = self.cluster.call("GET", "/api/v1/nodes")["items"]
        marked = set()
        for node in nodes:
            name, spec = node["metadata"]["name"], node["spec"]
            taints = {(t["key"], t.get("value", ""), t["effect"]) for t in spec.get("taints", [])}
            marks = [key for key, _, _ in taints if key.startswith("forewarn")]
            assert len(marks) == len(set(marks))
            assert taints >= self.taints.get(name, set()), f"{name}: a taint of others is gone"
            if name in self.cordons:
                assert spec.get("unschedulable"), f"{name}: a cordon of others is gone"
            if "forewarn.io/out" in marks:
                marked.add(name)
        assert OPTED_OUT not in marked
        assert len(marked) <= MOST_OUT

    def end(self) -> None:
        """Undo everything; only what others have set is left."""
        self.server.losses.clear()
        for incident in self.ledger.open_incidents():
            self.undo_incident(incident.id)
        for _ in range(3):
            self.round()
        for node in self.cluster.call("GET", "/api/v1/nodes")["items"]:
            name = node["metadata"]["name"]
            keys = [taint["key"] for taint in node["spec"].get("taints", [])]
            assert not any(key.startswith("forewarn") for key in keys), name
            risk = [c for c in node["status"]["conditions"] if c["type"] == "GPUAtRisk"]
            assert [c["status"] for c in risk] in ([], ["False"]), name
        states = {a.state for i in self.ledger.incidents() for a in i.actions if a.open}
        assert states == set()


@pytest.fixture
def storms(kubernetes: Cluster, tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "my.toml").write_text(CONFIG.format(most=MOST_OUT))
    site = ResponseSite.from_config(tmp_path / "my.toml")
    ledgers = []

    def begin(seed: int) -> Storm:
        server = kubernetes.server
        driver = replace(kubernetes.driver, server=server)
        ledger = Ledger.open(f"sqlite:///{tmp_path}/{seed}.db")
        ledgers.append(ledger)
        responder = Responder(site, ledger, site.policy(), driver, warn=lambda *_: None)
        return Storm(kubernetes, server, responder, ledger, random.Random(seed))

    yield begin
    for ledger in ledgers:
        ledger.close()


@pytest.mark.parametrize("seed", range(int(os.environ.get("FOREWARN_STORMS", "2"))))
def test_random_events_break_no_invariant(storms: Any, seed: int) -> None:
    storm = storms(seed)
    storm.round()
    events = [storm.report] * 4 + [
        *(storm.cordon, storm.uncordon, storm.remove_mark, storm.taint, storm.upgrade),
        *(storm.replace_node, storm.run_pod, storm.lose_answers, storm.undo),
    ]
    for _ in range(40):
        storm.chance.choice(events)()
        if storm.chance.random() < 0.6:
            storm.round()
    storm.end()
