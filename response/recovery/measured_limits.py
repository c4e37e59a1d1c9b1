"""Time limits of rungs from what restarts took at a site."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.state.rung import Rung

__all__ = ["measured_limits"]

_LEAST_MEASURED: Final = 5
_TIMES_MEDIAN: Final = 3  # half of all restarts take longer than the median


def measured_limits(rules: LadderRules, taken: Iterable[tuple[Rung, float]]) -> LadderRules:
    """Return rules with three times the median for each rung that was measured five times.

    Parameters
    ----------
    rules : LadderRules
    taken : iterable of (Rung, float)
        Seconds from the begin of a rung to the first step.

    Examples
    --------
    >>> rules = measured_limits(LadderRules({}), [(Rung.REQUEUE, 60.0)] * 5)
    >>> rules.limits[Rung.REQUEUE] // SECOND
    180
    """
    by_rung: defaultdict[Rung, list[float]] = defaultdict(list)
    for rung, seconds in taken:
        by_rung[rung].append(seconds)
    measured: dict[Rung, Nanoseconds] = {
        rung: Nanoseconds(round(_TIMES_MEDIAN * statistics.median(spans) * SECOND))
        for rung, spans in by_rung.items()
        if len(spans) >= _LEAST_MEASURED and rung is not Rung.RESUBMIT
    }
    return replace(rules, limits={**rules.limits, **measured})
