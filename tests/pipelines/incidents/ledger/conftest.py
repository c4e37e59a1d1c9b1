"""An empty ledger in SQLite and in PostgreSQL, and findings to put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger import Ledger
from forewarn.response.action import Action
from forewarn.response.decision import Decision, Ruling
from forewarn.response.finding import Finding, FindingKey, FindingKind, Severity
from forewarn.response.step import DrainMode, Step


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url) as ledger:
        yield ledger


# --- what to put into it --------------------------------------------------------------------------


def make_finding(key: str = "a", machine: str = "m1", at: int = 10, **fields: Any) -> Finding:
    values: dict[str, Any] = {
        "source": "records",
        "kind": FindingKind.XID,
        "cause": "xid 79",
        "valid_until": 1000,
        "severity": Severity.ERROR,
        "evidence": {"xid": 79},
    }
    return Finding(id=key, machine=machine, at=Nanoseconds(at), **(values | fields))


def make_decision(incident: int, at: int = 20, **fields: Any) -> Decision:
    values: dict[str, Any] = {
        "ruling": Ruling.PROPOSE,
        "step": Step.DRAIN,
        "mode": DrainMode.FINISH,
        "severity": Severity.ERROR,
        "reason": "xid 79 says that the GPU fell off the bus",
        "until": None,
        "valid_until": 1000,
        "findings": (FindingKey("records", "m1", "a"),),
        "policy_version": "p1",
    }
    return Decision(incident=incident, at=Nanoseconds(at), **(values | fields))


def make_action(incident: int, machine: str = "m1", at: int = 30, **fields: Any) -> Action:
    values: dict[str, Any] = {
        "pool": "train",
        "rack": "r1",
        "job": "4711",
        "cause": "xid 79",
        "step": Step.DRAIN,
        "mode": DrainMode.FINISH,
        "valid_until": 1000,
        "changed_at": at,
        "jobs": 1,
    }
    return Action(id=0, incident=incident, machine=machine, at=Nanoseconds(at), **(values | fields))


@pytest.fixture(scope="session")
def finding() -> Callable[..., Finding]:
    return make_finding


@pytest.fixture(scope="session")
def decision() -> Callable[..., Decision]:
    return make_decision


@pytest.fixture(scope="session")
def action() -> Callable[..., Action]:
    return make_action
