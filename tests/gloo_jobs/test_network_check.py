"""Tests between real machines' stand-ins: sixteen network namespaces, and PyTorch's gloo."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.gloo_jobs.namespaces import Fabric, fabric
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.pipelines.inspection.precheck import measure_all_pairs, measure_by_rack, precheck
from forewarn.pipelines.inspection.probe_pool import GroupResult, ProbePool

pytestmark = pytest.mark.gloo
SLOW, DEAD, FLAKY, LINK = 4, 6, 12, (1, 10)


@dataclass(slots=True)
class FlakyPool(ProbePool):
    """A pool in which one machine has no link in every second round."""

    machines: Fabric | None = None
    rounds: Iterator[int] = field(default_factory=itertools.count)

    def run(self, groups: Sequence[Sequence[str]], gpu: int = 0) -> list[GroupResult]:
        assert self.machines is not None
        state = "down" if next(self.rounds) % 2 else "up"
        self.machines.set_link(self.machines.hosts[FLAKY], state)
        return ProbePool.run(self, groups, gpu)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProbePool]:
    programs = torch_programs()
    if programs is None:
        pytest.fail("PyTorch is missing: run .ci/setup_torch")
    # Slow enough that the network takes most of the time, also next to other work.
    with fabric(16, leaf_rate="100mbit", spine_rate="50mbit") as machines:
        hosts = machines.hosts
        network = FlakyPool(
            hosts,
            via=["ip", "netns", "exec", "{host}"],
            python=str(Path(programs, "python")),
            interface="eth0",
            timeout=3.0,
            n_bytes=1 << 19,
            repeats=8,
            machines=machines,
        )
        with network:
            assert network.unreachable == {}
            machines.slow_host(hosts[SLOW], "12mbit")
            machines.slow_link(hosts[LINK[0]], hosts[LINK[1]], "12mbit")
            machines.set_link(hosts[DEAD], "down")
            yield network


def test_rounds_of_pairs_leave_out_the_dead_and_the_slow_machine(pool: ProbePool) -> None:
    """Two rounds need not tell a slow machine from a slow link; more do."""
    two, more = precheck(pool, rounds=2), precheck(pool, rounds=6)
    assert pool.hosts[DEAD] in two.reasons
    assert pool.hosts[SLOW] in {*two.reasons, *two.undetermined}
    assert {pool.hosts[DEAD], pool.hosts[SLOW]} <= set(more.reasons)


def test_all_pairs_name_machines_link_and_leaves(pool: ProbePool) -> None:
    verdict, _ = measure_all_pairs(pool)
    line = verdict.line()
    states = {node["node"]: node["state"] for node in line["nodes"]}
    assert states[pool.hosts[DEAD]] == "failed"
    assert states[pool.hosts[SLOW]] == "slow"
    assert states[pool.hosts[FLAKY]] != "ok"
    ends = {pool.hosts[number] for number in LINK}
    assert ends in [{link["a"], link["b"]} for link in line["links"] if link["state"] == "slow"]
    leaves = [{pool.hosts.index(node) // 8 for node in block["nodes"]} for block in line["blocks"]]
    assert len(leaves) >= 2
    assert all(len(leaf) == 1 for leaf in leaves), "a block of machines of both leaves"


def test_pairs_by_rack_name_the_same_machines_with_fewer_tests(pool: ProbePool) -> None:
    racks = {host: f"leaf-{number // 8}" for number, host in enumerate(pool.hosts)}
    verdict, results = measure_by_rack(pool, racks)
    line = verdict.line()
    states = {node["node"]: node["state"] for node in line["nodes"]}
    assert states[pool.hosts[DEAD]] == "failed"
    assert states[pool.hosts[SLOW]] == "slow"
    assert states[pool.hosts[FLAKY]] != "ok"
    blocks = [{pool.hosts.index(node) // 8 for node in block["nodes"]} for block in line["blocks"]]
    assert blocks == [{0}, {1}]
    assert len(results) < 90, "not all 120 pairs"
