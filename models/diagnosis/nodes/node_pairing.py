"""Choice of the nodes to test together next, so that few rounds identify the bad ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn.models.diagnosis.nodes.group_testing import NodeGroup, links_within
from forewarn.models.diagnosis.nodes.node_check import GroupTest, NodeCheck, evaluate_tests

__all__ = ["plan_next_round"]

_MIN_NODES = 4


def plan_next_round(
    nodes: Sequence[str], tests: Sequence[GroupTest]
) -> tuple[tuple[str, ...], ...]:
    """Return the groups of the next round, or none if no further test would add information.

    Round 1 pairs neighbours; with an odd number of nodes, the last three form one group. From round
    2, each suspect, and each end of a bad link that passed only once, is paired with a node that is
    known to be good and that it has not been tested with, fastest first, from as many earlier
    groups as there are. Remaining suspects are paired with each other. In round 2, the remaining
    good nodes are paired, fastest with slowest; later rounds pair only those with unproven speed.
    Each group has a pair of nodes that was not tested before.

    Parameters
    ----------
    nodes : sequence of str
        In physical order, so that neighbours share a rack.
    tests : sequence of GroupTest
        Tests of all rounds so far.

    Examples
    --------
    >>> from forewarn.models.diagnosis.nodes.node_check import GroupTest
    >>> first = plan_next_round("123456", [])
    >>> first
    (('1', '2'), ('3', '4'), ('5', '6'))
    >>> times = (1.0, 1.1, None)
    >>> tests = [GroupTest(1, frozenset(p), t is not None, t) for p, t in zip(first, times)]
    >>> plan_next_round("123456", tests)
    (('5', '1'), ('6', '3'), ('2', '4'))
    """
    if not tests:
        return _pair_neighbours(nodes)
    if len(nodes) < _MIN_NODES:
        return ()
    check = evaluate_tests(nodes, tests)
    met = {link for test in tests for link in _links_tested(test)}
    groups = _pairs_for_suspects(nodes, check, met)
    free = _unassigned_good_nodes(nodes, groups, check)
    if max(test.round for test in tests) == 1:
        return (*groups, *_pair_fast_with_slow(free, met))
    return (*groups, *_pairs_for_unproven_speed(free, check, met))


def _links_tested(test: GroupTest) -> list[NodeGroup]:
    """Return the links that a test decides; a failed group of three decides none."""
    return links_within(test.nodes) if len(test.nodes) == 2 or test.outcome else []


def _pair_neighbours(nodes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    groups = [tuple(nodes[start : start + 2]) for start in range(0, len(nodes), 2)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups[-2:] = [groups[-2] + groups[-1]]
    return tuple(group for group in groups if len(group) > 1)


def _pairs_for_suspects(
    nodes: Sequence[str], check: NodeCheck, met: set[NodeGroup]
) -> list[tuple[str, ...]]:
    """Pair suspects with good nodes, then with each other."""
    works = check.works
    decided = works.good | works.bad | works.unsteady
    suspects = [node for node in nodes if node not in decided or node in check.doubtful]
    ends = frozenset().union(*works.links)
    good = [node for node in _by_speed(nodes, check) if node in works.good - check.doubtful]
    # An end of a bad link is good. If a suspect fails with it, that may be a second bad link until
    # the end has passed often enough, so it is used only if no other node is left.
    # Helpers of different groups leave nodes that can be paired in a new way.
    rank = _rank_in_group(good, met)
    helpers = sorted(good, key=lambda node: (node in ends, rank[node]))
    groups = _match_unmet(suspects, helpers, met)
    busy = {node for group in groups for node in group}
    return groups + _pair_among([node for node in suspects if node not in busy], met)


def _rank_in_group(nodes: Sequence[str], met: set[NodeGroup]) -> dict[str, int]:
    """Return with how many earlier nodes of the sequence each was tested."""
    partners: dict[str, set[str]] = {node: set() for node in nodes}
    for first, second in met:
        if first in partners and second in partners:
            partners[first].add(second)
            partners[second].add(first)
    position = {node: number for number, node in enumerate(nodes)}
    return {n: sum(position[other] < position[n] for other in partners[n]) for n in nodes}


def _unassigned_good_nodes(
    nodes: Sequence[str], groups: Iterable[Sequence[str]], check: NodeCheck
) -> list[str]:
    """Return the good nodes without a test in this round, fastest first."""
    busy = {node for group in groups for node in group}
    return [n for n in _by_speed(nodes, check) if n in check.works.good and n not in busy]


def _by_speed(nodes: Sequence[str], check: NodeCheck) -> list[str]:
    return sorted(nodes, key=lambda node: check.fastest.get(node, float("inf")))


def _pair_fast_with_slow(free: Sequence[str], met: set[NodeGroup]) -> list[tuple[str, ...]]:
    """Pair the fastest nodes with the slowest; an odd node joins the last pair."""
    half = len(free) // 2
    groups = _match_unmet(free[:half], free[::-1][: len(free) - half], met)
    busy = {node for group in groups for node in group}
    groups += _pair_among([node for node in free if node not in busy], met)
    busy = {node for group in groups for node in group}
    left = [node for node in free if node not in busy]
    if groups and left:
        groups[-1] = (*groups[-1], left[0])
    return groups


def _pairs_for_unproven_speed(
    free: Sequence[str], check: NodeCheck, met: set[NodeGroup]
) -> list[tuple[str, ...]]:
    """Pair nodes that were slow in all tests so far with fast nodes they were not tested with."""
    speed = check.speed
    slow = [n for n in free if n in check.fastest and n not in speed.good | speed.bad]
    return _match_unmet(slow, [node for node in free if node in speed.good], met)


def _match_unmet(
    nodes: Sequence[str], partners: Sequence[str], met: set[NodeGroup]
) -> list[tuple[str, ...]]:
    """Match each node with the first partner it was not tested with, fewest choices first."""
    choices = {node: [p for p in partners if frozenset((node, p)) not in met] for node in nodes}
    groups: list[tuple[str, ...]] = []
    busy = set[str]()
    for node in sorted(nodes, key=lambda node: len(choices[node])):
        partner = next((p for p in choices[node] if p not in busy), None)
        if partner is not None:
            busy.add(partner)
            groups.append((node, partner))
    return groups


def _pair_among(nodes: Sequence[str], met: set[NodeGroup]) -> list[tuple[str, ...]]:
    """Pair nodes that were not tested together yet."""
    groups: list[tuple[str, ...]] = []
    left = list(nodes)
    while left:
        node = left.pop(0)
        partner = next((p for p in left if frozenset((node, p)) not in met), None)
        if partner is not None:
            left.remove(partner)
            groups.append((node, partner))
    return groups
