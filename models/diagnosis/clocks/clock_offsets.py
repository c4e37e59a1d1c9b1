"""Clock offsets of machines, estimated from training steps that all of them log."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

__all__ = ["clock_offsets"]

_MIN_SHARED_STEPS = 3


def clock_offsets(events: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, int]:
    """Return by how much each machine's clock is ahead of the median machine.

    A training step contains a collective of all ranks and ends on all of them at about the same
    time.

    Parameters
    ----------
    events : mapping of str to sequence of (int, int)
        Step number and log time in nanoseconds, by machine.

    Returns
    -------
    dict of str to int
        Nanoseconds. Machines that share fewer than 3 steps with others are omitted.

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
