"""SVG drawing of the wait-for graph of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from forewarn.features.diagnosis.ranks import format_ranks
from forewarn.pipelines.rendering.box_diagram import HEIGHT, Box, draw_boxes
from forewarn.pipelines.rendering.svg_figures import inline_svg
from forewarn.pipelines.rendering.templates import visible

__all__ = ["draw_wait_graph"]

_WIDTH, _GAP_X, _GAP_Y, _EDGE = 200.0, 45.0, 18.0, 10.0
_LOOP_WIDTH = 60.0  # room for arrows within the last column
_MAX_BOXES = 24
_MAX_BOX_CHARS = 36
StallDetails = Mapping[str, Any]
RankGroup = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WaitGraphDrawing:
    """The drawing, its columns of boxes, and the number of boxes that did not fit."""

    svg: Markup
    n_columns: int
    hidden: int


def draw_wait_graph(
    stalls: Sequence[StallDetails], culprits: Collection[int]
) -> WaitGraphDrawing | None:
    """Draw which ranks wait for which, or return None without ranks.

    Ranks that wait for the same ranks share a box. Boxes that others wait for and that wait for no
    rank are on the right; to the left of each box are the boxes that wait for it.

    Parameters
    ----------
    stalls : sequence of mapping
        Evidence details of part `flight`: `waiting`, `absent`, `silent`, `group`, `seq`,
        `operation`, `variants`.
    culprits : collection of int
        Culprits of the verdict.
    """
    nodes = _nodes(stalls)
    if not nodes:
        return None
    columns = _columns(nodes, stalls)
    shown = sorted(nodes, key=lambda node: (columns[node], node))[:_MAX_BOXES]
    corners = _corners({node: columns[node] for node in shown})
    boxes = {
        node: Box(
            *corners[node],
            title=_box_title(node),
            words=_box_text(node, nodes[node], stalls),
            colour="bad" if not set(node).isdisjoint(culprits) else "muted",
        )
        for node in shown
    }
    waits = [
        (boxes[node], boxes[other])
        for node in shown
        for other in shown
        if node != other and nodes[node]["waits_in"] in nodes[other]["missed_in"]
    ]
    svg = inline_svg(
        draw_boxes(list(boxes.values()), waits, width=_WIDTH, right=_LOOP_WIDTH),
        title="Wait-for graph of ranks",
        description="; ".join(f"{start.title} to {end.title}" for start, end in waits),
    )
    n_columns = 1 + max(columns[node] for node in shown)
    return WaitGraphDrawing(svg, n_columns, len(nodes) - len(shown))


def _corners(columns: Mapping[RankGroup, int]) -> dict[RankGroup, tuple[float, float]]:
    """Return the top left corner of each box; the first column is on the right."""
    rows: Counter[int] = Counter()
    corners = {}
    for node, column in columns.items():
        x = (max(columns.values()) - column) * (_WIDTH + _GAP_X)
        corners[node] = _EDGE + x, _EDGE + rows[column] * (HEIGHT + _GAP_Y)
        rows[column] += 1
    return corners


def _nodes(stalls: Sequence[StallDetails]) -> dict[RankGroup, dict[str, Any]]:
    """Group the ranks that wait in the same operation and are missing in the same ones."""
    waits: dict[int, int] = {}
    missed: dict[int, list[int]] = {}
    for number, stall in enumerate(stalls):
        waits |= dict.fromkeys(stall["waiting"], number)
        for rank in stall["absent"] or stall["silent"]:
            missed.setdefault(rank, []).append(number)
    alike: dict[tuple[int | None, str, tuple[int, ...]], list[int]] = {}
    for rank in sorted(waits.keys() | missed.keys()):
        doing = _operation_of_rank(stalls[waits[rank]], rank) if rank in waits else ""
        alike.setdefault((waits.get(rank), doing, tuple(missed.get(rank, ()))), []).append(rank)
    return {
        tuple(ranks): dict(zip(("waits_in", "doing", "missed_in"), key, strict=True))
        for key, ranks in alike.items()
    }


def _operation_of_rank(stall: StallDetails, rank: int) -> str:
    """Return the operation of a rank; in a mismatch it differs between ranks."""
    texts = (text for text, ranks in stall["variants"].items() if rank in ranks)
    return str(next(texts, stall["operation"])).split(" ")[0].rpartition(":")[2]


def _columns(
    nodes: Mapping[RankGroup, Mapping[str, Any]], stalls: Sequence[StallDetails]
) -> dict[RankGroup, int]:
    """Return the number of hops from each node to a sink, or in a cycle to its first node."""
    complete = _fully_entered(stalls)
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


def _fully_entered(stalls: Sequence[StallDetails]) -> set[int]:
    """Return the operations that all members have entered."""
    return {n for n, stall in enumerate(stalls) if not (stall["absent"] or stall["silent"])}


def _box_text(node: RankGroup, about: Mapping[str, Any], stalls: Sequence[StallDetails]) -> str:
    """Describe what the ranks of a node do."""
    if about["waits_in"] is not None:
        stall = stalls[about["waits_in"]]
        return visible(
            f"in {about['doing']} {stall['seq']}, group {stall['group']}", _MAX_BOX_CHARS
        )
    silent = {rank for n in about["missed_in"] for rank in stalls[n]["silent"]}
    if silent.issuperset(node):
        return "left no dump"
    return "not waiting"


def _box_title(node: RankGroup) -> str:
    return format_ranks(node[:4]) + (f" and {len(node) - 4} more" if len(node) > 4 else "")
