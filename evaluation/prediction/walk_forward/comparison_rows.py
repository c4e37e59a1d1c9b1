"""Rows of a test window that any later comparison of training spans can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from forewarn.evaluation.prediction.walk_forward.fleet_survey import FleetSurvey
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import is_finished
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.array_types import BoolArray, Int64Array
from forewarn.features.prediction.instances import (
    end_of_failure_unknown,
    hours_to_failure,
    window_without_failures,
)

__all__ = ["ComparisonRows"]


@dataclass(frozen=True, slots=True)
class ComparisonRows:
    """The union of all 1:8 sets that a window can have at later retrainings.

    A 1:8 set depends on the failures and healthy GPUs known when it is drawn. The union contains
    all instances that may be known to fail. It also contains the other instances with the smallest
    hashes, until it includes as many certainly healthy ones as the largest set needs. If a healthy
    instance is unknown at some moment, the next one in the union takes its place.

    Attributes
    ----------
    settings : WalkForwardSettings
    fleet : FleetSurvey
    seen_before : dict of int to ndarray of shape (n_gpus,)
        Last record of each GPU before every retraining (`InstanceSurvey`).
    """

    settings: WalkForwardSettings
    fleet: FleetSurvey
    seen_before: Mapping[int, Int64Array]

    def __call__(self, window: WindowScores) -> Int64Array:
        """Return the rows in ascending order; empty if no later retraining uses the window."""
        later = self._later(window.start)
        if not later:
            return np.zeros(0, dtype=np.int64)
        may_fail = self._may_fail(window)
        healthy = ~may_fail & self._known_healthy(window, later)
        n_healthy = round(self.settings.negatives_per_positive * int(may_fail.sum()))
        hashes = np.sort(window.hashes[healthy])
        if n_healthy > len(hashes):
            return np.arange(len(window.hashes))
        if not n_healthy:
            return np.flatnonzero(may_fail)
        return np.flatnonzero(may_fail | (window.hashes <= hashes[n_healthy - 1]))

    def _later(self, start: int) -> list[int]:
        """Return the retrainings at which a test window is finished."""
        every, horizon = self.settings.every, self.settings.recipe.horizon
        return [
            moment
            for moment in sorted(self.seen_before)
            if is_finished(start, moment, every=every, horizon=horizon)
        ]

    def _may_fail(self, window: WindowScores) -> BoolArray:
        """Return which instances fail within the horizon according to any source."""
        failures = self.fleet.failures
        order = np.lexsort((failures.failed_at, failures.gpu))
        timeline = replace(self.fleet.truth, failures=failures.select(order))
        instances, horizon = window.instances, self.settings.recipe.horizon
        hours = hours_to_failure(timeline, instances.gpu, instances.end, horizon)
        return np.isfinite(hours)

    def _known_healthy(self, window: WindowScores, later: list[int]) -> BoolArray:
        """Return which instances are known to be healthy at all later retrainings."""
        recipe, instances = self.settings.recipe, window.instances
        gpu, end = instances.gpu, instances.end
        healthy = window_without_failures(self.fleet.failures, gpu, end, recipe.window_span)
        healthy &= ~self.fleet.newest.out_of_service.within(gpu, end, recipe.horizon)
        healthy &= ~end_of_failure_unknown(self.fleet.failures, gpu, end)
        after = window.start + self.settings.every + recipe.horizon
        seen = np.ones(len(self.fleet.serials), dtype=bool)
        for moment in later:
            seen &= self.seen_before[moment] >= max(after, moment - self.settings.reach)
        return np.asarray(healthy & seen[gpu])
