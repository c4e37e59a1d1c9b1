from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.models.diagnosis.nodes.pair_matrix import PairTest, build_matrix
from forewarn.models.diagnosis.nodes.pair_table import PairVerdict, evaluate_pairs

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=20, deadline=None)  # a fit takes milliseconds
factors = st.floats(0.3, 0.75)


@dataclass(frozen=True)
class Fabric:
    """Planted structure of nodes 0, 1, and so on; a pair has the speed of its slower node."""

    count: int
    slow: dict[int, float] = field(default_factory=dict)
    links: dict[frozenset[int], float] = field(default_factory=dict)
    failed: frozenset[int] = frozenset()
    leaves: tuple[frozenset[int], ...] = ()
    gap: float = 1.0
    noise: float = 0.01
    missing: float = 0.0
    partners: frozenset[int] = frozenset()

    def tests(self, seed: int) -> list[PairTest]:
        rng = np.random.default_rng(seed)
        return [
            PairTest(str(a), str(b), self._value(a, b, rng))
            for a in range(self.count)
            for b in range(a + 1, self.count)
            if rng.random() >= self.missing
        ]

    def _value(self, a: int, b: int, rng: np.random.Generator) -> float | None:
        if {a, b} & self.failed:
            return None
        is_fast = bool({a, b} & self.partners)
        value = 1.0 if is_fast else min(self.slow.get(a, 1.0), self.slow.get(b, 1.0))
        if any((a in leaf) != (b in leaf) for leaf in self.leaves):
            value *= self.gap
        value *= self.links.get(frozenset((a, b)), 1.0)
        return 45.0 * value * float(np.exp(self.noise * rng.standard_normal()))


def verdict_on(fabric: Fabric, seed: int) -> PairVerdict:
    return evaluate_pairs([str(node) for node in range(fabric.count)], fabric.tests(seed))


def nodes_in(result: PairVerdict, *states: str) -> set[int]:
    return {int(node.node) for node in result.nodes if node.state in states}


def links_in(result: PairVerdict) -> set[frozenset[int]]:
    return {frozenset((int(link.a), int(link.b))) for link in result.links}


def blocks_in(result: PairVerdict) -> set[frozenset[int]]:
    return {frozenset(map(int, block.nodes)) for block in result.blocks}


def leaves_of(*sizes: int) -> tuple[frozenset[int], ...]:
    ends = np.cumsum((0, *sizes))
    return tuple(frozenset(range(a, b)) for a, b in pairwise(ends))


@few
@given(st.integers(4, 20), seeds)
def test_healthy_table_blames_nothing(count: int, seed: int) -> None:
    result = verdict_on(Fabric(count), seed)
    assert nodes_in(result, "ok") == set(range(count))
    assert not result.links + result.blocks


@few
@given(st.integers(4, 20), seeds)
def test_noise_blames_no_node(count: int, seed: int) -> None:
    result = verdict_on(Fabric(count, noise=0.05), seed)
    assert not nodes_in(result, "slow", "failed")
    assert not result.blocks


@few
@given(st.integers(4, 20), factors, seeds)
def test_slow_node_is_found(count: int, factor: float, seed: int) -> None:
    result = verdict_on(Fabric(count, slow={1: factor}), seed)
    assert nodes_in(result, "slow") == {1}
    node = result.nodes[1]
    assert node.factor == pytest.approx(factor, rel=0.05)
    assert node.factor is not None
    assert node.interval is not None
    assert node.interval[0] <= node.factor <= node.interval[1]
    assert not result.links + result.blocks


@few
@given(st.integers(12, 17), factors, seeds)
def test_fast_partners_do_not_acquit(count: int, factor: float, seed: int) -> None:
    """As on a real table: slow with 11 of 15 partners."""
    partners = frozenset(range(2, 2 + (count - 1) // 4))
    result = verdict_on(Fabric(count, slow={1: factor}, partners=partners), seed)
    assert nodes_in(result, "slow") == {1}
    assert not result.links + result.blocks


@few
@given(st.integers(6, 20), factors, seeds)
def test_two_slow_nodes_are_no_block(count: int, factor: float, seed: int) -> None:
    result = verdict_on(Fabric(count, slow={0: factor, 3: factor}), seed)
    assert nodes_in(result, "slow") == {0, 3}
    assert not result.links + result.blocks


@few
@given(st.integers(6, 20), factors, seeds)
def test_slow_pair_is_link(count: int, factor: float, seed: int) -> None:
    link = frozenset((2, 4))
    result = verdict_on(Fabric(count, links={link: factor}), seed)
    assert links_in(result) == {link}
    assert nodes_in(result, "ok") == set(range(count))
    assert not result.blocks


@few
@given(st.lists(st.integers(3, 7), min_size=2, max_size=4), st.floats(0.5, 0.8), seeds)
def test_leaves_are_blocks(sizes: list[int], gap: float, seed: int) -> None:
    count = sum(sizes)
    leaves = leaves_of(*sizes)
    result = verdict_on(Fabric(count, leaves=leaves, gap=gap), seed)
    assert blocks_in(result) == set(leaves)
    assert nodes_in(result, "ok") == set(range(count))
    assert not result.links
    for block in result.blocks:
        assert block.ratio == pytest.approx(gap, rel=0.05)


@few
@given(st.floats(0.5, 0.8), st.floats(0.4, 0.7), seeds)
def test_slow_node_in_leaf_is_found(gap: float, factor: float, seed: int) -> None:
    leaves = leaves_of(6, 6)
    result = verdict_on(Fabric(12, slow={3: factor}, leaves=leaves, gap=gap), seed)
    assert nodes_in(result, "slow") == {3}
    assert blocks_in(result) == set(leaves)


def test_bad_cable_between_leaves_is_links() -> None:
    links = {frozenset((a, b)): 0.4 for a in (0, 3) for b in (7, 10)}
    result = verdict_on(Fabric(12, links=links, leaves=leaves_of(6, 6), gap=0.8), 1)
    assert links_in(result) == set(links)
    assert not nodes_in(result, "slow", "failed", "unproven")


@few
@given(st.integers(5, 20), seeds)
def test_failed_node_is_found(count: int, seed: int) -> None:
    result = verdict_on(Fabric(count, failed=frozenset({2})), seed)
    assert nodes_in(result, "failed") == {2}
    assert nodes_in(result, "ok") == set(range(count)) - {2}
    assert not result.links + result.blocks


def test_node_that_fails_with_most_has_failed() -> None:
    tests = Fabric(12).tests(1)
    lost = {("0", str(b)) for b in range(1, 7)}
    tests = [PairTest(t.a, t.b, None) if (t.a, t.b) in lost else t for t in tests]
    result = evaluate_pairs([str(n) for n in range(12)], tests)
    assert nodes_in(result, "failed") == {0}
    assert result.nodes[0].failed_with == 6
    assert not result.links


def test_one_failed_pair_is_link() -> None:
    tests = [
        PairTest(t.a, t.b, None if (t.a, t.b) == ("0", "1") else 40.0) for t in Fabric(6).tests(1)
    ]
    result = evaluate_pairs([str(n) for n in range(6)], tests)
    assert [(link.a, link.b, link.state) for link in result.links] == [("0", "1", "failed")]
    assert nodes_in(result, "ok") == set(range(6))


def test_split_fabric_is_blocks() -> None:
    """All pairs across fail: no node has failed."""
    leaves = leaves_of(4, 4)
    tests = [
        PairTest(t.a, t.b, t.bandwidth if (int(t.a) < 4) == (int(t.b) < 4) else None)
        for t in Fabric(8).tests(1)
    ]
    result = evaluate_pairs([str(n) for n in range(8)], tests)
    assert blocks_in(result) == set(leaves)
    assert all(block.across is None for block in result.blocks)
    assert not nodes_in(result, "failed", "slow")
    assert not result.links


@few
@given(st.integers(12, 20), factors, seeds)
def test_missing_pairs_blame_no_other_node(count: int, factor: float, seed: int) -> None:
    result = verdict_on(Fabric(count, slow={1: factor}, missing=0.2), seed)
    assert nodes_in(result, "slow") == {1}
    assert not result.blocks


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("slow", [{}, {0: 0.4}])
def test_small_table_proves_no_node(count: int, slow: dict[int, float]) -> None:
    result = verdict_on(Fabric(count, slow=slow), 1)
    assert nodes_in(result, "unproven") == set(range(count))
    assert not result.blocks


def test_two_slow_of_four_are_unproven() -> None:
    """Two slow nodes and two fast pairs of leaves look alike."""
    result = verdict_on(Fabric(4, leaves=leaves_of(2, 2), gap=0.5), 1)
    assert not nodes_in(result, "slow", "failed", "ok")


def test_slower_direction_counts() -> None:
    """Node 1 is slow to send only."""
    tests = []
    for a in range(6):
        tests += [PairTest(str(a), str(b), 20.0 if a == 1 else 40.0) for b in range(6) if a != b]
    assert nodes_in(evaluate_pairs([str(n) for n in range(6)], tests), "slow") == {1}


@pytest.mark.parametrize(("values", "failed"), [((None, 40.0), True), ((None, 40.0, 41.0), False)])
def test_repeated_tests_decide_by_majority(values: Collection[float | None], failed: bool) -> None:
    matrix = build_matrix("ab", [PairTest("a", "b", value) for value in values])
    assert bool(matrix.failed[0, 1]) is failed


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_nothing_passed_proves_nothing(count: int) -> None:
    result = verdict_on(Fabric(count, failed=frozenset(range(count))), 1)
    assert nodes_in(result, "unproven") == set(range(count))
    assert {link.state for link in result.links} <= {"failed"}


def test_untested_node_is_unproven() -> None:
    result = evaluate_pairs([str(n) for n in range(7)], Fabric(6).tests(1))
    assert result.nodes[6].state == "unproven"
    assert result.nodes[6].factor is None


def small_fabric(seed: int) -> Fabric:
    """Return leaves of two to five nodes with missing pairs, where some nodes have no partner."""
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.integers(2, 6, rng.integers(2, 4))]
    slow = {int(rng.integers(sum(sizes))): float(rng.uniform(0.4, 0.75))}
    return Fabric(
        sum(sizes),
        slow=slow if rng.random() < 0.7 else {},
        leaves=leaves_of(*sizes),
        gap=float(rng.uniform(0.5, 0.85)),
        noise=0.02,
        missing=float(rng.choice([0.0, 0.2, 0.4])),
    )


def test_small_leaves_blame_no_healthy_node() -> None:
    fabrics = {seed: small_fabric(seed) for seed in range(75)}
    verdicts = {seed: verdict_on(fabric, seed) for seed, fabric in fabrics.items()}
    wrong = {s: nodes_in(v, "slow", "failed") - set(fabrics[s].slow) for s, v in verdicts.items()}
    assert not any(wrong.values())
    identified = sum(bool(nodes_in(verdict, "slow")) for verdict in verdicts.values())
    assert 2 * identified > sum(bool(fabric.slow) for fabric in fabrics.values())


def test_leaf_of_two_is_unproven() -> None:
    """Nodes 0 and 1 were not tested together: both slow, or a leaf of their own."""
    fabric = Fabric(8, leaves=leaves_of(2, 6), gap=0.6)
    tests = [test for test in fabric.tests(1) if (test.a, test.b) != ("0", "1")]
    result = evaluate_pairs([str(n) for n in range(8)], tests)
    assert nodes_in(result, "unproven") >= {0, 1}
    assert not nodes_in(result, "slow")


def test_minority_of_tested_nodes_proves_nothing() -> None:
    tests = [t for t in Fabric(9).tests(1) if int(t.b) < 4 or (t.a == "0" and int(t.b) >= 4)]
    result = evaluate_pairs([str(n) for n in range(9)], tests)
    assert nodes_in(result, "unproven") == set(range(9))


def test_known_blocks_are_used_where_few_pairs_would_not_show_them() -> None:
    """Eight racks of eight; each node has four partners in its rack and four in the next one."""
    rng = np.random.default_rng(1)
    racks = {str(node): str(node // 8) for node in range(64)}
    tests = []
    for node in range(64):
        for step in (1, 2):
            inside = 8 * (node // 8) + (node + step) % 8
            across = (node + 8 * step) % 64
            tests += [(node, inside, 2.0), (node, across, 1.0)]
    slow = 20
    table = [
        PairTest(str(a), str(b), value * (0.5 if slow in (a, b) else 1.0) * rng.uniform(0.98, 1.02))
        for a, b, value in tests
    ]
    result = evaluate_pairs(list(racks), table, racks)
    assert (nodes_in(result, "slow"), nodes_in(result, "failed", "unproven")) == ({slow}, set())
    assert blocks_in(result) == {frozenset(range(8 * k, 8 * k + 8)) for k in range(8)}
    assert links_in(result) == set()
