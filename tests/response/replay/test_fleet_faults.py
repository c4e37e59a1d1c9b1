"""The limits on a fleet with the real faults of 400 servers."""

from __future__ import annotations

from pathlib import Path

from tests.response.fleet_faults import read_faults, used_up


def test_the_limits_are_not_used_up_by_the_faults_of_an_ordinary_day(shared_data: Path) -> None:
    figures = used_up(read_faults(shared_data / "infinitehbd" / "fault_trace.json"))
    assert figures["hours with `share` used up, before"] > 0.4
    assert figures["held back by share or rack, before"] > 0.5
    assert figures["held back now"] == 0
    assert figures["of these held back, before"] > 0.5
    assert figures["of these held back, now"] < 0.05
