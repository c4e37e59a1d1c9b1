"""The scores of one metric of a task, and the machines they identify."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int64Array
from forewarn.models.detection.continuity import continuity_levels, longest_excursions
from forewarn.models.detection.detection_rules import CONFIDENT_SCORE, DetectionRules
from forewarn.models.detection.detection_verdict import Jitter, MachineFinding
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.monitored_task import comparison_groups

__all__ = ["ScoredMetric"]


_MIN_SHARE_AT_LIMIT = 0.25  # share of the samples of a span
_TYPICAL_OFFSET_SHARE = 0.5  # share of the tolerated offset by which nearly all machines differ
_MAX_OUTLIER_SHARE = (
    1.0 / 3.0
)  # share of a group above which the peers alone cannot tell who is faulty


@dataclass(frozen=True, slots=True)
class ScoredMetric:
    """Scores of one metric of a task, per machine and window.

    Attributes
    ----------
    metric : str
    rules : DetectionRules
    scores : ndarray of shape (n_machines, n_windows), float32
    window : ndarray of shape (n_windows,), int
        First tick of each window; windows of a pause are left out.
    baseline : MachineBaseline
    blind : ndarray of shape (n_machines,), bool
    new : ndarray of shape (n_machines,), bool
        The machine had no baseline before this call.
    at_limit : ndarray of shape (n_machines, n_ticks), bool
        Samples at the upper limit of the metric.
    ungrouped : ndarray of shape (n_machines,), bool
        Machines whose group is too small for comparison and unknown from healthy tasks.
    tolerated : float
        Largest offset that is tolerated.
    """

    metric: str
    rules: DetectionRules
    scores: Float32Array
    window: Int64Array
    baseline: MachineBaseline
    blind: BoolArray
    new: BoolArray
    at_limit: BoolArray
    ungrouped: BoolArray
    tolerated: float

    def highest(self) -> Float32Array:
        """Return the highest threshold that each machine would have reached."""
        if not self.scores.shape[1]:
            return np.full(len(self.scores), -np.inf, dtype=np.float32)
        reached: Float32Array = continuity_levels(
            self.scores, self.rules.continuity, self.rules.continuity_share
        ).max(axis=1)
        return reached

    def is_lasting(self, machine: int, threshold: float) -> bool:
        """Tell whether a machine has exceeded the threshold since its first sample."""
        scores = self.scores[machine : machine + 1]
        reached = continuity_levels(scores, self.rules.continuity, self.rules.continuity_share)[0]
        at = int(np.argmax(reached >= threshold))
        return self._finding(machine, at, reached, threshold).lasting

    def findings(self, threshold: Float64Array, groups: Int64Array) -> list[MachineFinding]:
        """Return the machines that deviated for a full continuity, the most relevant first.

        Parameters
        ----------
        threshold : ndarray of shape (n_machines,)
            The threshold of each machine.
        groups : ndarray of shape (n_machines,)
        """
        reached = continuity_levels(
            self.scores,
            self.rules.continuity,
            self.rules.continuity_share,
            float(threshold.min(initial=np.inf)),
        )
        findings = []
        for machine in np.flatnonzero((reached >= threshold[:, None]).any(axis=1)).tolist():
            at = int(np.argmax(reached[machine] >= threshold[machine]))
            findings.append(self._finding(machine, at, reached[machine], threshold[machine]))
        groups = comparison_groups(groups)
        findings = [
            finding for finding in findings if not self._shows_hidden_offset(finding, groups)
        ]
        findings = self._keep_changed(groups, findings)
        return sorted(findings, key=lambda finding: (finding.lasting, finding.at, -finding.score))

    def jitters(self, threshold: Float64Array) -> list[Jitter]:
        """Return machines that deviated without a break for a while and then recovered.

        Noise exceeds the threshold for a few windows now and then. It does not exceed twice the
        threshold for longer than one outlying sample affects. A machine has recovered when its
        score is below the threshold.
        """
        if not self.scores.shape[1]:
            return []
        low: Float32Array = threshold.astype(np.float32)
        spells = longest_excursions(
            self.scores, np.float32(CONFIDENT_SCORE) * low, low, self.rules.recovery_windows
        )
        length, jitters = self.rules.window, []
        for machine in np.flatnonzero(spells[:, 1] - spells[:, 0] >= 2 * length).tolist():
            begin, end = spells[machine].tolist()
            score = float(self.scores[machine, begin:end].max() / low[machine])
            since, until = int(self.window[begin]), int(self.window[end - 1]) + length - 1
            jitters.append(Jitter(machine, self.metric, score, since, until))
        return jitters

    def _finding(
        self, machine: int, at: int, reached: Float32Array, threshold: float
    ) -> MachineFinding:
        """Locate the start of the deviation; isolated windows before it do not count."""
        begin = max(at - self.rules.continuity + 1, 0)
        span = self.scores[machine, begin : at + 1]
        present = np.flatnonzero(~np.isnan(span))  # lost samples do not interrupt a deviation
        passed = np.flatnonzero(span[present] >= threshold)
        gaps = np.flatnonzero(np.diff(passed) > self.rules.recovery_windows)
        begin += int(present[passed[gaps[-1] + 1 if len(gaps) else 0]])
        first = int(np.argmax(~np.isnan(self.scores[machine])))
        return MachineFinding(
            machine=int(machine),
            metric=self.metric,
            score=float(reached.max() / threshold),
            since=int(self.window[begin]),
            at=int(self.window[at]) + self.rules.window - 1,
            lasting=bool(self.new[machine]) and begin - first < self.rules.baseline.block,
        )

    def _shows_hidden_offset(self, finding: MachineFinding, groups: Int64Array) -> bool:
        """Tell whether a weak finding only shows an offset that the metric's limit used to hide.

        While all machines are at 100 %, their differences are invisible; they appear when the task
        slows down. The machine still at 100 % has not changed. A machine that leaves the limit by
        no more than the tolerated offset may always have been the lowest.
        """
        if self.rules.mode == "minder" or finding.score >= CONFIDENT_SCORE:
            return False
        since = max(finding.since, 0)
        own = self.at_limit[finding.machine]
        if own[since : finding.at + 1].mean() >= _MIN_SHARE_AT_LIMIT:
            return True
        others = self.at_limit[groups == groups[finding.machine]].mean(axis=0) > 0.5
        was_hidden = since > 0 and (own & others)[:since].mean() >= _MIN_SHARE_AT_LIMIT
        return bool(
            was_hidden and 1.0 - self._level(finding) <= _TYPICAL_OFFSET_SHARE * self.tolerated
        )

    def _level(self, finding: MachineFinding) -> float:
        """Return the machine's level in the span of a finding; -inf if unknown."""
        inside = (self.window >= finding.since) & (self.window <= finding.at)
        scored = self.baseline.scored
        numbers = scored.window[inside] // self.rules.block if scored else np.empty(0)
        level = self.baseline.level[finding.machine, np.isin(self.baseline.blocks, numbers)]
        level = level[~np.isnan(level)]
        return float(np.median(level)) if len(level) else -np.inf

    def _keep_changed(
        self, groups: Int64Array, findings: list[MachineFinding]
    ) -> list[MachineFinding]:
        """Keep the machines that changed themselves, if many machines of a group deviate.

        Two of four machines deviate from the other two as much as these from them. The faulty ones
        are those whose own level moved. If half of the group moved, no machine is identified.
        """
        if self.rules.mode == "minder" or len(findings) < 2 or not self.baseline.blocks.size:
            return findings
        moved_themselves: list[MachineFinding] = []
        for group in np.unique(groups[[finding.machine for finding in findings]]):
            of_group = [finding for finding in findings if groups[finding.machine] == group]
            size = int((groups == group).sum())
            if len(of_group) >= max(2, _MAX_OUTLIER_SHARE * size):
                moved = [_level_shift(self.baseline.level[finding.machine]) for finding in of_group]
                most = max(moved)
                of_group = [
                    finding for finding, by in zip(of_group, moved, strict=True) if by >= 0.5 * most
                ]
                of_group = of_group if 2 * len(of_group) <= size else []
            moved_themselves += of_group
        return moved_themselves


def _level_shift(level: Float32Array) -> float:
    """Return how far the newest blocks of a machine are from its first ones."""
    present = level[~np.isnan(level)]
    n = max(len(present) // 4, 1)
    return float(abs(np.median(present[-n:]) - np.median(present[:n]))) if len(present) else 0.0
