"""A running task as the detector sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int64Array
from forewarn.models.detection.peer_deviation import MIN_GROUP_SIZE

__all__ = ["POOLED", "Task", "TaskSource", "TrainingTask", "comparison_groups", "job_name"]


POOLED = -1  # the group of machines whose own groups are too small to compare within

_OFFSET_SUFFIX = re.compile(r"-\d{5,}$")


@dataclass(frozen=True, slots=True)
class Task:
    """The machines of a task in a span of time.

    Attributes
    ----------
    machines : tuple of str
    first_tick : int
        Number of the first tick, the same in every call.
    n_ticks : int
    series : callable
        Name of a metric to its samples, shape (n_machines, n_ticks), as they came; None where the
        task has no such metric. It is read when it is asked for.
    groups : ndarray of shape (n_machines,), int
        Machines that do the same work.
    weights : ndarray of shape (n_machines,)
        How many times as likely a false alarm on each machine may be; 1 in the mean.
    group_names : tuple of str
        Of the group of each machine, the same in every task; empty if groups have no names.
    """

    machines: tuple[str, ...]
    first_tick: int
    n_ticks: int
    series: Callable[[str], Float32Array | None]
    groups: Int64Array
    weights: Float64Array
    group_names: tuple[str, ...] = ()

    @property
    def in_small_group(self) -> BoolArray:
        """Tell which machines have too few others of their group to be compared with."""
        return np.asarray(comparison_groups(self.groups) == POOLED, dtype=bool)

    def group_of(self, machine: int) -> str:
        """Return the name of a machine's group; empty where groups have none."""
        return self.group_names[machine] if self.group_names else ""


def comparison_groups(groups: Int64Array) -> Int64Array:
    """Return the groups to compare within; `POOLED` for those of one or two machines.

    Of three machines two can outvote the third. Of two nobody can tell which is the odd one, and
    the machines of other groups do other work.

    Examples
    --------
    >>> comparable(np.array([7, 7, 7, 1, 2, 2])).tolist()
    [7, 7, 7, -1, -1, -1]
    """
    _, number, count = np.unique(groups, return_inverse=True, return_counts=True)
    return np.where((count >= MIN_GROUP_SIZE)[number], groups, POOLED).astype(np.int64)


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


TaskSource = Callable[[], Iterator[TrainingTask]]


def job_name(task: str) -> str:
    """Return the job of a task: its name without an offset of five digits or more at its end.

    Examples
    --------
    >>> job_of("sort-00900"), job_of("sort-7")
    ('sort', 'sort-7')
    """
    return _OFFSET_SUFFIX.sub("", task)
