"""Names the machine of a running task that has gone bad, from its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from forewarn.features.blind import frozen
from forewarn.features.metric_limits import MetricLimits
from forewarn.models.continuity import levels, longest_spells
from forewarn.models.detection_threshold import Threshold
from forewarn.models.lstm_vae import windows_of
from forewarn.models.machine_past import Judged, Past, PastTerms, Usual, judge
from forewarn.models.pairwise import Distance, distance_sums, normal_scores
from forewarn.models.peers import FEWEST, deviations
from forewarn.models.running_task import Task, comparable
from forewarn.models.verdict import Finding, Jitter, Verdict

__all__ = ["Denoiser", "Detector", "Examined", "MetricModel", "Rules"]

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Mode = Literal["forewarn", "minder"]

_SHARE = 0.9  # of the windows of a continuity
_SURE = 2.0  # times its threshold: a weaker finding waits for what the other metrics show
_DROPPED = 0.5  # of its usual activity: then the whole task pauses
_AT_LIMIT, _HIDDEN = 0.999, 0.25  # of a metric's range, and of the samples of a span
_MANY = 1.0 / 3.0  # of a group: then the peers alone cannot tell who is faulty


@dataclass(frozen=True, slots=True)
class Rules:
    """How a machine comes to be named.

    Attributes
    ----------
    window : int
        Samples.
    continuity : int
        Windows for which a machine has to stand out.
    block : int
        Windows whose median is kept of a machine's past.
    mode : {"forewarn", "minder"}
        The latter follows the paper to the letter.
    distance : {"euclidean", "manhattan", "chebyshev"}
        Of mode `minder`.
    own_past : bool
        Forgive what has always been so (mode `forewarn`).
    """

    window: int = 8
    continuity: int = 240
    block: int = 60
    mode: Mode = "forewarn"
    distance: Distance = "euclidean"
    own_past: bool = True

    @property
    def sure(self) -> tuple[bool, float]:
        """Strength from which on no other metric is looked at; the paper takes the first."""
        return (True, _SURE) if self.mode == "forewarn" else (False, 0.0)

    @property
    def share(self) -> float:
        """Of the windows of a continuity, those that have to stand out."""
        return _SHARE if self.mode == "forewarn" else 1.0

    @property
    def past(self) -> PastTerms:
        """What is judged is compared with what was before a continuity and a guard gap."""
        return PastTerms(self.block, -(-self.continuity // self.block) + 1)


class Denoiser(Protocol):
    """What machines are compared by: windows of stride 1 in, a vector for each of them out."""

    def reconstruct(self, series: Floats) -> Floats:
        """Return vectors, shape (windows, places, machines), of (parts, machines, ticks)."""
        ...


@dataclass(frozen=True, slots=True)
class MetricModel:
    """What was learned of one metric.

    Attributes
    ----------
    limits : tuple of MetricLimits
        One; several only where a study denoises them together.
    denoiser : Denoiser or None
        None compares the samples as they are.
    usual : Usual
    threshold : Threshold or None
        None while it is being fitted.
    """

    limits: tuple[MetricLimits, ...]
    denoiser: Denoiser | None
    usual: Usual = field(default_factory=Usual)
    threshold: Threshold | None = None

    @property
    def name(self) -> str:
        """Of the metric, or of all of them."""
        return "+".join(one.name for one in self.limits)


@dataclass(frozen=True, slots=True)
class Examined:
    """One metric of a task, window by window.

    Attributes
    ----------
    scores : ndarray of shape (n_machines, n_windows), float32
    window : ndarray of shape (n_windows,), int
        First tick of each window that counts: those of a pause are left out.
    past : Past
    blind : ndarray of shape (n_machines,), bool
    new : ndarray of shape (n_machines,), bool
        Nothing was known of the machine before this call.
    at_limit : ndarray of shape (n_machines, n_ticks), bool
        Samples at the upper limit of the metric.
    """

    scores: Floats
    window: Numbers
    past: Past
    blind: Flags
    new: Flags
    at_limit: Flags


@dataclass(slots=True)
class Detector:
    """Looks at the metrics in order of priority until one of them names a machine.

    Attributes
    ----------
    rules : Rules
    metrics : sequence of MetricModel
        In order of priority.
    activity : str or None
        Metric whose fall over the whole task is a pause: a checkpoint, a restart, an evaluation.
    """

    rules: Rules
    metrics: Sequence[MetricModel]
    activity: str | None = None

    def find(
        self, task: Task, pasts: Mapping[str, Past] | None = None, *, go_on: bool = False
    ) -> tuple[Verdict, dict[str, Past]]:
        """Name the faulty machine of a task, if there is one.

        Parameters
        ----------
        task : Task
        pasts : mapping of str to Past, optional
            By metric, from earlier calls.
        go_on : bool
            Windows that the newest of them has judged are not judged again: what a stream of
            calls that overlap needs.

        Returns
        -------
        Verdict
        dict
            The pasts as they are now.
        """
        known, examined, absent = dict(pasts or {}), [], []
        best: list[Finding] = []
        jitters: list[Jitter] = []
        blind = np.zeros(len(task.machines), dtype=bool)
        paused = self.pauses(task)
        for model in self.metrics:
            done = self.examine(task, model, known.get(model.name), paused, go_on=go_on)
            if done is None:
                absent.append(model.name)
                continue
            examined.append(model.name)
            known[model.name] = done.past
            blind |= done.blind
            best = max(best, self._findings(task, model, done), key=_strength)
            jitters += self._jitters(task, model, done)
            if best and _strength(best) >= self.rules.sure:
                break
        nothing = tuple(np.flatnonzero(blind).tolist())
        short = _without_named(jitters, best)
        return Verdict(tuple(best), nothing, tuple(examined), tuple(absent), short), known

    def pauses(self, task: Task) -> Flags:
        """Tell in which windows the whole task did next to nothing, shape (n_windows,).

        Half of its machines have fallen below half of their usual activity, for longer than a
        continuity forgives anyway, which the steps of a rhythm do not. A pause that lasts as long
        as a continuity is none any more: what hangs has to be found.
        """
        n_windows = max(task.n_ticks - self.rules.window + 1, 0)
        none = np.zeros(n_windows, dtype=bool)
        series = (
            task.series(self.activity) if self.activity and self.rules.mode == "forewarn" else None
        )
        if series is None or not n_windows:
            return none
        there = np.isfinite(series)
        seen = there.any(axis=0)
        activity = np.full(task.n_ticks, np.inf)
        activity[seen] = np.nanmedian(np.where(there, series, np.nan)[:, seen], axis=0)
        usual = float(np.median(activity[seen])) if seen.any() else 0.0
        if not usual > 0:
            return none
        low = activity < _DROPPED * usual
        forgiven = round((1.0 - _SHARE) * self.rules.continuity)
        pause = _runs(low, forgiven) & ~_runs(low, self.rules.continuity)
        touched = np.lib.stride_tricks.sliding_window_view(pause, self.rules.window)
        return np.asarray(touched.any(axis=1), dtype=bool)

    def examine(
        self,
        task: Task,
        model: MetricModel,
        past: Past | None,
        paused: Flags,
        *,
        go_on: bool = False,
    ) -> Examined | None:
        """Score every machine in every window; None if no machine sends the metric."""
        before = (past or Past.none(task.machines)).of(task.machines)
        parts = [(one, task.series(one.name)) for one in model.limits]
        if any(values is None or np.isnan(values).all() for _, values in parts):
            return None
        series = np.stack([one.scale(values) for one, values in parts if values is not None])
        at_limit: Flags = np.asarray((series >= _AT_LIMIT).any(axis=0))
        still = np.zeros(series.shape[1:], dtype=bool)
        if self.rules.mode == "forewarn":
            for one in series:
                still |= frozen(one, max(self.rules.continuity // 2, 2 * self.rules.window))
            series[:, still] = np.nan
        there, blind = self._seen(series, still)
        length = self.rules.window
        if there.shape[0] == 0:
            empty = np.empty((len(task.machines), 0), dtype=np.float32)
            return Examined(empty, np.empty(0, np.int64), before, blind, ~before.known, at_limit)
        keep = np.flatnonzero(~paused)
        number, there = keep + task.first_tick + length - 1, there[keep]
        judged = before.judged if go_on else None
        n_good = judged.still_good(number, there, self.rules.block) if judged else 0
        windows, present = self._windows(model, series, keep[n_good:]), there[n_good:]
        if self.rules.mode == "minder":
            scores, now = self._paper(windows, present), before
        else:
            scores, now = self._judge(task, model, windows, present, number[n_good:], before)
        scores = np.ascontiguousarray(scores.T)
        if judged and n_good:
            place = np.searchsorted(judged.window, number[:n_good])
            scores = np.concatenate([judged.scores[:, place], scores], axis=1)
        now = now.with_judged(Judged(number, scores, there))
        return Examined(scores, keep, now, blind, ~before.known, at_limit)

    def _windows(self, model: MetricModel, series: Floats, wanted: Numbers) -> Floats:
        """Return some windows as machines are compared by."""
        first = int(wanted[0]) if len(wanted) else series.shape[2] - self.rules.window
        tail = np.ascontiguousarray(series[:, :, first:])
        windows = (
            model.denoiser.reconstruct(tail)
            if model.denoiser
            else windows_of(tail, self.rules.window)
        )
        if len(wanted) < len(windows):
            windows = np.ascontiguousarray(windows[wanted - first])
        return windows

    def _seen(self, series: Floats, still: Flags) -> tuple[Flags, Flags]:
        """Return which windows are whole, and which machines are blind at the end."""
        missing: Flags = np.asarray(np.isnan(series).any(axis=0))
        length, last = self.rules.window, min(self.rules.continuity, missing.shape[1])
        blind = missing[:, -last:].mean(axis=1) > 0.5
        blind |= still[:, -last:].mean(axis=1) > 0.5
        if missing.shape[1] < length:
            return np.empty((0, len(missing)), dtype=bool), blind
        count = np.cumsum(missing, axis=1, dtype=np.int32)
        inside = count[:, length - 1 :].copy()
        inside[:, 1:] -= count[:, :-length]
        return np.ascontiguousarray((inside == 0).T), blind

    def _judge(
        self,
        task: Task,
        model: MetricModel,
        windows: Floats,
        there: Flags,
        number: Numbers,
        past: Past,
    ) -> tuple[Floats, Past]:
        groups = comparable(task.groups)
        found = deviations(windows, there, groups)
        usual = model.usual
        if not self.rules.own_past:
            usual = Usual(usual.deviation, offset=0.0, spread=0.0)
        scores, now = judge(found, number, groups, self.rules.past, usual, past)
        return scores, now.newest()

    def _paper(self, windows: Floats, there: Flags) -> Floats:
        """Return the normal score of the machine that is farthest from the others, else -inf."""
        scores = normal_scores(distance_sums(windows, there, self.rules.distance))
        enough = there.sum(axis=1) >= FEWEST
        filled = np.where(np.isnan(scores), -np.inf, scores)
        first = filled.argmax(axis=1)
        out = np.full(scores.shape, -np.inf, dtype=np.float32)
        rows = np.flatnonzero(enough)
        out[rows, first[rows]] = filled[rows, first[rows]]
        return out

    def highest(self, done: Examined) -> Floats:
        """Return the highest threshold at which each machine would have been named."""
        if not done.scores.shape[1]:
            return np.full(len(done.scores), -np.inf, dtype=np.float32)
        reached: Floats = levels(done.scores, self.rules.continuity, self.rules.share).max(axis=1)
        return reached

    def _findings(self, task: Task, model: MetricModel, done: Examined) -> list[Finding]:
        if model.threshold is None:
            raise ValueError(f"{model.name} has no threshold.")
        needed = model.threshold.each(len(task.machines), task.weights)
        reached = levels(
            done.scores, self.rules.continuity, self.rules.share, float(needed.min(initial=np.inf))
        )
        found = []
        for machine in np.flatnonzero((reached >= needed[:, None]).any(axis=1)).tolist():
            at = int(np.argmax(reached[machine] >= needed[machine]))
            found.append(self._finding(model, done, machine, at, reached[machine], needed[machine]))
        found = [one for one in found if not self._hidden(done, one)]
        found = self._told_apart(task, done, found)
        return sorted(found, key=lambda one: (one.always, one.at, -one.score))

    def _jitters(self, task: Task, model: MetricModel, done: Examined) -> list[Jitter]:
        """Return who stood out for a while without a break, and is back.

        Noise passes the threshold of a continuity for a few windows now and then, but not twice
        the threshold for longer than a single odd sample touches. Back is who is below it again.
        """
        if model.threshold is None or not done.scores.shape[1]:
            return []
        needed = model.threshold.each(len(task.machines), task.weights).astype(np.float32)
        spells = longest_spells(done.scores, np.float32(_SURE) * needed, needed, self._quiet)
        length, found = self.rules.window, []
        for machine in np.flatnonzero(spells[:, 1] - spells[:, 0] >= 2 * length).tolist():
            begin, end = spells[machine].tolist()
            score = float(done.scores[machine, begin:end].max() / needed[machine])
            since, until = int(done.window[begin]), int(done.window[end - 1]) + length - 1
            found.append(Jitter(machine, model.name, score, since, until))
        return found

    @property
    def _quiet(self) -> int:
        """Windows below the threshold that end a stretch above it."""
        return max(round((1.0 - self.rules.share) * self.rules.continuity / 2), 1)

    def _finding(
        self,
        model: MetricModel,
        done: Examined,
        machine: int,
        at: int,
        reached: Floats,
        needed: float,
    ) -> Finding:
        """Go back to where the span began to pass, single windows before that left out."""
        begin = max(at - self.rules.continuity + 1, 0)
        passed = np.flatnonzero(done.scores[machine, begin : at + 1] >= needed)
        gaps = np.flatnonzero(np.diff(passed) > self._quiet)
        begin += int(passed[gaps[-1] + 1 if len(gaps) else 0])
        first = int(np.argmax(~np.isnan(done.scores[machine])))
        return Finding(
            machine=int(machine),
            metric=model.name,
            score=float(reached.max() / needed),
            since=int(done.window[begin]),
            at=int(done.window[at]) + self.rules.window - 1,
            always=bool(done.new[machine]) and begin - first < self.rules.past.block,
        )

    def _hidden(self, done: Examined, one: Finding) -> bool:
        """Tell whether a weak finding rests on what the limit of a metric used to hide.

        While all machines are at 100 % nobody knows what they differ by; when the task slows down
        it shows, and the machine that is still at 100 % is not the one that has changed.
        """
        if self.rules.mode == "minder" or one.score >= _SURE:
            return False
        span = done.at_limit[one.machine, max(one.since, 0) : one.at + 1]
        return bool(span.mean() >= _HIDDEN)

    def _told_apart(self, task: Task, done: Examined, found: list[Finding]) -> list[Finding]:
        """Keep those that have changed themselves, where many of a group differ from the rest.

        Two of four machines are as far from the other two as these are from them; who moved is the
        one that is faulty. If as many moved as did not, nobody can tell.
        """
        if self.rules.mode == "minder" or len(found) < 2 or not done.past.blocks.size:
            return found
        groups = comparable(task.groups)
        kept: list[Finding] = []
        for group in np.unique(groups[[one.machine for one in found]]):
            mine = [one for one in found if groups[one.machine] == group]
            size = int((groups == group).sum())
            if len(mine) >= max(2, _MANY * size):
                moved = [_moved(done.past.level[one.machine]) for one in mine]
                most = max(moved)
                mine = [one for one, by in zip(mine, moved, strict=True) if by >= 0.5 * most]
                mine = mine if 2 * len(mine) <= size else []
            kept += mine
        return kept


def _strength(found: Sequence[Finding]) -> tuple[bool, float]:
    """Order findings: something before nothing, a change before a straggler, then by score."""
    return (bool(found) and not found[0].always, found[0].score if found else 0.0)


def _without_named(jitters: Sequence[Jitter], named: Sequence[Finding]) -> tuple[Jitter, ...]:
    """Return the longest of each machine that is not named, in order of length."""
    machines = {one.machine for one in named}
    longest: dict[int, Jitter] = {}
    for one in sorted(jitters, key=lambda one: one.since - one.until):
        if one.machine not in machines:
            longest.setdefault(one.machine, one)
    return tuple(longest.values())


def _moved(level: Floats) -> float:
    """Return how far the newest blocks of a machine are from its first ones."""
    known = level[~np.isnan(level)]
    n = max(len(known) // 4, 1)
    return float(abs(np.median(known[-n:]) - np.median(known[:n]))) if len(known) else 0.0


def _runs(flags: Flags, longest: int) -> Flags:
    """Tell which places lie in a run of at least so many."""
    out = np.zeros(len(flags), dtype=bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        out[begin:end] = end - begin >= longest
    return out
