"""Tasks that a detector is trained on, and the jobs that they belong to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forewarn.models.detection.task import Task

__all__ = ["Source", "TrainingTask", "job_of"]

_OFFSET = re.compile(r"-\d{5,}$")


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """A task that is taken for healthy.

    Attributes
    ----------
    name : str
    task : Task
    days : float
    """

    name: str
    task: Task
    days: float


Source = Callable[[], Iterator[TrainingTask]]


def job_of(task: str) -> str:
    """Return the job of a task: its name without an offset of five digits or more at its end.

    Examples
    --------
    >>> job_of("sort-00900"), job_of("sort-7")
    ('sort', 'sort-7')
    """
    return _OFFSET.sub("", task)
