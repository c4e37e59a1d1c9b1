"""What single machines reach beside the others, where names are the same in each task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.models.detection.threshold import TAIL_QUANTILE, log_scores

__all__ = ["machine_levels"]


_N_BURN_IN_TASKS = 7  # tasks of a machine that say nothing of it yet
_PRIOR_TASKS = 16.0  # tasks beyond these that make half of what a machine shows believed


def machine_levels(tasks: Iterable[tuple[Sequence[str], Float32Array]]) -> dict[str, float]:
    """Return by how much the logarithm of what each machine reaches lies above the others'.

    Compared are upper fifths, from which thresholds are fitted. What a machine differs by is drawn
    towards 0 like the mean of an empirical Bayes estimate: n tasks after the first
    seven count as n / (n + 16).

    Parameters
    ----------
    tasks : iterable of (sequence of str, ndarray of shape (n_machines,))
        The machines of each healthy task, and the highest threshold at which each of them would
        still have been named; not finite where nothing can be said.

    Returns
    -------
    dict of str to float
        Machines of eight tasks and more.

    Examples
    --------
    >>> loud_and_quiet = np.float32([4.0, 1.0])
    >>> levels = machine_levels([(("a", "b"), loud_and_quiet)] * 39)
    >>> {name: round(level / float(np.log(4.0)), 3) for name, level in levels.items()}
    {'a': 0.0, 'b': -0.667}
    """
    reached: dict[str, list[float]] = {}
    for machines, levels in tasks:
        logs, known = log_scores(levels), np.isfinite(levels)
        for machine in np.flatnonzero(known).tolist():
            reached.setdefault(machines[machine], []).append(float(logs[machine]))
    if not reached:
        return {}
    usual = float(np.quantile(np.concatenate(list(reached.values())), TAIL_QUANTILE))
    shown = {name: (len(logs) - _N_BURN_IN_TASKS, logs) for name, logs in reached.items()}
    return {
        name: n / (n + _PRIOR_TASKS) * (float(np.quantile(logs, TAIL_QUANTILE)) - usual)
        for name, (n, logs) in shown.items()
        if n > 0
    }
