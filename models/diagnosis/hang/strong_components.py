"""Strongly connected components of a directed graph (Kosaraju's algorithm)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["strong_components"]


def strong_components(after: Mapping[int, Sequence[int]]) -> list[set[int]]:
    """Return the strongly connected components of a graph.

    Parameters
    ----------
    after : mapping of int to sequence of int
        Successors of every node.

    Examples
    --------
    >>> strong_components({1: [2], 2: [1, 3], 3: []})
    [{1, 2}, {3}]
    """
    before: dict[int, list[int]] = {node: [] for node in after}
    for node, following in after.items():
        for target in following:
            before[target].append(node)
    seen: set[int] = set()
    order = [node for start in after for node in _depth_first(after, start, seen)]
    seen = set()
    parts = (set(_depth_first(before, start, seen)) for start in reversed(order))
    return [part for part in parts if part]


def _depth_first(after: Mapping[int, Sequence[int]], start: int, seen: set[int]) -> list[int]:
    """Return the nodes reachable from `start` and not in `seen`, in post-order; extend `seen`."""
    order: list[int] = []
    path = [(start, iter((start,)))]
    while path:
        node, following = path[-1]
        if (target := next((n for n in following if n not in seen), None)) is not None:
            seen.add(target)
            path.append((target, iter(after[target])))
        elif path.pop() and path:
            order.append(node)
    return order
