from __future__ import annotations

from forewarn.features.telemetry.silent_sensors import SilentSensorMonitor


def feed(*readings: dict[str, float]) -> list[list[str]]:
    watch = SilentSensorMonitor()
    return [watch.update("S1", numbers) for numbers in readings]


def test_silent_sensor_is_reported_once() -> None:
    both, one = {"power_draw": 1.0, "clock_sm": 2.0}, {"power_draw": 1.0}
    assert feed(both, one, one, both, one) == [
        [],
        ["clock_sm is absent"],
        [],
        [],
        ["clock_sm is absent"],
    ]


def test_never_reporting_sensor_is_ignored() -> None:
    assert feed({"power_draw": 1.0}, {"power_draw": 2.0}) == [[], []]


def test_frozen_needs_a_changing_sensor() -> None:
    moving = [{"temperature_gpu": 40.0 + i % 4, "power_draw": 100.0} for i in range(14)]
    found = feed(*moving)
    assert found[:11] == [[]] * 11
    assert found[11:] == [["power_draw is frozen"], [], []]
    still = [{"temperature_gpu": 40.0, "power_draw": 100.0}] * 20
    assert feed(*still) == [[]] * 20


def test_gpus_are_monitored_separately() -> None:
    watch = SilentSensorMonitor()
    watch.update("S1", {"power_draw": 1.0})
    assert watch.update("S2", {}) == []
