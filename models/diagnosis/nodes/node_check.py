"""The check of nodes before a job starts: short collectives in pairs, round after round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from forewarn.models.diagnosis.nodes.group_testing import (
    NodeGroup,
    GroupTestConclusions,
    draw_conclusions,
)

__all__ = ["COLLECTIVE_LIMIT", "ROUND_LIMIT", "GroupTest", "NodeCheck", "evaluate_tests"]

COLLECTIVE_LIMIT = 180.0  # seconds (DLRover)
ROUND_LIMIT = 300.0
_SLOW_FACTOR = 2.0  # times the median
_MIN_NODES = 4  # nodes: with fewer nobody can be told from the others


@dataclass(frozen=True, slots=True)
class GroupTest:
    """A collective of two or three nodes.

    Attributes
    ----------
    round : int
        From 1 on.
    nodes : Group
    passed : bool or None
        None: nobody said so; then a time says it, and without one the test counts for nothing.
    seconds : float or None
        None is no time, not 0.
    """

    round: int
    nodes: NodeGroup
    passed: bool | None
    seconds: float | None = None

    @property
    def outcome(self) -> bool | None:
        """Whether it came to its end within the limit of a collective; None: nobody knows."""
        if self.seconds is None:
            return self.passed
        return self.seconds <= COLLECTIVE_LIMIT and self.passed is not False


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What the rounds so far say.

    Attributes
    ----------
    works : Proof
        Which nodes and links carry a collective at all.
    speed : Proof
        The same for its time: `bad` nodes are stragglers, `links` are slow.
    fastest : dict of str to float
        Shortest time of each node that has one, seconds.
    doubtful : frozenset of str
        Ends of bad links that passed with one partner only: a fault that shows at times looks the
        same.
    """

    works: GroupTestConclusions
    speed: GroupTestConclusions
    fastest: dict[str, float]
    doubtful: frozenset[str] = frozenset()

    @property
    def links(self) -> frozenset[NodeGroup]:
        """Bad links whose ends both passed with two partners or more."""
        return frozenset(link for link in self.works.links if not link & self.doubtful)


def evaluate_tests(nodes: Sequence[str], tests: Sequence[GroupTest]) -> NodeCheck:
    """Say which nodes are faulty, slow or good, and which links are.

    Slow is a passed test that takes over twice the median of the nodes' fastest times. Up to three
    nodes nobody is named.

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
