"""Evaluation of the node check: short collectives in pairs of nodes, in several rounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from forewarn.models.diagnosis.nodes.group_testing import (
    GroupTestConclusions,
    NodeGroup,
    draw_conclusions,
)

__all__ = ["COLLECTIVE_LIMIT", "ROUND_LIMIT", "GroupTest", "NodeCheck", "evaluate_tests"]

COLLECTIVE_LIMIT = 180.0  # as in DLRover
ROUND_LIMIT = 300.0
_SLOW_FACTOR = 2.0  # times the median
_MIN_NODES = 4  # fewer nodes cannot be told apart


@dataclass(frozen=True, slots=True)
class GroupTest:
    """A collective of two or three nodes.

    Attributes
    ----------
    round : int
        Counted from 1.
    nodes : NodeGroup
    passed : bool or None
        None if unknown; the time then decides. A test with neither is ignored.
    seconds : float or None
        None if there is no time, which is not the same as 0.
    """

    round: int
    nodes: NodeGroup
    passed: bool | None
    seconds: float | None = None

    @property
    def outcome(self) -> bool | None:
        """Whether it finished within the limit of a collective; None if unknown."""
        if self.seconds is None:
            return self.passed
        return self.seconds <= COLLECTIVE_LIMIT and self.passed is not False


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """Results of all rounds so far.

    Attributes
    ----------
    works : GroupTestConclusions
        Nodes and links that can carry a collective.
    speed : GroupTestConclusions
        The same for its time: `bad` nodes are stragglers, `links` are slow.
    fastest : dict of str to float
        Shortest time of each node that has one, in seconds.
    doubtful : frozenset of str
        Ends of bad links that passed with only one partner; an intermittent fault looks the same.
    """

    works: GroupTestConclusions
    speed: GroupTestConclusions
    fastest: dict[str, float]
    doubtful: frozenset[str] = frozenset()

    @property
    def links(self) -> frozenset[NodeGroup]:
        """Bad links whose ends both passed with at least two partners."""
        return frozenset(link for link in self.works.links if not link & self.doubtful)

    def state(self, node: str) -> str:
        """Return `failed`, `slow`, `ok`, or `unproven` if the tests cannot tell yet."""
        if node in self.works.bad:
            return "failed"
        is_proven = node in self.works.good and node not in self.doubtful
        if is_proven and node in self.speed.bad:
            return "slow"
        is_fast = node in self.speed.good or node not in self.fastest
        return "ok" if is_proven and is_fast else "unproven"

    def factor(self, node: str) -> float | None:
        """Return the median node's fastest time by that of this node; None without a time."""
        if node not in self.fastest:
            return None
        return round(statistics.median(self.fastest.values()) / self.fastest[node], 4)


def evaluate_tests(nodes: Sequence[str], tests: Sequence[GroupTest]) -> NodeCheck:
    """Return which nodes and links are faulty, slow or good.

    A passed test is slow if it takes over twice the median of the nodes' fastest times. With up to
    three nodes there is no conclusion.

    Parameters
    ----------
    nodes : sequence of str
    tests : sequence of GroupTest
    """
    if len(nodes) < _MIN_NODES:
        nothing = GroupTestConclusions(frozenset(), frozenset(), frozenset(), frozenset())
        return NodeCheck(nothing, nothing, {})
    passed = [test for test in tests if test.outcome is True]
    works = draw_conclusions(
        [test.nodes for test in passed], [test.nodes for test in tests if test.outcome is False]
    )
    timed = [(test.nodes, test.seconds) for test in passed if test.seconds is not None]
    fastest: dict[str, float] = {}
    for group, seconds in timed:
        for node in group:
            fastest[node] = min(seconds, fastest.get(node, seconds))
    limit = _SLOW_FACTOR * statistics.median(fastest.values()) if fastest else 0.0
    speed = draw_conclusions(
        [group for group, seconds in timed if seconds <= limit],
        [group for group, seconds in timed if seconds > limit],
    )
    return NodeCheck(works, speed, fastest, _doubtful(works, passed))


def _doubtful(works: GroupTestConclusions, passed: Sequence[GroupTest]) -> frozenset[str]:
    partners: dict[str, set[str]] = {}
    for test in passed:
        for node in test.nodes:
            partners.setdefault(node, set()).update(test.nodes - {node})
    ends = frozenset().union(*works.links)
    return frozenset(node for node in ends if len(partners[node]) < 2)
