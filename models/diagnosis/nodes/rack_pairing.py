"""Rounds of pairs of nodes of known racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from forewarn.models.diagnosis.nodes.group_testing import NodeGroup

__all__ = ["pair_by_rack"]


def pair_by_rack(
    nodes: Sequence[str],
    partners: Sequence[str],
    racks: Mapping[str, str],
    tested: Collection[NodeGroup],
    *,
    across: bool | None = None,
) -> list[tuple[str, str]]:
    """Pair each node with a partner that it was not tested with, the least tested nodes first.

    Of the partners one counts whose rack the rack of the node has met least, and that has the
    fewest tests itself.

    Parameters
    ----------
    nodes, partners : sequence of str
        Both may be the same; each node is in one pair at most.
    racks : mapping of str to str
    tested : collection of NodeGroup
        Pairs of earlier rounds.
    across : bool, optional
        Whether the racks of a pair have to differ, or to be the same; either by default.

    Examples
    --------
    >>> racks = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
    >>> pair_by_rack(list(racks), list(racks), racks, [], across=False)
    [('a1', 'a2'), ('b1', 'b2')]
    >>> pair_by_rack(list(racks), list(racks), racks, [frozenset({"a1", "b1"})], across=True)
    [('a2', 'b2')]
    """
    n_tests = Counter(node for pair in tested for node in pair)
    met = Counter(frozenset(racks[node] for node in pair) for pair in tested)
    busy: set[str] = set()
    pairs = []
    for node in sorted(nodes, key=lambda node: n_tests[node]):
        choices = [
            (met[frozenset((racks[node], racks[other]))], n_tests[other], number)
            for number, other in enumerate(partners)
            if other != node
            and other not in busy
            and across in (None, racks[node] != racks[other])
            and frozenset((node, other)) not in tested
        ]
        if node in busy or not choices:
            continue
        partner = partners[min(choices)[2]]
        busy |= {node, partner}
        met[frozenset((racks[node], racks[partner]))] += 1
        pairs.append((node, partner))
    return pairs
