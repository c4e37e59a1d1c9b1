"""The scores of one metric of a task, and the machines they identify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int64Array
from forewarn.models.detection.accusation import outmove_partners
from forewarn.models.detection.continuity import continuity_levels, longest_excursions
from forewarn.models.detection.detection_rules import CONFIDENT_SCORE, DetectionRules
from forewarn.models.detection.detection_verdict import (
    Jitter,
    MachineFinding,
    Suppressed,
    SuppressionRule,
)
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.monitored_task import comparison_groups
from forewarn.models.detection.sample_scores import SampleScoring

__all__ = ["MetricVerdict", "ScoredMetric"]


_NEAR = 0.5  # share of a threshold below which a machine is not examined further
_MIN_SHARE_AT_LIMIT = 0.25  # share of the samples of a span
_TYPICAL_OFFSET_SHARE = 0.5  # share of the tolerated offset by which nearly all machines differ
_MAX_OUTLIER_SHARE = (
    1.0 / 3.0
)  # share of a group above which the peers alone cannot tell who is faulty


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """What one metric says about the machines of a task.

    Attributes
    ----------
    findings : list of MachineFinding
        Machines that deviated for a full continuity, the most relevant first.
    hints : list of MachineFinding
        Machines that reached half of their threshold, not all of it.
    suppressed : list of Suppressed
        Findings that a rule dropped.
    jitters : list of Jitter
    nearest : float
        Highest threshold that any machine reached, divided by its threshold; 0 if far below.
    """

    findings: list[MachineFinding]
    hints: list[MachineFinding]
    suppressed: list[Suppressed]
    jitters: list[Jitter]
    nearest: float


@dataclass(frozen=True, slots=True)
class _Trace:
    """Scores of some machines over time, and the ticks that each score covers."""

    machines: Int64Array
    scores: Float32Array
    first: Int64Array
    last: Int64Array


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
    paired : ndarray of shape (n_machines,), bool
        Machines whose samples are differences from their partner in a group of two.
    tolerated : float
        Largest offset that is tolerated.
    samples : SampleScoring or None
        None if durations count windows.
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
    paired: BoolArray
    tolerated: float
    samples: SampleScoring | None

    def highest(self) -> Float32Array:
        """Return the highest threshold that each machine would have reached."""
        out = np.full(len(self.scores), -np.inf, dtype=np.float32)
        machines = self._scoring(np.full(len(out), -np.inf))
        if len(machines):
            out[machines] = self._levels(self._trace(machines)).max(axis=1)
        return out

    def is_lasting(self, machine: int, threshold: float) -> bool:
        """Tell whether a machine has exceeded the threshold since its first sample."""
        trace = self._trace(np.array([machine]))
        return self._finding(trace, 0, self._levels(trace)[0], threshold).lasting

    def judge(self, threshold: Float64Array, groups: Int64Array) -> MetricVerdict:
        """Return what one metric says about the machines.

        Parameters
        ----------
        threshold : ndarray of shape (n_machines,)
            The threshold of each machine.
        groups : ndarray of shape (n_machines,)
        """
        machines = self._scoring(_NEAR * threshold)
        if not len(machines):
            return MetricVerdict([], [], [], [], 0.0)
        trace, of_machines = self._trace(machines), threshold[machines]
        levels = self._levels(trace)
        nearest = float((levels.max(axis=1) / of_machines).max())
        near = np.flatnonzero((levels >= _NEAR * of_machines[:, None]).any(axis=1)).tolist()
        reached = [self._finding(trace, row, levels[row], of_machines[row]) for row in near]
        hints = [finding for finding in reached if finding.score < 1.0]
        findings = [finding for finding in reached if finding.score >= 1.0]
        suppressed = self._suppressed(findings, groups)
        dropped = {each.machine for each in suppressed}
        remaining = [finding for finding in findings if finding.machine not in dropped]
        remaining.sort(key=lambda finding: (finding.lasting, finding.at, -finding.score))
        jitters = self._jitters(trace, of_machines)
        return MetricVerdict(remaining, hints, suppressed, jitters, max(nearest, 0.0))

    def _suppressed(
        self, findings: Sequence[MachineFinding], groups: Int64Array
    ) -> list[Suppressed]:
        """Return the findings that do not tell which machine is faulty, with the rule."""
        if self.rules.mode == "minder":
            return []
        unclear = self._unclear(findings, groups)
        findings = [finding for finding in findings if finding not in unclear]
        groups = comparison_groups(groups)
        hidden = [f for f in findings if self._shows_hidden_offset(f, groups)]
        others = [f for f in findings if f not in hidden]
        unchanged = self._unchanged(groups, others)
        rules: tuple[tuple[SuppressionRule, list[MachineFinding]], ...] = (
            ("majority", unclear),
            ("limit", hidden),
            *unchanged,
        )
        return [Suppressed(f.machine, self.metric, f.score, r) for r, fs in rules for f in fs]

    def _unclear(
        self, findings: Sequence[MachineFinding], groups: Int64Array
    ) -> list[MachineFinding]:
        """Return the machines of which only the difference from their partner is known."""
        suspects = [finding for finding in findings if self.paired[finding.machine]]
        if not suspects:
            return []
        changes = self.baseline.level_changes(np.flatnonzero(self.paired).tolist())
        clear = outmove_partners(changes[None], groups)
        return [each for each in suspects if each.lasting or not clear[each.machine]]

    def _scoring(self, least: Float64Array) -> Int64Array:
        """Return the machines with a window that scores at least as much."""
        return np.flatnonzero((self.scores >= least[:, None]).any(axis=1))

    def _levels(self, trace: _Trace) -> Float32Array:
        return continuity_levels(trace.scores, self.rules.continuity, self.rules.continuity_share)

    def _trace(self, machines: Int64Array) -> _Trace:
        """Return the scores of some machines over time: of samples or, in `minder`, of windows."""
        if self.samples is None:
            end = self.window + self.rules.window - 1
            return _Trace(machines, self.scores[machines], self.window, end)
        scores = self.samples.scores(self.scores, self.window, machines)
        ticks = np.unique(self.window[:, None] + np.arange(self.rules.window))  # without pauses
        return _Trace(machines, np.ascontiguousarray(scores[:, ticks]), ticks, ticks)

    def _jitters(self, trace: _Trace, threshold: Float64Array) -> list[Jitter]:
        """Return machines that deviated without a break for a while and then recovered.

        Noise exceeds the threshold for a few samples now and then. It does not exceed twice the
        threshold for a whole window. A machine has recovered when its score is below the threshold.
        """
        low: Float32Array = threshold.astype(np.float32)
        spells = longest_excursions(
            trace.scores, np.float32(CONFIDENT_SCORE) * low, low, self.rules.recovery_samples
        )
        jitters = []
        for row in np.flatnonzero(spells[:, 1] - spells[:, 0] > self.rules.window).tolist():
            begin, end = spells[row].tolist()
            score = float(np.nanmax(trace.scores[row, begin:end]) / low[row])
            since, until = int(trace.first[begin]), int(trace.last[end - 1])
            jitters.append(Jitter(int(trace.machines[row]), self.metric, score, since, until))
        return jitters

    def _finding(
        self, trace: _Trace, row: int, levels: Float32Array, threshold: float
    ) -> MachineFinding:
        """Locate the first continuity: it begins with a sample that deviates."""
        machine, scores = int(trace.machines[row]), trace.scores[row]
        at = int(np.argmax(levels >= min(threshold, levels.max())))
        present = np.flatnonzero(~np.isnan(scores))
        begin = int(present[present <= max(at - self.rules.continuity + 1, present[0])][-1])
        age = int(trace.first[begin] - trace.first[present[0]])
        return MachineFinding(
            machine=machine,
            metric=self.metric,
            score=float(levels.max() / threshold),
            since=int(trace.first[begin]),
            at=int(trace.last[at]),
            lasting=bool(self.new[machine]) and age < self.rules.baseline.block,
            rose=self._rose(machine, int(trace.first[begin]), int(trace.last[at])),
        )

    def _rose(self, machine: int, since: int, at: int) -> bool:
        """Tell whether a machine is above its peers in a span, compared with the time before."""
        inside = np.isin(self.baseline.blocks, self._blocks(since, at))
        measured, usual = self.baseline.measured[machine], self.baseline.offset[machine, ~inside]
        now, before = measured[inside & ~np.isnan(measured)], usual[~np.isnan(usual)]
        if not len(now):
            return False
        return bool(np.median(now) > (np.median(before) if len(before) else 0.0))

    def _blocks(self, since: int, at: int) -> Int64Array:
        """Return the numbers of the blocks of a span."""
        inside = (self.window >= since) & (self.window <= at)
        scored = self.baseline.scored
        return scored.window[inside] // self.rules.block if scored else np.empty(0, np.int64)

    def _shows_hidden_offset(self, finding: MachineFinding, groups: Int64Array) -> bool:
        """Tell whether a weak finding only shows an offset that the metric's limit used to hide.

        While all machines are at 100 %, their differences are invisible; they appear when the task
        slows down. The machine still at 100 % has not changed. A machine that leaves the limit by
        no more than the tolerated offset may always have been the lowest. A machine that goes to
        the limit while the others never were there has changed.
        """
        if finding.score >= CONFIDENT_SCORE:
            return False
        since = finding.since
        own = self.at_limit[finding.machine]
        same = groups == groups[finding.machine]
        same[finding.machine] = False
        others = self.at_limit[same].mean(axis=0) > 0.5
        together = own & others
        was_hidden = since > 0 and together[:since].mean() >= _MIN_SHARE_AT_LIMIT
        if own[since : finding.at + 1].mean() >= _MIN_SHARE_AT_LIMIT:
            return bool(was_hidden or together.mean() >= _MIN_SHARE_AT_LIMIT)
        return bool(
            was_hidden and 1.0 - self._level(finding) <= _TYPICAL_OFFSET_SHARE * self.tolerated
        )

    def _level(self, finding: MachineFinding) -> float:
        """Return the machine's level in the span of a finding; -inf if unknown."""
        numbers = self._blocks(finding.since, finding.at)
        level = self.baseline.level[finding.machine, np.isin(self.baseline.blocks, numbers)]
        level = level[~np.isnan(level)]
        return float(np.median(level)) if len(level) else -np.inf

    def _unchanged(
        self, groups: Int64Array, findings: Sequence[MachineFinding]
    ) -> list[tuple[SuppressionRule, list[MachineFinding]]]:
        """Return the machines that did not change themselves, if many of a group deviate.

        Two of four machines deviate from the other two as much as these from them. The faulty ones
        are those whose own level moved. If half of the group moved, no machine is identified.
        """
        if len(findings) < 2 or not self.baseline.blocks.size:
            return []
        dropped: list[tuple[SuppressionRule, list[MachineFinding]]] = []
        machines = [finding.machine for finding in findings]
        shifts = np.nan_to_num(self.baseline.level_changes(machines))
        for group in np.unique(groups[machines]):
            of_group = [finding for finding in findings if groups[finding.machine] == group]
            size = int((groups == group).sum())
            if len(of_group) < max(2, _MAX_OUTLIER_SHARE * size):
                continue
            moved = [abs(shifts[finding.machine]) for finding in of_group]
            changed = [f for f, by in zip(of_group, moved, strict=True) if by >= 0.5 * max(moved)]
            dropped.append(("unchanged", [f for f in of_group if f not in changed]))
            if 2 * len(changed) > size:
                dropped.append(("majority", changed))
        return dropped
