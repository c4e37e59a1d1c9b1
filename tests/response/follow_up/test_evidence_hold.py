"""Machines that others should not remove."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.response.decision.test_decide import NOW, XID, incident, machines, situation

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.response.decision.interlocks import Interlock
from forewarn.response.follow_up.evidence_hold import machines_to_hold
from forewarn.response.state.pool import PoolMode


def held(minutes_ago: float = 9, **changes: Any) -> set[str]:
    opened_at = Nanoseconds(int(NOW - minutes_ago * MINUTE))
    about = replace(incident(XID), opened_at=opened_at, shared=changes.pop("shared", ""))
    return machines_to_hold([about], situation(**changes))


def test_machine_is_held_for_ten_minutes() -> None:
    assert [held(minutes) for minutes in (-1, 0, 9, 10)] == [set(), {"n0"}, {"n0"}, set()]


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": PoolMode.OBSERVE},
        {"mode": PoolMode.PROPOSE},
        {"fleet": machines(labels={"forewarn": "off"})},
        {"fleet": machines(pool="unknown")},
        {"fleet": {}},
        {"shared": "rack r1"},
        {"interlocks": [Interlock("the kill switch is on", None, kill_switch=True)]},
    ],
)
def test_machine_is_not_held(changes: dict[str, Any]) -> None:
    assert held(**changes) == set()
