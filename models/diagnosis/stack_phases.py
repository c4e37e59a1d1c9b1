"""Phases of a job by its stacks: a checkpoint or an evaluation that nobody wrote down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from forewarn.features.diagnosis.stack_sample import Stack
from forewarn.models.diagnosis.phases import Phase
from forewarn.models.diagnosis.stack_probe import StackRound

__all__ = ["stack_phases"]

_SECOND = 1_000_000_000
_APART = 60 * _SECOND  # rounds that are farther apart show two phases
_AROUND = 30 * _SECOND  # a phase began before the first round that shows it, and ends later
_KINDS: dict[Literal["checkpoint", "evaluation"], re.Pattern[str]] = {
    "checkpoint": re.compile(
        r"(?i)\w*save\w*(checkpoint|ckpt|model|state)\w*|\w*(checkpoint|ckpt)\w*save\w*"
        r"|_?(async_)?save"
    ),
    "evaluation": re.compile(r"(?i)_?(evaluate|validate|run_evaluation|eval(uation)?_(loop|step))"),
}


def stack_phases(rounds: Sequence[StackRound]) -> list[Phase]:
    """Return the spans in which a rank saves a checkpoint, or evaluates.

    The last one is open: it may end at any moment.

    Parameters
    ----------
    rounds : sequence of StackRound
        In the order of their times, not after the verdict.
    """
    phases: list[Phase] = []
    for kind, pattern in _KINDS.items():
        shown = [sample.time for sample in rounds if _shows(sample, pattern)]
        spans: list[tuple[int, int]] = []
        for time in shown:
            if spans and time - spans[-1][1] <= _APART:
                spans[-1] = spans[-1][0], time
            else:
                spans.append((time, time))
        last = rounds[-1].time if rounds else 0
        for first, end in spans:
            ended = None if end == last else end + _AROUND
            phases.append(Phase(kind, first - 2 * _AROUND, ended))
    return sorted(phases, key=lambda phase: phase.begin)


def _shows(sample: StackRound, pattern: re.Pattern[str]) -> bool:
    stacks = set[Stack](sample.stacks.values())  # of thousands most are the same
    return any(pattern.fullmatch(call.name) for stack in stacks for call in stack)
