"""Restart point: the last step that a job can continue from, as its logs state it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["CheckpointLine", "RestartPoint", "last_saved_step"]


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """Step at which a job can continue.

    Attributes
    ----------
    step : int
    is_saved : bool
        Whether the step is that of the last checkpoint; otherwise it is the last one seen.
    """

    step: int
    is_saved: bool


class CheckpointLine(NamedTuple):
    """A line of a log that says that a checkpoint is being saved, or was saved.

    Attributes
    ----------
    is_end : bool
        It was saved.
    step : int or None
        None if the line does not state it.
    """

    is_end: bool
    step: int | None


def last_saved_step(lines: Iterable[CheckpointLine], last_step: int | None) -> int | None:
    """Return the step of the last checkpoint that was saved, or None if no line states it.

    A line without a step means the checkpoint that began before it. A program that never says that
    a checkpoint was saved has saved it once it makes further steps.

    Parameters
    ----------
    lines : iterable of CheckpointLine
        In the order of the log.
    last_step : int or None
        Last step that the log shows.

    Examples
    --------
    >>> begun, saved = CheckpointLine(False, 400), CheckpointLine(True, None)
    >>> last_saved_step([begun, saved, CheckpointLine(False, 500)], 510)
    400
    >>> last_saved_step([begun, CheckpointLine(False, 500)], 500)
    400
    """
    begun: int | None = None
    steps = set[int]()
    saved = set[int]()
    has_ends = False
    for line in lines:
        has_ends |= line.is_end
        begun = begun if line.step is None else line.step
        if begun is not None:
            (saved if line.is_end else steps).add(begun)
    if not has_ends and last_step is not None:
        saved = {step for step in steps if step < last_step}
    return max(saved, default=None)
