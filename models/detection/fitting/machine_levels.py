"""Score levels of single machines, for sites where a machine keeps its name from task to task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.models.detection.threshold import TAIL_QUANTILE, log_scores

__all__ = ["machine_levels"]


_N_BURN_IN_TASKS = 7  # first tasks of a machine, which do not count
_PRIOR_TASKS = 16.0  # further tasks at which half of a machine's level is used


def machine_levels(tasks: Iterable[tuple[Sequence[str], Float32Array]]) -> dict[str, float]:
    """Return how far the log score of each machine lies above that of all machines.

    The upper fifths are compared, because thresholds are fitted to them. A machine's level is
    shrunk towards 0 like an empirical Bayes estimate: n tasks after the first seven count as
    n / (n + 16).

    Parameters
    ----------
    tasks : iterable of (sequence of str, ndarray of shape (n_machines,))
        The machines of each healthy task, and the highest threshold that each would still have
        reached; not finite where a machine has no score.

    Returns
    -------
    dict of str to float
        Level of each machine that was in eight tasks or more.

    Examples
    --------
    >>> loud_and_quiet = np.float32([4.0, 1.0])
    >>> levels = machine_levels([(("a", "b"), loud_and_quiet)] * 39)
    >>> {name: round(level / float(np.log(4.0)), 3) for name, level in levels.items()}
    {'a': 0.0, 'b': -0.667}
    """
    by_machine: dict[str, list[float]] = {}
    for machines, levels in tasks:
        logs, known = log_scores(levels), np.isfinite(levels)
        for machine in np.flatnonzero(known).tolist():
            by_machine.setdefault(machines[machine], []).append(float(logs[machine]))
    if not by_machine:
        return {}
    overall = float(np.quantile(np.concatenate(list(by_machine.values())), TAIL_QUANTILE))
    counted = {name: (len(logs) - _N_BURN_IN_TASKS, logs) for name, logs in by_machine.items()}
    return {
        name: n / (n + _PRIOR_TASKS) * (float(np.quantile(logs, TAIL_QUANTILE)) - overall)
        for name, (n, logs) in counted.items()
        if n > 0
    }
