"""Ranks that are elsewhere while the others wait, by their stacks: who was sent there, or works."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.diagnosis.stack_sample import Stack, wait_of
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.probes.stack_probe import StackRound
from forewarn.models.diagnosis.verdict.absence import may_be_sent

__all__ = ["absence_phases"]

_SECOND = 1_000_000_000
_APART = 60 * _SECOND  # rounds that are farther apart show two stand-stills
_LATELY = 4  # rounds in which who works moves
_LOADS = re.compile(r"__next__|__getitems?__")  # of Python's protocols: data is asked for


def absence_phases(rounds: Sequence[StackRound], ranks: Ranks) -> list[Phase]:
    """Return the stand-still of now, if whom the others wait for was sent elsewhere, or works.

    Rank 0, or ranks of several machines, save or evaluate while the others wait. A fault befalls
    a rank, or a machine: it counts if it still moves, or if others have left the call that it is
    in. A rank that waits for its data does none of these.

    Parameters
    ----------
    rounds : sequence of StackRound
        In the order of their times, not after the verdict.
    ranks : Ranks
        Tell who runs on the same machine.
    """
    lasting = list(_lasting(rounds))
    if not lasting:
        return []
    absent = [who for _, who in lasting]
    if may_be_sent(absent[0].keys(), ranks) or _moves(absent) or _have_left(absent):
        return [Phase("absence", lasting[-1][0] - _APART, None, seen=lasting[0][0])]
    return []


def _lasting(rounds: Sequence[StackRound]) -> Iterator[tuple[int, Mapping[int, Stack]]]:
    """Yield time and absent ranks of the last rounds that show any without a break, last first."""
    later = rounds[-1].time if rounds else 0
    for sample in reversed(rounds):
        absent = _absent(sample)
        if not absent or later - sample.time > _APART:
            return
        yield sample.time, absent
        later = sample.time


def _absent(sample: StackRound) -> dict[int, Stack]:
    is_absent = {  # of thousands most are the same
        stack: wait_of(stack) is None and not any(_LOADS.fullmatch(call.name) for call in stack)
        for stack in set[Stack](sample.stacks.values())
    }
    return {rank: stack for rank, stack in sample.stacks.items() if is_absent[stack]}


def _moves(absent: Sequence[Mapping[int, Stack]]) -> bool:
    """Say whether somebody who is elsewhere has moved within the last rounds."""
    pairs = itertools.pairwise(absent[:_LATELY])
    return any(
        later[rank] != before[rank]
        for later, before in pairs
        for rank in later.keys() & before.keys() & absent[0].keys()
    )


def _have_left(absent: Sequence[Mapping[int, Stack]]) -> bool:
    """Say whether others have left a call in which somebody is."""
    calls = {stack[0][:2] for stack in absent[0].values()}
    return any(
        stack[0][:2] in calls and rank not in absent[0]
        for before in absent[1:]
        for rank, stack in before.items()
    )
