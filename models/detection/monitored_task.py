"""A training task as the detector sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int64Array
from forewarn.models.detection.peer_deviation import MIN_GROUP_SIZE

__all__ = [
    "POOLED",
    "Task",
    "TaskSource",
    "TrainingTask",
    "comparison_groups",
    "job_name",
    "partners",
]


POOLED = -1  # pooled group of machines whose own groups are too small
_POSITIONS = (-2, -3)  # groups of the first and the second members of groups of two

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
        """Tell which machines have too few peers for a comparison within their group."""
        return np.asarray(comparison_groups(self.groups) < 0, dtype=bool)

    @property
    def by_position(self) -> BoolArray:
        """Tell which machines are compared with the same position in other groups of two."""
        return np.asarray(partners(self.groups) >= 0, dtype=bool)

    def group_of(self, machine: int) -> str:
        """Return the name of a machine's group; empty if groups have no names."""
        return self.group_names[machine] if self.group_names else ""


def comparison_groups(groups: Int64Array) -> Int64Array:
    """Return the groups to compare within; those of machines with too few peers are negative.

    Two of three machines can outvote the third. With two machines it is impossible to tell which
    one is faulty. If there are three groups of two, machines with the same position in them are
    compared. The other machines in groups of one or two are `POOLED`.

    Examples
    --------
    >>> comparison_groups(np.array([7, 7, 7, 1, 2, 2])).tolist()
    [7, 7, 7, -1, -1, -1]
    >>> comparison_groups(np.array([0, 0, 1, 1, 2, 2])).tolist()
    [-2, -3, -2, -3, -2, -3]
    """
    _, number, count = np.unique(groups, return_inverse=True, return_counts=True)
    compared = np.where((count >= MIN_GROUP_SIZE)[number], groups, POOLED).astype(np.int64)
    other = partners(groups)
    first = np.arange(len(groups)) < other
    compared[other >= 0] = np.where(first, *_POSITIONS)[other >= 0]
    return compared


def partners(groups: Int64Array) -> Int64Array:
    """Return the other machine of each group of two; -1 unless there are three such groups.

    Examples
    --------
    >>> partners(np.array([0, 0, 1, 1, 2, 2, 3])).tolist()
    [1, 0, 3, 2, 5, 4, -1]
    """
    _, number, count = np.unique(groups, return_inverse=True, return_counts=True)
    members = np.flatnonzero((count == 2)[number])
    pairs = members[np.argsort(number[members], kind="stable")].reshape(-1, 2)
    other = np.full(len(groups), -1, dtype=np.int64)
    if len(pairs) >= MIN_GROUP_SIZE:
        other[pairs], other[pairs[:, ::-1]] = pairs[:, ::-1], pairs
    return other


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
