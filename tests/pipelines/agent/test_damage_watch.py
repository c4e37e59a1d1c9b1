"""Looks for damage between two readings."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipelines.agent.sources.test_gpu_source_selection import FakeNvml
from tests.pipelines.agent.test_agent import FakeSource, Host, gpu

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.agent.damage_watch import RISING_DAMAGE, DamageWatch
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll, HangError, NoSourceError
from forewarn.pipelines.agent.sources.gpu_source_selection import (
    MixedSource,
    NvmlWithFallback,
    watch_source,
)
from forewarn.pipelines.agent.sources.nvidia_smi import NvidiaSmi
from forewarn.pipelines.agent.sources.nvml import Nvml
from forewarn.pipelines.agent.sources.pci_bus import PciBus
from forewarn.pipelines.config.agent_policy import CollectionPolicy

EVERY = 10 * SECOND


class Numbers(FakeSource):
    """A source whose first GPU has given values."""

    def __init__(self, **numbers: float) -> None:
        super().__init__()
        self.numbers = numbers

    def read(self, timeout: float) -> GpuPoll:
        poll = super().read(timeout)
        first, *others = poll.readings
        return GpuPoll([replace(first, numbers=self.numbers), *others], poll.lost)


@pytest.fixture
def host(tmp_path: Path) -> Any:
    host = Host(tmp_path, source=Numbers(ecc_uncorrected=1.0, pcie_link_width=16.0))
    host.agent.collection = CollectionPolicy.model_validate({"hardware_every": "10s"})
    host.agent.watched = host.source
    yield host
    host.agent.close()


def readings(host: Host) -> int:
    return sum(len(batch.get("readings", [])) for _, batch in host.spooled())


def test_healthy_watch_sends_nothing(host: Host) -> None:
    host.agent.collect()
    before = host.spooled()
    for _ in range(5):
        host.agent.watch()
    assert host.spooled() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("ecc_uncorrected", 2.0), ("pcie_link_width", 8.0)],
)
def test_damage_is_read_at_once_and_once(host: Host, name: str, value: float) -> None:
    host.agent.collect()
    host.source.numbers[name] = value
    for _ in range(3):
        host.agent.watch()
    host.agent.collect()
    assert readings(host) == 2 * 3  # the first reading, that of the damage, the last one
    assert any(f"GPU-S0: {name}" in line for line in host.said)


def test_damage_between_reading_and_watch_is_in_the_reading(host: Host) -> None:
    host.agent.watch()
    host.source.numbers["ecc_uncorrected"] = 2.0
    host.agent.collect()
    host.agent.watch()
    assert readings(host) == 2


def test_unsteady_link_is_read_once(host: Host) -> None:
    host.agent.collect()
    for lanes in (8.0, 16.0, 8.0, 16.0, 8.0):
        host.source.numbers["pcie_link_width"] = lanes
        host.agent.watch()
    assert readings(host) == 2 * 2


def test_lost_gpu_is_reported_by_the_watch(host: Host) -> None:
    host.agent.collect()
    host.source.serials = ["S0"]
    for _ in range(3):
        host.clock.time += EVERY
        host.agent.watch()
    assert host.events() == [("faults", "lost", "S1")]
    assert readings(host) == 2


def test_gpu_off_the_bus_is_read_once(host: Host, tmp_path: Path) -> None:
    host.agent.watched = None
    host.agent._bus = PciBus(tmp_path / "pci")
    for name in ("0000:10:00.0", "0000:11:00.0"):
        (tmp_path / "pci" / name).mkdir(parents=True)
    host.agent.collect()
    host.agent.watch()
    assert readings(host) == 2
    (tmp_path / "pci" / "0000:11:00.0").rmdir()
    host.source.serials = ["S0"]
    host.agent.watch()
    host.agent.watch()
    assert readings(host) == 3
    host.agent.collect()
    assert host.events() == [("faults", "lost", "S1")]


def test_requested_recovery_is_reported_by_the_watch(host: Host) -> None:
    host.agent.collect()
    host.source.actions["S1"] = "reset"
    host.agent.watch()
    host.agent.watch()
    assert host.events() == [("faults", "needs_reset", "S1")]


@pytest.mark.parametrize(
    ("trouble", "kinds"), [(NoSourceError("driver upgrade"), []), (HangError("no"), ["hang"])]
)
def test_silent_source_is_no_loss(host: Host, trouble: Exception, kinds: list[str]) -> None:
    host.agent.collect()
    host.source.trouble = trouble
    for _ in range(3):
        host.agent.watch()
    assert [kind for _, kind, _ in host.events()] == kinds


def test_watch_runs_between_readings(host: Host) -> None:
    polls: list[int] = []
    read = host.source.read

    def counted(timeout: float) -> GpuPoll:
        polls.append(host.clock.time)
        if host.clock.time >= 1_740_787_200 * SECOND + 3 * MINUTE:
            host.agent.stop.set()
        return read(timeout)  # type: ignore[no-any-return]

    host.source.read = counted
    host.agent.collect_on_schedule()
    steps = {after - before for before, after in pairwise(polls[2:])}
    assert steps == {EVERY}


def test_no_watch_without_the_setting(host: Host) -> None:
    host.agent.collection = CollectionPolicy()
    host.source.taken.clear()
    assert host.agent._watch_if_due(host.clock.now()) == 10 * MINUTE
    assert not host.source.taken


def test_only_nvml_is_polled_between_readings() -> None:
    nvml, smi = Nvml(FakeNvml()), NvidiaSmi()
    for source in (nvml, NvmlWithFallback(nvml, smi)):
        watched = watch_source(source)
        assert watched is not None
        (first, second) = watched.read(1.0).readings
        assert first.numbers.keys() == {"ecc_uncorrected", "rows_remapped", "row_remap_failure"}
        assert first.numbers.items() <= nvml.read(1.0).readings[0].numbers.items()
        assert second.pci
    assert watch_source(smi) is None
    assert watch_source(MixedSource((nvml, smi))) is None  # its other GPUs would seem lost


def test_policy_reaches_the_agent_as_json() -> None:
    policy = CollectionPolicy.model_validate({"hardware_every": "10s"})
    assert policy.hardware_every == EVERY
    assert CollectionPolicy.model_validate(policy.as_json()) == policy
    assert "hardware_every" not in CollectionPolicy().as_json()
    with pytest.raises(ValueError, match="greater than or equal"):
        CollectionPolicy.model_validate({"hardware_every": "500ms"})


@given(st.lists(st.dictionaries(st.sampled_from(RISING_DAMAGE), st.integers(0, 3)), max_size=20))
def test_every_rise_is_seen_once(polls: list[dict[str, int]]) -> None:
    watch, last = DamageWatch(), dict[str, int]()
    for numbers in polls:
        rises = sum(name in last and value > last[name] for name, value in numbers.items())
        last |= numbers
        reading = GpuReading(numbers={n: float(v) for n, v in numbers.items()}, uuid="GPU-1")
        assert len(watch.update([reading])) == rises
        assert watch.update([reading, gpu("S1")]) == []
