"""Ground truth of bad nodes and links, simulated tests, and all consistent explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from forewarn.models.diagnosis.nodes.group_testing import NodeGroup, links_within
from forewarn.models.diagnosis.nodes.node_check import GroupTest

Pairing = Callable[[Sequence[str], Sequence[GroupTest]], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Truth:
    bad: frozenset[str]
    links: frozenset[NodeGroup] = frozenset()

    def passes(self, group: NodeGroup) -> bool:
        return not group & self.bad and not self.links & set(links_within(group))


def explanations(nodes: Sequence[str]) -> Iterator[Truth]:
    """Yield all sets of bad nodes and of bad links between good ones, at most one link per node."""
    for count in range(len(nodes) + 1):
        for bad in combinations(nodes, count):
            good = [node for node in nodes if node not in bad]
            for links in matchings(good):
                yield Truth(frozenset(bad), links)


def matchings(nodes: Sequence[str]) -> Iterator[frozenset[NodeGroup]]:
    if len(nodes) < 2:
        yield frozenset()
        return
    first, rest = nodes[0], nodes[1:]
    yield from matchings(rest)
    for other in rest:
        left = [node for node in rest if node != other]
        for links in matchings(left):
            yield links | {frozenset((first, other))}


def run_rounds(
    nodes: Sequence[str], truth: Truth, pairing: Pairing, most: int = 12
) -> list[GroupTest]:
    """Test until the pairing plans no further round; a good pair takes its number of nodes."""
    tests: list[GroupTest] = []
    for number in range(1, most + 1):
        groups = [frozenset(group) for group in pairing(nodes, tests)]
        if not groups:
            return tests
        assert sum(len(group) for group in groups) == len(frozenset().union(*groups))
        for group in groups:
            passed = truth.passes(group)
            tests.append(GroupTest(number, group, passed, 10.0 if passed else None))
    raise AssertionError(f"not done after {most} rounds")
