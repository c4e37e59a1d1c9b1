"""Detects the faulty machine of a running task from its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int64Array
from forewarn.features.detection.frozen_sensors import find_frozen
from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.detection.metric_role import Role
from forewarn.features.detection.rhythm import find_period
from forewarn.models.detection.accusation import accused, common_event, outmove_partners
from forewarn.models.detection.baseline_scoring import score_against_baseline, tolerated_offsets
from forewarn.models.detection.detection_rules import DetectionRules, paused_windows
from forewarn.models.detection.detection_verdict import (
    MachineFinding,
    Suppressed,
    Verdict,
    unreported_jitters,
)
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.joint_score import JOINT, JointScores, joint_scores
from forewarn.models.detection.machine_baseline import MachineBaseline, ScoredWindows
from forewarn.models.detection.monitored_task import Task, comparison_groups, partners
from forewarn.models.detection.pairwise_distances import distance_sums, normal_scores
from forewarn.models.detection.peer_deviation import MIN_GROUP_SIZE, peer_deviations, peer_scores
from forewarn.models.detection.sample_scores import SampleScoring
from forewarn.models.detection.scored_metric import MetricVerdict, ScoredMetric
from forewarn.models.detection.threshold import Threshold
from forewarn.models.detection.windows import Windows

__all__ = ["Denoiser", "Detector", "MetricModel"]


_LIMIT_SHARE = 0.999  # of a metric's range


class Denoiser(Protocol):
    """Turns windows into the vectors by which machines are compared."""

    def reconstruct(self, series: Float32Array) -> Float32Array:
        """Return vectors (windows, places, machines) of all windows of (parts, machines, ticks)."""
        ...


@dataclass(frozen=True, slots=True)
class MetricModel:
    """The fitted model of one metric.

    Attributes
    ----------
    limits : tuple of MetricLimits
        One metric; several only if a study denoises them together.
    denoiser : Denoiser or None
        None to compare the samples themselves.
    healthy : HealthySpread
    threshold : Threshold or None
        None before it is fitted.
    """

    limits: tuple[MetricLimits, ...]
    denoiser: Denoiser | None
    healthy: HealthySpread = field(default_factory=HealthySpread)
    threshold: Threshold | None = None

    @property
    def name(self) -> str:
        """Name of the metric, or of all metrics denoised together."""
        return "+".join(limits.name for limits in self.limits)

    @property
    def floor(self) -> float:
        """Smallest difference worth acting on, as a share of the range."""
        return min(limits.floor for limits in self.limits)

    def thresholds(self, task: Task) -> Float64Array:
        """Return the threshold of each machine of a task."""
        if self.threshold is None:
            raise ValueError(f"{self.name} has no threshold.")
        return self.threshold.with_prior(task.machines, task.weights)


@dataclass(slots=True)
class Detector:
    """Examines metrics in order of priority until one of them identifies a machine.

    Attributes
    ----------
    rules : DetectionRules
    metrics : sequence of MetricModel
        In order of priority.
    activity : str or None
        Metric whose drop over the whole task marks a pause: a checkpoint, a restart, an evaluation.
    observe_only : bool
        The detector is not validated yet: do not act on its verdicts.
    joint : Threshold or None
        Threshold of the joint score; None without one.
    joint_names : bool
        The joint score may name a machine; otherwise its findings are only listed as suppressed.
    """

    rules: DetectionRules
    metrics: Sequence[MetricModel]
    activity: str | None = None
    observe_only: bool = True
    joint: Threshold | None = None
    joint_names: bool = False

    def find(
        self,
        task: Task,
        baselines: Mapping[str, MachineBaseline] | None = None,
        *,
        incremental: bool = False,
    ) -> tuple[Verdict, dict[str, MachineBaseline]]:
        """Find the faulty machine of a task, if there is one.

        Parameters
        ----------
        task : Task
        baselines : mapping of str to MachineBaseline, optional
            Baselines of earlier calls, by metric.
        incremental : bool
            Do not score again the windows that the newest baseline has scored. Needed for a stream
            of overlapping calls.

        Returns
        -------
        Verdict
        dict
            The updated baselines, by metric.
        """
        adapted = self.for_task(task)
        if adapted is not self:
            return adapted.find(task, baselines, incremental=incremental)
        updated, absent = dict(baselines or {}), []
        judged: dict[str, MetricVerdict] = {}
        blind = np.zeros(len(task.machines), dtype=bool)
        ungrouped = task.in_small_group
        paused = self.pauses(task)
        for model in self.metrics:
            scored = self.examine(
                task, model, updated.get(model.name), paused, incremental=incremental
            )
            if scored is None:
                absent.append(model.name)
                continue
            updated[model.name] = scored.baseline
            blind |= scored.blind
            ungrouped &= scored.ungrouped
            judged[model.name] = scored.judge(model.thresholds(task), task.groups)
            if self._decides(judged[model.name].findings, task):
                break
        compared = {name: updated[name] for name in judged}
        best, suppressed = self._accused(judged, task, compared)
        verdict = Verdict(
            tuple(best),
            blind=tuple(np.flatnonzero(blind).tolist()),
            examined=tuple(judged),
            absent=tuple(absent),
            jitters=unreported_jitters([j for each in judged.values() for j in each.jitters], best),
            too_small=tuple(np.flatnonzero(ungrouped).tolist()),
            observe_only=self.observe_only,
            suppressed=tuple(suppressed),
            event=common_event(best, suppressed),
            nearest={name: each.nearest for name, each in judged.items()},
        )
        return verdict, updated

    def for_task(self, task: Task) -> Detector:
        """Return the detector whose windows are whole periods of a task's rhythm."""
        if self.rules.mode != "forewarn" or self.rules.period:
            return self
        names = [self.activity] if self.activity else []
        series = (task.series(name) for name in [*names, *(model.name for model in self.metrics)])
        first = next((values for values in series if values is not None), None)
        period = 0 if first is None else find_period(first, *self.rules.period_range)
        return replace(self, rules=self.rules.with_period(period)) if period else self

    @property
    def roles(self) -> dict[str, Role]:
        """Role of each metric."""
        return {model.name: model.limits[0].role for model in self.metrics}

    def _decides(self, findings: Sequence[MachineFinding], task: Task) -> bool:
        """Tell whether no further metric is needed to name a machine.

        If machines of several groups deviate, or waiting is measured, other metrics tell who waits.
        """
        if not findings or _strength(findings) < self.rules.stop_strength:
            return False
        if self.rules.mode != "forewarn":
            return True
        groups = {int(task.groups[finding.machine]) for finding in findings}
        return len(groups) == 1 and "wait" not in self.roles.values()

    def _accused(
        self,
        judged: Mapping[str, MetricVerdict],
        task: Task,
        baselines: Mapping[str, MachineBaseline],
    ) -> tuple[list[MachineFinding], list[Suppressed]]:
        """Return the findings of the metric that decides, and all that rules have dropped."""
        suppressed = [each for of_metric in judged.values() for each in of_metric.suppressed]
        findings = [each for of_metric in judged.values() for each in of_metric.findings]
        if self.rules.mode == "forewarn":
            hints = [each for of_metric in judged.values() for each in of_metric.hints]
            findings, dropped = accused(findings, hints, self.roles)
            suppressed += dropped
        best: list[MachineFinding] = []
        for name in judged:
            best = max(best, [f for f in findings if f.metric == name], key=_strength)
            if best and _strength(best) >= self.rules.stop_strength:
                return best, suppressed
        victims = {each.machine for each in suppressed if each.rule == "victim"}
        joint = [f for f in self._joint_findings(task, baselines) if f.machine not in victims]
        if self.joint_names:
            return max(best, joint, key=_strength), suppressed
        few = [Suppressed(f.machine, JOINT, f.score, "few_tasks") for f in joint]
        return best, [*suppressed, *few]

    def joint_scores(
        self, task: Task, baselines: Mapping[str, MachineBaseline]
    ) -> JointScores | None:
        """Return the joint scores of a task, given the baselines that a call updated.

        Waiting does not count: it is no accusation.
        """
        if self.rules.mode != "forewarn":
            return None
        roles = self.roles
        compared = {n: each for n, each in baselines.items() if roles.get(n) != "wait"}
        return joint_scores(compared, self.rules, task.first_tick, task.n_ticks)

    def _joint_findings(
        self, task: Task, baselines: Mapping[str, MachineBaseline]
    ) -> list[MachineFinding]:
        """Return the machines that deviate on several metrics together, the strongest first."""
        scores = None if self.joint is None else self.joint_scores(task, baselines)
        if scores is None or self.joint is None:
            return []
        findings = scores.findings(self.joint.with_prior(task.machines, task.weights))
        paired = np.flatnonzero(task.by_position).tolist()
        changes = np.stack([baseline.level_changes(paired) for baseline in baselines.values()])
        clear = outmove_partners(changes, task.groups)
        return [finding for finding in findings if clear[finding.machine]]

    def pauses(self, task: Task) -> BoolArray:
        """Tell in which windows the whole task was nearly inactive, shape (n_windows,)."""
        forewarn = self.rules.mode == "forewarn"
        series = task.series(self.activity) if self.activity and forewarn else None
        return paused_windows(series, task.n_ticks, self.rules)

    def examine(
        self,
        task: Task,
        model: MetricModel,
        baseline: MachineBaseline | None,
        paused: BoolArray,
        *,
        incremental: bool = False,
    ) -> ScoredMetric | None:
        """Score every machine in every window; return None if no machine sends the metric."""
        before = (baseline or MachineBaseline.empty(task.machines)).for_machines(task.machines)
        series = _scaled_samples(task, model)
        if series is None:
            return None
        at_limit: BoolArray = np.asarray((series >= _LIMIT_SHARE).any(axis=0))
        frozen = self._drop_frozen(model, series)
        length, unknown = self.rules.window, self._subtract_group_offsets(task, model, series)
        own, series, paired = series, *self._without_partners(task, unknown, series)
        ungrouped = unknown & ~paired
        present, blind = self._find_gaps(series, frozen)
        if self.rules.mode == "forewarn":
            present[:, ungrouped] = False
        flags = (blind, ~before.known, at_limit, ungrouped, paired, model.healthy.offset)
        if present.shape[0] == 0:
            empty = np.empty((len(task.machines), 0), dtype=np.float32)
            window = np.empty(0, dtype=np.int64)
            return ScoredMetric(model.name, self.rules, empty, window, before, *flags, None)
        keep = np.flatnonzero(~paused)
        number, present = keep + task.first_tick + length - 1, present[keep]
        previous = before.scored if incremental else None
        block = self.rules.block
        n_known = previous.count_reusable(number, present, length, block) if previous else 0
        windows, new = self._windows(model, series, keep[n_known:]), present[n_known:]
        levels = self._windows(model, own, keep[n_known:]) if paired.any() else windows
        scores, now = self._score(task, model, windows, levels, new, number[n_known:], before)
        samples = self._sample_scoring(task, model, series, number, now)
        scores, now = np.ascontiguousarray(scores.T), now.newest()
        if previous and n_known:
            column = np.searchsorted(previous.window, number[:n_known])
            scores = np.concatenate([previous.scores[:, column], scores], axis=1)
        now = now.with_scored(ScoredWindows(number, scores, present, length))
        return ScoredMetric(model.name, self.rules, scores, keep, now, *flags, samples)

    def _sample_scoring(
        self,
        task: Task,
        model: MetricModel,
        series: Float32Array,
        number: Int64Array,
        baseline: MachineBaseline,
    ) -> SampleScoring | None:
        """Return how to score single samples; None if durations count windows."""
        if self.rules.mode != "forewarn" or model.denoiser is not None or not len(number):
            return None
        params, length = self.rules.baseline, self.rules.window
        numbers = np.unique(number // params.block)
        tolerated = tolerated_offsets(baseline, numbers, params, self._healthy(model))
        blocks = (task.first_tick + np.arange(task.n_ticks) + length - 1) // params.block
        block_of = np.clip(np.searchsorted(numbers, blocks), 0, len(numbers) - 1)
        groups = comparison_groups(task.groups)
        return SampleScoring(series[0], groups, tolerated, block_of, length)

    def _drop_frozen(self, model: MetricModel, series: Float32Array) -> BoolArray:
        """Replace the samples of frozen sensors by NaN and return where they are."""
        frozen = np.zeros(series.shape[1:], dtype=bool)
        if self.rules.mode == "forewarn":
            for part in series:
                frozen |= find_frozen(part, max(self.rules.frozen_ticks, model.healthy.still))
            series[:, frozen] = np.nan
        return frozen

    def _subtract_group_offsets(
        self, task: Task, model: MetricModel, series: Float32Array
    ) -> BoolArray:
        """Subtract the known offsets of small groups; return the machines without a known offset.

        Machines of small groups are compared with each other after the offset that healthy tasks
        showed for each group is subtracted.
        """
        ungrouped = task.in_small_group
        for machine in np.flatnonzero(ungrouped).tolist():
            group = task.group_of(machine)
            if group in model.healthy.groups:
                ungrouped[machine] = False
                series[:, machine] -= np.float32(model.healthy.groups[group])
        return ungrouped

    def _without_partners(
        self, task: Task, unknown: BoolArray, series: Float32Array
    ) -> tuple[Float32Array, BoolArray]:
        """Return the samples minus those of the partner, and the machines for which that was done.

        Groups of two that no healthy task had do different work. What the two machines of a group
        differ by is compared with that of other groups.
        """
        paired, other = task.by_position, partners(task.groups)
        if self.rules.mode != "forewarn" or not (paired & unknown).any():
            return series, np.zeros(len(paired), dtype=bool)
        differences = series.copy()
        differences[:, paired] -= series[:, other[paired]]
        return differences, paired

    def _windows(self, model: MetricModel, series: Float32Array, positions: Int64Array) -> Windows:
        """Return the windows at some positions, in the form in which machines are compared."""
        if model.denoiser is None:
            return Windows.from_series(series, self.rules.window, positions)
        first = int(positions[0]) if len(positions) else series.shape[2] - self.rules.window
        windows = model.denoiser.reconstruct(np.ascontiguousarray(series[:, :, first:]))
        if len(positions) < len(windows):
            windows = windows[positions - first]
        return Windows.from_values(windows)

    def _find_gaps(self, series: Float32Array, frozen: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Return which windows are complete, and which machines lack data at the end."""
        missing: BoolArray = np.asarray(np.isnan(series).any(axis=0))
        length, last = self.rules.window, min(self.rules.continuity, missing.shape[1])
        blind = missing[:, -last:].mean(axis=1) > 0.5
        blind |= frozen[:, -last:].mean(axis=1) > 0.5
        if missing.shape[1] < length:
            return np.empty((0, len(missing)), dtype=bool), blind
        count = np.cumsum(missing, axis=1, dtype=np.int32)
        inside = count[:, length - 1 :].copy()
        inside[:, 1:] -= count[:, :-length]
        return np.ascontiguousarray((inside == 0).T), blind

    def _score(
        self,
        task: Task,
        model: MetricModel,
        windows: Windows,
        levels: Windows,
        present: BoolArray,
        number: Int64Array,
        baseline: MachineBaseline,
    ) -> tuple[Float32Array, MachineBaseline]:
        """Return scores of the windows according to the mode, and the updated baseline."""
        if self.rules.mode == "minder":
            return self._minder_scores(windows.apart(), present), baseline
        if self.rules.mode == "peers":
            return peer_scores(windows, present), baseline
        groups = comparison_groups(task.groups)
        deviation = peer_deviations(windows, present, groups)
        if levels is not windows:
            deviation = replace(deviation, level=peer_deviations(levels, present, groups).level)
        usual, short = deviation, self.rules.baseline_window
        if model.denoiser is None and short < self.rules.window:
            usual = peer_deviations(windows.ends(short), present, groups)
            if levels is not windows:
                level = peer_deviations(levels.ends(short), present, groups).level
                usual = replace(usual, level=level)
        params, is_work = self.rules.baseline, model.limits[0].role == "work"
        healthy = self._healthy(model)
        return score_against_baseline(
            deviation, usual, number, groups, params, healthy, baseline, is_work=is_work
        )

    def _healthy(self, model: MetricModel) -> HealthySpread:
        """Return how much healthy machines differ, as far as the rules tolerate it."""
        healthy = replace(model.healthy, deviation=max(model.healthy.deviation, model.floor))
        if not self.rules.own_past:
            return HealthySpread(healthy.deviation, offset=0.0, spread=0.0)
        return healthy

    def _minder_scores(self, windows: Float32Array, present: BoolArray) -> Float32Array:
        """Return the normal score of the machine farthest from the others, -inf for the rest."""
        scores = normal_scores(distance_sums(windows, present, self.rules.distance))
        enough = present.sum(axis=1) >= MIN_GROUP_SIZE
        filled = np.where(np.isnan(scores), -np.inf, scores)
        first = filled.argmax(axis=1)
        out = np.full(scores.shape, -np.inf, dtype=np.float32)
        rows = np.flatnonzero(enough)
        out[rows, first[rows]] = filled[rows, first[rows]]
        return out


def _scaled_samples(task: Task, model: MetricModel) -> Float32Array | None:
    """Return scaled samples (parts, machines, ticks); None if no machine sends the metric."""
    parts = [(limits, task.series(limits.name)) for limits in model.limits]
    if any(values is None or np.isnan(values).all() for _, values in parts):
        return None
    return np.stack([limits.scale(values) for limits, values in parts if values is not None])


def _strength(findings: Sequence[MachineFinding]) -> tuple[bool, float]:
    """Rank findings: any before none, a change before a straggler, then by score."""
    return (bool(findings) and not findings[0].lasting, findings[0].score if findings else 0.0)
