"""How far the clocks of machines are apart, by events that all of them write down."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

__all__ = ["clock_offsets"]

_MIN_SHARED_STEPS = 3  # events that a machine shares with others


def clock_offsets(events: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, int]:
    """Return by how much the clock of each machine is ahead of the median machine.

    A step of training ends on all ranks at about the same time, as it holds a collective of all.

    Parameters
    ----------
    events : mapping of str to sequence of (int, int)
        Of each machine the numbers of steps, and when it wrote them down, in nanoseconds.

    Returns
    -------
    dict of str to int
        Nanoseconds; machines that share fewer than 3 steps with others are left out.

    Examples
    --------
    >>> steps = [(1, 100), (2, 200), (3, 300)]
    >>> ahead = [(n, time + 50) for n, time in steps]
    >>> clock_offsets({"a": steps, "b": steps, "c": ahead})
    {'a': 0, 'b': 0, 'c': 50}
    """
    times: dict[int, dict[str, int]] = {}
    for machine, steps in events.items():
        for step, time in steps:
            times.setdefault(step, {})[machine] = time
    shared = [row for row in times.values() if len(row) > 1]
    differences: dict[str, list[int]] = {}
    for row in shared:
        middle = statistics.median_low(row.values())
        for machine, time in row.items():
            differences.setdefault(machine, []).append(time - middle)
    return {
        machine: int(statistics.median_low(values))
        for machine, values in sorted(differences.items())
        if len(values) >= _MIN_SHARED_STEPS
    }
