"""A training task as the detector sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int64Array
from forewarn.models.detection.peer_deviation import MIN_GROUP_SIZE

__all__ = ["POOLED", "Task", "TaskSource", "TrainingTask", "comparison_groups", "job_name"]


POOLED = -1  # pooled group of machines whose own groups are too small

_OFFSET_SUFFIX = re.compile(r"-\d{5,}$")


@dataclass(frozen=True, slots=True)
class Task:
    """The machines of a task over a span of time.

    Attributes
    ----------
    machines : tuple of str
    first_tick : int
        Number of the first tick, the same in every call.
    n_ticks : int
    series : callable
        Maps a metric name to its unscaled samples, shape (n_machines, n_ticks), or to None if
        the task lacks the metric. Metrics are read on demand.
    groups : ndarray of shape (n_machines,), int
        Peer group of each machine: machines that do the same work.
    weights : ndarray of shape (n_machines,)
        How many times as likely a false alarm on each machine may be; 1 on average.
    group_names : tuple of str
        Name of each machine's group, the same in every task; empty if groups have no names.
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
        """Tell which machines have too few peers for a comparison."""
        return np.asarray(comparison_groups(self.groups) == POOLED, dtype=bool)

    def group_of(self, machine: int) -> str:
        """Return the name of a machine's group; empty if groups have no names."""
        return self.group_names[machine] if self.group_names else ""


def comparison_groups(groups: Int64Array) -> Int64Array:
    """Return the groups to compare within; groups of one or two machines become `POOLED`.

    Two of three machines can outvote the third. With two machines it is impossible to tell which
    one is faulty, and machines of other groups do different work.

    Examples
    --------
    >>> comparison_groups(np.array([7, 7, 7, 1, 2, 2])).tolist()
    [7, 7, 7, -1, -1, -1]
    """
    _, number, count = np.unique(groups, return_inverse=True, return_counts=True)
    return np.where((count >= MIN_GROUP_SIZE)[number], groups, POOLED).astype(np.int64)


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """A task that is assumed to be healthy.

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
    """Return the job of a task: the task name without a suffix of five or more digits.

    Examples
    --------
    >>> job_name("sort-00900"), job_name("sort-7")
    ('sort', 'sort-7')
    """
    return _OFFSET_SUFFIX.sub("", task)
