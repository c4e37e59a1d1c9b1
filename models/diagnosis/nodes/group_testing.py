"""Group testing: which nodes and links are good or bad, inferred from tests of groups of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["GroupTestConclusions", "NodeGroup", "draw_conclusions", "links_within"]

NodeGroup = frozenset[str]
"""Nodes that were tested together, or the two ends of a link."""


@dataclass(frozen=True, slots=True)
class GroupTestConclusions:
    """Conclusions that hold in every explanation consistent with all tests.

    An explanation says which nodes are bad, and which links between good nodes are. A good node has
    at most one bad link; a node with two is itself bad. A test fails if and only if one of its
    nodes, or one of the links between them, is bad.

    Attributes
    ----------
    good, bad : frozenset of str
    links : frozenset of NodeGroup
        Bad links between good nodes.
    unsteady : frozenset of str
        Nodes that passed, and also failed in a way that no explanation allows: neither good nor
        bad.
    """

    good: frozenset[str]
    bad: frozenset[str]
    links: frozenset[NodeGroup]
    unsteady: frozenset[str]


def draw_conclusions(
    passed: Iterable[NodeGroup], failed: Iterable[NodeGroup]
) -> GroupTestConclusions:
    """Return what tests imply.

    Marking more nodes as bad never contradicts a failed test. A node is therefore certainly good
    only if a test with it passed. It is certainly bad if its failures cannot be explained by links,
    even when all nodes without a passed test are taken as bad.

    Parameters
    ----------
    passed, failed : iterable of NodeGroup
        Nodes of each test.

    Examples
    --------
    >>> pair = lambda text: frozenset(text)
    >>> result = draw_conclusions([pair("ab"), pair("cd")], [pair("ef"), pair("ea")])
    >>> sorted(result.good), sorted(result.bad)
    (['a', 'b', 'c', 'd'], [])
    >>> sorted(draw_conclusions([pair("ab"), pair("cd")], [pair("ea"), pair("eb")]).bad)
    ['e']
    """
    fine, failures = list(passed), sorted(set(failed), key=sorted)
    sound = {link for group in fine for link in links_within(group)}
    good, unsteady = _split_steady(frozenset().union(*fine), failures, sound)
    among = [group for group in failures if group <= good]
    nodes = frozenset().union(*failures) - good
    bad = {node for node in nodes - unsteady if not _could_be_good(node, good, failures, sound)}
    options = {link for group in among for link in links_within(group)} - sound
    links = {link for link in options if not _links_explain(among, sound | {link})}
    return GroupTestConclusions(good, frozenset(bad), frozenset(links), unsteady)


def links_within(group: Collection[str]) -> list[NodeGroup]:
    """Return the links between the nodes of a group."""
    return [frozenset(ends) for ends in combinations(sorted(group), 2)]


def _split_steady(
    good: frozenset[str], failures: Sequence[NodeGroup], sound: set[NodeGroup]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes whose failures among each other can be bad links, and the other nodes."""
    steady = good
    while not _links_explain([group for group in failures if group <= steady], sound):
        counts = Counter(node for group in failures if group <= steady for node in group)
        most = max(counts.values())
        steady -= {node for node, count in counts.items() if count == most}
    return steady, good - steady


def _could_be_good(
    node: str, good: frozenset[str], failures: Sequence[NodeGroup], sound: set[NodeGroup]
) -> bool:
    return _links_explain([group for group in failures if group <= good | {node}], sound)


def _links_explain(groups: Sequence[NodeGroup], sound: set[NodeGroup]) -> bool:
    """Return whether bad links alone, at most one per node, explain the failure of all groups."""
    pairs = [group for group in groups if len(group) == 2]
    ends = [end for pair in pairs for end in pair]
    if len(ends) != len(set(ends)) or any(pair in sound for pair in pairs):
        return False
    chosen = set(pairs)
    larger = [group for group in groups if len(group) > 2 and not chosen & set(links_within(group))]
    return _can_choose_links(larger, chosen, set(ends), sound)


def _can_choose_links(
    groups: Sequence[NodeGroup], chosen: set[NodeGroup], taken: set[str], sound: set[NodeGroup]
) -> bool:
    """Return whether one bad link per group can be chosen (at most one group has three nodes)."""
    if not groups:
        return True
    if chosen & set(links_within(groups[0])):
        return _can_choose_links(groups[1:], chosen, taken, sound)
    return any(
        _can_choose_links(groups[1:], chosen | {link}, taken | link, sound)
        for link in links_within(groups[0])
        if link not in sound and not link & taken
    )
