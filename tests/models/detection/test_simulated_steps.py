"""A slow worker of a pipeline, seen by how each worker's time is spent, in three groupings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.detection.test_detector import RULES, USUAL, Floats, named, task

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.detection.metric_role import guess_role
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.threshold import Threshold

METRICS = ("compute", "collective", "waiting")
TICKS, SLOW_FROM = 300, 150
LEVEL = Threshold(base=float(np.log(3.0)), slope=0.0, margin=0.0, tail=0.2)


@dataclass(frozen=True)
class Steps:
    """A job of pipelines that work on steps together.

    In a step a pipeline takes as long as its slowest stage needs for all microbatches; then each
    stage exchanges gradients with the same stage of the other pipelines.
    """

    stages: int
    replicas: int
    microbatches: int
    exchange: float
    slow: int
    factor: float
    seed: int

    def shares(self) -> dict[str, Floats]:
        """Return the shares of the step time that each worker spends, by tick."""
        generator = np.random.default_rng(self.seed)
        n = self.stages * self.replicas
        usual = np.repeat(generator.uniform(0.8, 1.2, self.stages), self.replicas)
        work = usual[:, None] * generator.normal(1.0, 0.005, (n, TICKS))
        work[self.slow, SLOW_FROM:] *= self.factor
        by_stage = work.reshape(self.stages, self.replicas, TICKS)
        pipelines = by_stage.max(axis=0) * (self.microbatches + self.stages - 1)
        exchange = self.exchange * self.microbatches
        step = pipelines.max(axis=0) + exchange
        compute = work * self.microbatches
        own = np.tile(pipelines, (self.stages, 1))
        collective = step - own
        parts = (compute, collective, step - compute - collective)
        return {
            name: np.asarray(part / step, dtype=np.float32)
            for name, part in zip(METRICS, parts, strict=True)
        }

    def groups(self, view: str) -> list[int]:
        """Return the groups: workers of one stage, of one pipeline, or all."""
        workers = np.arange(self.stages * self.replicas)
        by = {"stage": workers // self.replicas, "pipeline": workers % self.replicas}
        return by.get(view, 0 * workers).tolist()


STEPS = st.builds(
    Steps,
    stages=st.integers(3, 6),
    replicas=st.integers(2, 6),
    microbatches=st.integers(4, 16),
    exchange=st.floats(0.1, 0.5),
    slow=st.integers(0, 5),
    factor=st.floats(1.0, 2.2),
    seed=st.integers(0, 10**6),
)


def judge(steps: Steps, view: str) -> list[int]:
    models = [
        MetricModel((MetricLimits(name, 0.0, 1.0, role=guess_role(name)),), None, USUAL, LEVEL)
        for name in METRICS
    ]
    verdict, _ = Detector(RULES, models).find(task(steps.shares(), steps.groups(view)))
    return named(verdict)


@pytest.mark.parametrize(("view", "certain"), [("stage", 1.4), ("pipeline", 2.0), ("job", 1.7)])
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_no_other_worker_is_named(view: str, certain: float, steps: Steps) -> None:
    names = judge(steps, view)
    assert names in ([], [steps.slow])
    assert names or steps.factor < certain
