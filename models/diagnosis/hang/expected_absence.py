"""Expected absence: ranks outside the others' wait that the program may have sent elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.diagnosis.stack_sample import Stack, classify_wait, data_request
from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.probes.stack_probe import StackSample
from forewarn.models.diagnosis.verdict.rank_absence import may_be_expected

__all__ = ["expected_absence_phases"]

_MAX_SAMPLE_GAP = MINUTE  # samples farther apart show two separate stalls
_RECENT_SAMPLES = 4


def expected_absence_phases(samples: Sequence[StackSample], ranks: Ranks) -> list[Phase]:
    """Return the current stall as a phase if the absent ranks may be there by design.

    Programs let rank 0 or ranks of several machines save or evaluate while the others wait. A fault
    affects a rank or a machine; its absence is expected only if its stack still changes, or if
    other ranks have left the call that it is in. A rank that waits for data is never an expected
    absence.

    Parameters
    ----------
    samples : sequence of StackSample
        In time order, none after the verdict.
    ranks : Ranks
        Provides the machine of each rank.
    """
    lasting = list(_consecutive_absences(samples))
    if not lasting:
        return []
    absent = [stacks for _, stacks in lasting]
    if may_be_expected(absent[0].keys(), ranks) or _has_moved(absent) or _others_left_call(absent):
        return [Phase("absence", lasting[-1][0] - _MAX_SAMPLE_GAP, None, last_seen=lasting[0][0])]
    return []


def _consecutive_absences(
    samples: Sequence[StackSample],
) -> Iterator[tuple[int, Mapping[int, Stack]]]:
    """Yield time and absent ranks of the latest consecutive samples with any, latest first."""
    later = samples[-1].time if samples else 0
    for sample in reversed(samples):
        absent = _absent_stacks(sample)
        if not absent or later - sample.time > _MAX_SAMPLE_GAP:
            return
        yield sample.time, absent
        later = sample.time


def _absent_stacks(sample: StackSample) -> dict[int, Stack]:
    is_absent = {  # most of thousands of stacks are equal
        stack: classify_wait(stack) is None and data_request(stack) is None
        for stack in set[Stack](sample.stacks.values())
    }
    return {rank: stack for rank, stack in sample.stacks.items() if is_absent[stack]}


def _has_moved(absent: Sequence[Mapping[int, Stack]]) -> bool:
    """Return whether the stack of an absent rank changed within the recent samples."""
    pairs = itertools.pairwise(absent[:_RECENT_SAMPLES])
    return any(
        later[rank] != before[rank]
        for later, before in pairs
        for rank in later.keys() & before.keys() & absent[0].keys()
    )


def _others_left_call(absent: Sequence[Mapping[int, Stack]]) -> bool:
    """Return whether other ranks have left a call that an absent rank is in."""
    calls = {stack[0][:2] for stack in absent[0].values()}
    return any(
        stack[0][:2] in calls and rank not in absent[0]
        for before in absent[1:]
        for rank, stack in before.items()
    )
