"""Quiet phases from stacks: checkpoints, evaluations and preparation that no log shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from forewarn.features.diagnosis.stack_sample import Stack, classify_wait
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.probes.stack_probe import StackSample

__all__ = ["stack_phases"]

_MAX_SAMPLE_GAP = MINUTE  # samples farther apart show two phases
_PHASE_MARGIN = 30 * SECOND  # a phase begins before the first sample that shows it, and ends later
# Function names by phase; loading, building and compiling precede the first step.
_PHASE_FUNCTIONS: dict[Literal["checkpoint", "evaluation", "first step"], re.Pattern[str]] = {
    "checkpoint": re.compile(
        r"(?i)(\w*_)?(async_?)?savez?(_(?!for_backward)\w+)?|\w*(checkpoint|ckpt)\w*save\w*"
        r"|(write|dump|store|export)_(checkpoint|ckpt|model|state|weights)\w*"
        r"|_?(put_object|put_file|upload)(_\w+)?"
    ),
    "evaluation": re.compile(
        r"(?i)_?(evaluat(e|ion)(_and_\w+)?|validate|run_evaluation"
        r"|(eval|evaluation|validation)_(loop|step|epoch))"
    ),
    "first step": re.compile(
        r"(?i)compile_fx\w*|_?compile(_inner)?|autotune|init_process_group|initialize_megatron"
        r"|_?load_(checkpoint|ckpt|state_dict|model|pretrained)\w*|from_pretrained"
        r"|build_\w*(dataset|index|mapping|model)\w*"
    ),
}


def stack_phases(samples: Sequence[StackSample]) -> list[Phase]:
    """Return the spans in which a rank saves a checkpoint, evaluates, or prepares the first step.

    The last span is open. A stall in a call in which the job has been stalled before, and which it
    then left, is also a phase: some programs write checkpoints with their own functions.

    Parameters
    ----------
    samples : sequence of StackSample
        In time order, none after the verdict.
    """
    phases: list[Phase] = []
    last = samples[-1].time if samples else 0
    for kind, pattern in _PHASE_FUNCTIONS.items():
        for first, end in _merge_times(
            [sample.time for sample in samples if _contains_call(sample, pattern)]
        ):
            ended = None if end == last else end + _PHASE_MARGIN
            phases.append(Phase(kind, first - 2 * _PHASE_MARGIN, ended, last_seen=end))
    return sorted([*phases, *_repeated_stalls(samples)], key=lambda phase: phase.begin)


def _merge_times(times: Sequence[int]) -> list[tuple[int, int]]:
    """Merge times that are close to each other into spans."""
    spans: list[tuple[int, int]] = []
    for time in times:
        if spans and time - spans[-1][1] <= _MAX_SAMPLE_GAP:
            spans[-1] = spans[-1][0], time
        else:
            spans.append((time, time))
    return spans


def _repeated_stalls(samples: Sequence[StackSample]) -> list[Phase]:
    """Return the stalls in the calls of the last sample, if an earlier one has ended."""
    calls = _calls_outside_waits(samples[-1]) if samples else frozenset()
    if not calls:
        return []
    spans = _merge_times(
        [sample.time for sample in samples if _calls_outside_waits(sample) == calls]
    )
    past = [
        Phase("repeat", first - 2 * _PHASE_MARGIN, end + _PHASE_MARGIN)
        for first, end in spans[:-1]
        if end > first
    ]
    return [*past, Phase("repeat", spans[-1][0] - 2 * _PHASE_MARGIN, None)] if past else []


def _calls_outside_waits(sample: StackSample) -> frozenset[tuple[str, str]]:
    """Return the innermost calls of ranks that do not wait, while others wait for them."""
    stacks = set[Stack](sample.stacks.values())
    outside = {stack[0][:2] for stack in stacks if classify_wait(stack) is None}
    return frozenset(outside if len(outside) < len(stacks) else ())


def _contains_call(sample: StackSample, pattern: re.Pattern[str]) -> bool:
    stacks = set[Stack](sample.stacks.values())  # most of thousands of stacks are equal
    return any(pattern.fullmatch(call.name) for stack in stacks for call in stack)
