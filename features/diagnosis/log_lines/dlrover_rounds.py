"""What the log of DLRover's master says of its nodes: which of them have which rank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["RendezvousRound", "completed_rounds"]

_ROUND = re.compile(
    rb"Completed (\d{1,9}) round rendezvous of elastic-training is \{([\d:, ]{0,1000000})\}"
)
_PAIR = re.compile(rb"(\d{1,9}): (\d{1,9})")


@dataclass(frozen=True, slots=True)
class RendezvousRound:
    """A round in which nodes agreed to train together.

    Attributes
    ----------
    number : int
        From 0; a further one follows each change of the nodes.
    ranks : mapping of int to int
        Rank by number of the node.
    """

    number: int
    ranks: Mapping[int, int]


def completed_rounds(text: bytes) -> list[RendezvousRound]:
    """Return the rounds of training in a log of DLRover's master, in order.

    Examples
    --------
    Node 3 took the rank of node 2:

    >>> text = b"Completed 2 round rendezvous of elastic-training is {0: 0, 1: 1, 3: 2} "
    >>> completed_rounds(text)
    [RendezvousRound(number=2, ranks={0: 0, 1: 1, 3: 2})]
    """
    return [
        RendezvousRound(int(number), {int(node): int(rank) for node, rank in _PAIR.findall(nodes)})
        for number, nodes in _ROUND.findall(text)
    ]
