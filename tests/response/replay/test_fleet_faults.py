"""Limits on a fleet with the real faults of 400 servers."""

from __future__ import annotations

from pathlib import Path

from tests.response.fleet_faults import read_faults, used_up


def test_ordinary_faults_do_not_exhaust_limits(shared_data: Path) -> None:
    figures = used_up(read_faults(shared_data / "infinitehbd" / "fault_trace.json"))
    assert figures["hours with `share` used up, before"] > 0.4
    assert figures["blocked by share or rack, before"] > 0.5
    assert figures["blocked now"] == 0
    assert figures["of these blocked, before"] > 0.5
    assert figures["of these blocked, now"] < 0.05
