"""The joint score: how far a machine moved from its peers on all metrics together.

A machine that does other work than its peers differs a little on most metrics, and on none by as
much as healthy machines do now and then. The root mean square over the metrics finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int64Array
from forewarn.models.detection.baseline_scoring import past_offsets
from forewarn.models.detection.continuity import continuity_levels
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detection_verdict import MachineFinding
from forewarn.models.detection.machine_baseline import MachineBaseline

__all__ = ["JOINT", "JointScores", "joint_scores"]

JOINT = "joint"  # in place of the name of a metric
_MIN_METRICS = 3
_UNIT = 0.02  # of the range: a score of 1 is the smallest difference worth acting on
_NAMED_SHARE = 0.8  # metrics are listed until they make up this share of a score


@dataclass(frozen=True, slots=True)
class JointScores:
    """Scores of each machine in each block of a call.

    Attributes
    ----------
    metrics : tuple of str
    changes : ndarray of shape (n_metrics, n_machines, n_blocks), float32
        Change of the difference from the peers, as a share of the range; NaN if unknown.
    scores : ndarray of shape (n_machines, n_blocks), float32
    first, last : ndarray of shape (n_blocks,), int
        First and last tick of each block in the call.
    span : int
        Blocks per continuity.
    """

    metrics: tuple[str, ...]
    changes: Float32Array
    scores: Float32Array
    first: Int64Array
    last: Int64Array
    span: int

    def levels(self) -> Float32Array:
        """Return the highest threshold that holds for each continuity, by its last block."""
        return continuity_levels(self.scores, self.span)

    def highest(self) -> Float32Array:
        """Return the highest threshold that each machine would have reached."""
        reached: Float32Array = self.levels().max(axis=1, initial=-np.inf)
        return reached

    def findings(self, threshold: Float64Array) -> list[MachineFinding]:
        """Return the machines that reached their threshold, the strongest first.

        If one metric makes up nearly all of a score, it is not a change of several metrics.
        """
        levels = self.levels()
        machines = np.flatnonzero((levels >= threshold[:, None]).any(axis=1)).tolist()
        findings = [self._finding(each, levels[each], threshold[each]) for each in machines]
        several = [finding for finding in findings if len(finding.metrics) > 1]
        return sorted(several, key=lambda finding: -finding.score)

    def _finding(self, machine: int, levels: Float32Array, threshold: float) -> MachineFinding:
        at = int(np.argmax(levels >= threshold))
        begin = at - self.span + 1
        return MachineFinding(
            machine=machine,
            metric=JOINT,
            score=float(levels.max() / threshold),
            since=int(self.first[begin]),
            at=int(self.last[at]),
            metrics=self._shares(machine, begin, at),
        )

    def _shares(self, machine: int, begin: int, at: int) -> tuple[tuple[str, float], ...]:
        """Return the metrics that make up most of a score, with their shares of its square."""
        squares = np.nan_to_num(self.changes[:, machine, begin : at + 1] ** 2).sum(axis=1)
        shares = squares / squares.sum()
        order = np.argsort(-shares, kind="stable")
        n = int(np.searchsorted(np.cumsum(shares[order]), _NAMED_SHARE)) + 1
        return tuple((self.metrics[i], float(shares[i])) for i in order[:n].tolist())


def joint_scores(
    baselines: Mapping[str, MachineBaseline], rules: DetectionRules, first_tick: int, n_ticks: int
) -> JointScores | None:
    """Combine the changes on all metrics of a task.

    Parameters
    ----------
    baselines : mapping of str to MachineBaseline
        By metric, updated by the call, for the same machines.
    rules : DetectionRules
    first_tick, n_ticks : int
        The span of the call.

    Returns
    -------
    JointScores or None
        None with fewer than three metrics, or without a whole block.
    """
    if len(baselines) < _MIN_METRICS:
        return None
    blocks = _common_blocks(list(baselines.values()), rules, first_tick)
    if not len(blocks):
        return None
    changes = np.stack([_changes(each, blocks, rules) for each in baselines.values()])
    known = np.isfinite(changes).sum(axis=0)
    square = np.nansum(changes**2, axis=0) / np.maximum(known, 1)
    scores = np.where(2 * known >= len(changes), np.sqrt(square) / _UNIT, np.nan)
    first = np.clip(blocks * rules.block - first_tick, 0, n_ticks - 1)
    last = np.clip((blocks + 1) * rules.block - 1 - first_tick, 0, n_ticks - 1)
    span = -(-rules.continuity // rules.block)
    names = tuple(baselines)
    return JointScores(names, changes, scores.astype(np.float32), first, last, span)


def _common_blocks(
    baselines: Sequence[MachineBaseline], rules: DetectionRules, first_tick: int
) -> Int64Array:
    """Return the blocks of the call in which every metric was compared."""
    blocks = baselines[0].blocks
    for baseline in baselines[1:]:
        blocks = np.intersect1d(blocks, baseline.blocks)
    begin = first_tick + rules.window - 1  # the last tick of the first window
    return blocks[blocks * rules.block + rules.block > begin]


def _changes(baseline: MachineBaseline, blocks: Int64Array, rules: DetectionRules) -> Float32Array:
    """Return how far each machine has moved since the blocks that it is compared with."""
    column = np.searchsorted(baseline.blocks, blocks)
    before = past_offsets(baseline, blocks, rules.baseline)
    changes: Float32Array = np.abs(baseline.measured[:, column] - before.T)
    return changes
