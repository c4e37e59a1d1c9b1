"""`forewarn detect watch`: judges running tasks repeatedly and reports each verdict once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from forewarn.evaluation.detection.fit_assessment import exceeds_rate
from forewarn.features.duration import format_duration
from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND
from forewarn.models.detection.detector_file import StoredDetector
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.threshold_adaptation import ThresholdAdaptation
from forewarn.pipelines.config.settings import WatchTable
from forewarn.pipelines.detection.adaptation_state import load_adaptation, save_adaptation
from forewarn.pipelines.detection.baseline_store import (
    StateError,
    load_baselines_or_empty,
    save_baselines,
    set_aside,
)
from forewarn.pipelines.detection.detection_run import (
    detect,
    no_task_judged,
    open_for_detector,
    warm_up,
)
from forewarn.pipelines.detection.live_metrics import LiveMetrics
from forewarn.pipelines.detection.task_metrics import Pull, PullError, find_pulls, task_name
from forewarn.pipelines.detection.task_result import TaskVerdict, UnjudgedTask
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.evidence.at_risk_prior import Prior
from forewarn.pipelines.storage.evidence.host_events import HostEvents
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["DetectionWatch"]

_VERDICTS = "verdicts.json"
_MAX_CATCH_UP_SPANS = 4  # spans to catch up with after an outage of the source
_LATE_SAMPLE_INTERVALS = (
    3  # intervals during which a missing sample may still be filled from a later one
)


@dataclass(slots=True)
class DetectionWatch:
    """Runs the detector on every task; remembers machine baselines and reported verdicts.

    Attributes
    ----------
    stored : StoredDetector
    settings : WatchTable
    source : Path or LiveMetrics
        Folder of `task=NAME/*.parquet` that is still being written to, or a Prometheus server.
    state : Path or None
        Folder for baselines and verdicts, so that a watch can be restarted.
    at_risk : Path or None
        At-risk lists used as a prior, read for each call.
    events : HostEvents or None
    clock : Clock
    """

    stored: StoredDetector
    settings: WatchTable
    source: Path | LiveMetrics
    state: Path | None = None
    at_risk: Path | None = None
    events: HostEvents | None = None
    clock: Clock = field(default_factory=SystemClock)
    _baselines: dict[str, dict[str, MachineBaseline]] = field(default_factory=dict, init=False)
    _reported_until: dict[str, int] = field(default_factory=dict, init=False)
    _reasons: dict[str, str] = field(default_factory=dict, init=False)
    _problems: dict[str, str] = field(default_factory=dict, init=False)
    _last_answer: int = field(default=0, init=False)
    _adaptation: ThresholdAdaptation = field(default_factory=ThresholdAdaptation, init=False)
    _noted_alarms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        warm_up(self.stored)
        if self.state is not None:
            self._reported_until = _read_reported(self.state / _VERDICTS)
            self._adaptation = load_adaptation(self.state, self.stored)
            self._noted_alarms = self._adaptation.alarms

    def run(self, stop: threading.Event) -> Iterator[dict[str, Any]]:
        """Yield new verdicts until `stop` is set; the next call catches up after a failed one.

        Yields
        ------
        dict
            In the format of `detect run --json`.
        """
        while not stop.is_set():
            began = self.clock.now()
            try:
                yield from self.call()
            except InputError as error:
                self._note_once("call", str(error))
            else:
                self._problems.pop("call", None)
            left = self.settings.every - (self.clock.now() - began)
            self.clock.wait(max(left, 0) / SECOND, stop)

    def call(self) -> Iterator[dict[str, Any]]:
        """Judge all tasks once; yield verdicts that were not reported before.

        An invalid task is reported with the reason and does not stop the others.

        Raises
        ------
        InputError
            If the source is not available, or no task could be judged (raised after all reasons).
        """
        lists = self._lists()
        seen: set[str] = set()
        refused = []
        for task, open_task in self._tasks():
            seen.add(task)
            began = time.perf_counter()
            try:
                detected = self._judge(open_task(), lists)
            except PullError as error:
                refused.append(error)
                seconds, observe_only = (
                    time.perf_counter() - began,
                    self.stored.detector.observe_only,
                )
                yield from self._unjudged_lines(
                    UnjudgedTask(task, str(error), seconds, observe_only)
                )
                continue
            self._reasons.pop(task, None)
            self._adapt(detected)
            for line in self._new_verdicts(detected):
                self._adaptation.alarms += 1
                yield line
            self._note_jitters(detected)
        self._forget(seen)
        self._count()
        if refused and len(refused) == len(seen):
            raise no_task_judged(refused)

    def _lists(self) -> Prior | None:
        """Read the current lists; if that fails, the watch continues without them."""
        if self.at_risk is None:
            return None
        try:
            lists = Prior.open(self.at_risk)
        except (InputError, OSError) as error:
            self._note_once("lists", f"{error} Continuing without at-risk lists.")
            return None
        self._problems.pop("lists", None)
        return lists

    def _judge(self, pull: Pull, lists: Prior | None) -> TaskVerdict:
        baselines = self._load_baselines(pull.name)
        detector = self._adaptation.raised(self.stored.detector, pull.name)
        detected, now = detect(pull, detector, lists, baselines, self.events, incremental=True)
        self._baselines[pull.name] = now
        self._save(lambda state: save_baselines(state, pull.name, now))
        return detected

    def _unjudged_lines(self, task: UnjudgedTask) -> Iterator[dict[str, Any]]:
        """Yield the reason why a task is not judged, unless it is the same as in the last call."""
        if self._reasons.get(task.task) != task.reason:
            self._reasons[task.task] = task.reason
            yield task.line()

    def _save(self, save: Callable[[Path], None]) -> None:
        """Write to the state folder; a failure must not suppress verdicts."""
        if self.state is None:
            return
        try:
            save(self.state)
        except OSError as error:
            why = error.strerror or error
            self._note_once("state", f"{self.state}: cannot be written ({why})")
        else:
            self._problems.pop("state", None)

    def _note_once(self, what: str, text: str) -> None:
        """Note a problem when it starts or changes, not at every call."""
        if self._problems.get(what) != text:
            self._problems[what] = text
            note(text)

    def _tasks(self) -> Iterator[tuple[str, Callable[[], Pull]]]:
        """Yield the name of every task and a function that opens it."""
        interval, span = self.stored.interval, self.settings.span
        if isinstance(self.source, Path):
            for folder in find_pulls(self.source):
                yield task_name(folder), partial(open_for_detector, folder, self.stored, span)
            return
        end = self.clock.now() - _LATE_SAMPLE_INTERVALS * interval
        if self._last_answer:  # catch up with a missed span
            missed = end - self._last_answer + span - self.settings.every
            span = min(max(span, missed), _MAX_CATCH_UP_SPANS * span)
        first = self.stored.detector.metrics[0].name
        for pull in self.source.pulls(first, end, span):
            yield pull.name, partial(_identity, pull)
        self._last_answer = end

    def _load_baselines(self, task: str) -> Mapping[str, MachineBaseline]:
        if task not in self._baselines:
            self._baselines[task] = load_baselines_or_empty(self.state, task)
        return self._baselines[task]

    def _new_verdicts(self, detected: TaskVerdict) -> Iterator[dict[str, Any]]:
        """Yield a verdict unless it continues one that was reported."""
        if not detected.verdict.findings:
            return
        first, grid = detected.verdict.findings[0], detected.pull.grid
        key = json.dumps([detected.pull.name, grid.machines[first.machine]])
        before, end = self._reported_until.get(key), grid.time(grid.n_ticks - 1)
        self._reported_until[key] = end
        # Overlapping calls see the same fault; a deviation that started later is a new one.
        if before is None or grid.time(first.since) > before:
            yield detected.line()

    def _adapt(self, detected: TaskVerdict) -> None:
        """Raise thresholds according to a task in which no machine was identified."""
        grid, task = detected.pull.grid, detected.pull.name
        self._adaptation.watched(task, grid.time(0), grid.time(grid.n_ticks - 1))
        if not detected.verdict.findings:
            self._adaptation.learn(task, detected.verdict.nearest)

    def _count(self) -> None:
        """Note when there are more verdicts than the requested false alarm rate explains."""
        rate, known = self.stored.facts.false_alarms, self._adaptation
        if not rate or known.alarms == self._noted_alarms:
            return
        self._noted_alarms = known.alarms
        if exceeds_rate(known.alarms, known.days, rate):
            verdicts = "1 verdict" if known.alarms == 1 else f"{known.alarms} verdicts"
            note(
                f"{verdicts} in {known.days:.3g} task-days, more than the requested rate of "
                f"{rate:g} false alarms a day explains. If no machine was faulty, fit again "
                "with data of these days"
            )

    def _note_jitters(self, detected: TaskVerdict) -> None:
        """Note once that a machine deviated for a short time; this is not a verdict."""
        task, grid = detected.pull.name, detected.pull.grid
        for jitter in detected.verdict.jitters:
            machine, since = grid.machines[jitter.machine], grid.time(jitter.since)
            key = json.dumps([task, machine, "jitter"])
            if since > self._reported_until.get(key, 0):
                self._reported_until[key] = grid.time(jitter.until)
                lasted = format_duration((jitter.until - jitter.since + 1) * grid.interval / SECOND)
                note(f"{task}: {machine} deviated on {jitter.metric} for {lasted} and recovered")

    def _forget(self, seen: Set[str]) -> None:
        """Forget tasks that have ended, and old reports, so that later verdicts are new."""
        self._baselines = {name: past for name, past in self._baselines.items() if name in seen}
        self._reasons = {name: why for name, why in self._reasons.items() if name in seen}
        newest = max(self._reported_until.values(), default=0)
        old = newest - 2 * _MAX_CATCH_UP_SPANS * self.settings.span
        self._reported_until = {
            key: at
            for key, at in self._reported_until.items()
            if at >= old or json.loads(key)[0] in seen
        }
        self._save(self._write)

    def _write(self, state: Path) -> None:
        with replacing(state / _VERDICTS) as path:
            path.write_text(json.dumps(self._reported_until) + "\n", encoding="utf-8")
        save_adaptation(state, self.stored, self._adaptation)


def _identity(pull: Pull) -> Pull:
    return pull


def _read_reported(path: Path) -> dict[str, int]:
    """Read which verdicts were reported; rename an unusable file, and note it."""
    if not path.exists():
        return {}
    try:
        if not path.is_file():  # opening a FIFO would block forever
            raise ValueError("is not a regular file")
        stored = json.loads(path.read_text("utf-8"))
        for key in stored:
            task, *_ = json.loads(key)
            if not isinstance(task, str):
                raise ValueError(f"found {key!r:.40}")
        return {key: int(at) for key, at in stored.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OSError) as error:
        set_aside(path, StateError(f"{path}: cannot be used ({str(error)[:80]})"))
        return {}
