"""Where the nodes and arrows of a wait graph stand on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forewarn.features.diagnosis.ranks import rank_list

__all__ = ["wait_picture"]

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE = 250, 44, 90, 22, 12
_LOOP = 75  # room for arrows within the last column
_MOST = 24  # nodes drawn
Stall = Mapping[str, Any]


def wait_picture(stalls: Sequence[Stall], named: int | None) -> dict[str, Any]:
    """Lay out who waits for whom: ranks that wait for the same are one node.

    Whoever is waited for and waits for nobody stands at the right, and to the left of everybody
    those that wait for it.

    Parameters
    ----------
    stalls : sequence of mapping
        Details of the evidence of part `flight`: `waiting`, `absent`, `silent`, `group`, `seq`,
        `operation`, `variants`.
    named : int or None
        The rank of the verdict.

    Returns
    -------
    dict
        `size`, `nodes`, `arrows`, and `hidden`, the nodes that there was no room for.
    """
    nodes = _nodes(stalls)
    columns = _columns(nodes, stalls)
    corners, shown = {}, sorted(nodes, key=lambda node: (columns[node], node))[:_MOST]
    rows: dict[int, int] = {}
    widest = max((columns[node] for node in shown), default=0)
    for node in shown:
        row = rows.get(columns[node], 0)
        rows[columns[node]] = row + 1
        x = _EDGE + (widest - columns[node]) * (_WIDTH + _GAP_X)
        corners[node] = (x, _EDGE + row * (_HEIGHT + _GAP_Y))
    return {
        "size": (
            2 * _EDGE + (widest + 1) * _WIDTH + widest * _GAP_X + _LOOP,
            2 * _EDGE + max(rows.values(), default=0) * (_HEIGHT + _GAP_Y) - _GAP_Y // 2,
        ),
        "nodes": [_box(node, corners[node], nodes[node], stalls, named) for node in shown],
        "arrows": _arrows(nodes, corners),
        "hidden": len(nodes) - len(shown),
    }


Node = tuple[int, ...]


def _nodes(stalls: Sequence[Stall]) -> dict[Node, dict[str, Any]]:
    """Return the ranks that wait in the same operation and are missed in the same ones."""
    waits: dict[int, int] = {}
    missed: dict[int, list[int]] = {}
    for number, stall in enumerate(stalls):
        waits |= dict.fromkeys(stall["waiting"], number)
        for rank in stall["absent"] or stall["silent"]:
            missed.setdefault(rank, []).append(number)
    alike: dict[tuple[int | None, str, tuple[int, ...]], list[int]] = {}
    for rank in sorted(waits.keys() | missed.keys()):
        doing = _doing(stalls[waits[rank]], rank) if rank in waits else ""
        alike.setdefault((waits.get(rank), doing, tuple(missed.get(rank, ()))), []).append(rank)
    return {
        tuple(ranks): dict(zip(("waits_in", "doing", "missed_in"), key, strict=True))
        for key, ranks in alike.items()
    }


def _doing(stall: Stall, rank: int) -> str:
    """Return the operation that a rank is in; in a mismatch each has its own."""
    texts = (text for text, ranks in stall["variants"].items() if rank in ranks)
    return str(next(texts, stall["operation"])).split(" ")[0].rpartition(":")[2]


def _columns(nodes: Mapping[Node, Mapping[str, Any]], stalls: Sequence[Stall]) -> dict[Node, int]:
    """Return how many hops each node is from the ends; in a circle from its first node."""
    complete = _complete(stalls)
    ends = [node for node, about in nodes.items() if about["waits_in"] in {None, *complete}]
    blocked = [node for node, about in nodes.items() if about["missed_in"]]
    ahead = ends or blocked[:1] or list(nodes)[:1]
    columns = dict.fromkeys(ahead, 0)
    while ahead:
        node = ahead.pop(0)
        for other, about in nodes.items():
            if other not in columns and about["waits_in"] in nodes[node]["missed_in"]:
                columns[other] = columns[node] + 1
                ahead.append(other)
    return {node: columns.get(node, 0) for node in nodes}


def _complete(stalls: Sequence[Stall]) -> set[int]:
    """Return the operations that all have entered."""
    return {n for n, stall in enumerate(stalls) if not (stall["absent"] or stall["silent"])}


def _box(
    node: Node,
    corner: tuple[int, int],
    about: Mapping[str, Any],
    stalls: Sequence[Stall],
    named: int | None,
) -> dict[str, Any]:
    silent = {rank for n in about["missed_in"] for rank in stalls[n]["silent"]}
    words = "waits for nobody" if len(node) == 1 else "wait for nobody"
    if silent.issuperset(node):
        words = "left no dump"
    if about["waits_in"] is not None:
        stall = stalls[about["waits_in"]]
        words = f"in {about['doing']} {stall['seq']}, group {stall['group']}"
    text = rank_list(node[:4]) + (f" and {len(node) - 4} more" if len(node) > 4 else "")
    return {
        "x": corner[0],
        "y": corner[1],
        "width": _WIDTH,
        "height": _HEIGHT,
        "text": text,
        "words": words,
        "is_named": named in node,
    }


def _arrows(
    nodes: Mapping[Node, Mapping[str, Any]],
    corners: Mapping[Node, tuple[int, int]],
) -> list[str]:
    """Return the paths of arrows from whoever waits to whom it waits for."""
    arrows = []
    for node, about in nodes.items():
        if about["waits_in"] is None or node not in corners:
            continue
        for other in corners:
            if other != node and about["waits_in"] in nodes[other]["missed_in"]:
                arrows.append(_arrow(corners[node], corners[other]))
    return arrows


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return a curve from a box to another; one that closes a circle leaves and ends lower."""
    if end[0] > start[0]:
        x, y, to_x, to_y = start[0] + _WIDTH, start[1] + 14, end[0], end[1] + 14
        bend = ((x + to_x) / 2, (x + to_x) / 2)
    elif end[0] < start[0]:
        x, y, to_x, to_y = start[0], start[1] + 36, end[0] + _WIDTH, end[1] + 36
        bend = ((x + to_x) / 2, (x + to_x) / 2)
    else:
        x, y, to_x, to_y = start[0] + _WIDTH, start[1] + 22, end[0] + _WIDTH, end[1] + 22
        bend = (x + 60, to_x + 60)
    return f"M{x} {y}C{bend[0]} {y} {bend[1]} {to_y} {to_x} {to_y}"
