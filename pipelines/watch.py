"""`forewarn detect watch`: look at running tasks again and again, and say each thing once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.evaluation.self_judgement import beyond_chance
from forewarn.features.errors import InputError
from forewarn.models.adaptation import Adaptation, shares_reached
from forewarn.models.detector_file import StoredDetector
from forewarn.models.machine_past import Past
from forewarn.pipelines.adaptation_state import load_adaptation, save_adaptation
from forewarn.pipelines.clock import Clock, SystemClock
from forewarn.pipelines.detect import Detected, detect, opened, warm_up
from forewarn.pipelines.detect_state import load_state, save_state
from forewarn.pipelines.host_events import HostEvents
from forewarn.pipelines.live_metrics import LiveMetrics
from forewarn.pipelines.prior import Prior
from forewarn.pipelines.pulls import Pull, find_pulls
from forewarn.pipelines.settings import WatchTable
from forewarn.pipelines.stages import note
from forewarn.pipelines.store import replacing

__all__ = ["Watch"]

_SAID = "verdicts.json"
_LONGEST_SPAN = 4  # spans that are caught up with after a time without an answer
_LAG = 3  # intervals: until then a missing sample may still be filled from a later one


@dataclass(slots=True)
class Watch:
    """Calls the detector on every task, remembers their machines' pasts, and what it has said.

    Attributes
    ----------
    stored : StoredDetector
    settings : WatchTable
    source : Path or LiveMetrics
        Folder of `task=NAME/*.parquet` that somebody writes to, or a Prometheus server.
    state : Path or None
        Folder for pasts and verdicts, so that a watch can be ended and begun again.
    at_risk : Path or None
        Lists as a prior, read anew for each call.
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
    _pasts: dict[str, dict[str, Past]] = field(default_factory=dict, init=False)
    _said: dict[str, int] = field(default_factory=dict, init=False)
    _answered: int = field(default=0, init=False)
    _adapted: Adaptation = field(default_factory=Adaptation, init=False)
    _counted: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        warm_up(self.stored)
        path = self.state / _SAID if self.state is not None else None
        if path is not None and path.exists():
            self._said = {key: int(at) for key, at in json.loads(path.read_text("utf-8")).items()}
        if self.state is not None:
            self._adapted = load_adaptation(self.state, self.stored)
            self._counted = self._adapted.alarms

    def run(self, stop: threading.Event) -> Iterator[dict[str, Any]]:
        """Yield new verdicts until somebody stops it; a call that fails is made good by the next.

        Yields
        ------
        dict
            As `detect run --json` prints it.
        """
        while not stop.is_set():
            began = self.clock.now()
            try:
                yield from self.call()
            except InputError as error:
                note(str(error))
            left = self.settings.every - (self.clock.now() - began)
            self.clock.wait(max(left, 0) / 1e9, stop)

    def call(self) -> Iterator[dict[str, Any]]:
        """Look at all tasks once; yield what has not been said before."""
        lists = Prior.open(self.at_risk) if self.at_risk is not None else None
        seen = set()
        for pull in self._pulls():
            seen.add(pull.name)
            pasts = self._known(pull.name)
            detector = self._adapted.raised(self.stored.detector, pull.name)
            found, self._pasts[pull.name] = detect(
                pull, detector, lists, pasts, self.events, go_on=True
            )
            self._learn(found)
            if self.state is not None:
                save_state(self.state, pull.name, self._pasts[pull.name])
            for line in self._new(found):
                self._adapted.alarms += 1
                yield line
            self._mention(found)
        self._pasts = {name: past for name, past in self._pasts.items() if name in seen}
        self._remember()
        self._count()

    def _pulls(self) -> Iterator[Pull]:
        interval, span = self.stored.interval, self.settings.span
        if isinstance(self.source, Path):
            for folder in find_pulls(self.source):
                yield opened(folder, self.stored, span)
            return
        end = self.clock.now() - _LAG * interval
        if self._answered:  # what was missed is looked at, too
            missed = end - self._answered + span - self.settings.every
            span = min(max(span, missed), _LONGEST_SPAN * span)
        first = self.stored.detector.metrics[0].name
        yield from self.source.pulls(first, end, span)
        self._answered = end

    def _known(self, task: str) -> Mapping[str, Past]:
        if task not in self._pasts:
            stored = load_state(self.state, task) if self.state is not None else {}
            self._pasts[task] = stored
        return self._pasts[task]

    def _new(self, found: Detected) -> Iterator[dict[str, Any]]:
        """Yield a verdict unless it goes on from one that was given."""
        if not found.verdict.findings:
            return
        first, grid = found.verdict.findings[0], found.pull.grid
        key = json.dumps([found.pull.name, grid.machines[first.machine]])
        before, end = self._said.get(key), grid.time(grid.n_ticks - 1)
        self._said[key] = end
        # Overlapping calls see the same fault; one that began after the last look is another.
        if before is None or grid.time(first.since) > before:
            yield found.line()

    def _learn(self, found: Detected) -> None:
        """Let thresholds rise with what a task reached in which nobody was named."""
        grid, task = found.pull.grid, found.pull.name
        self._adapted.watched(task, grid.time(0), grid.time(grid.n_ticks - 1))
        if not found.verdict.findings:
            shares = shares_reached(self.stored.detector, self._pasts[task])
            self._adapted.learn(task, shares)

    def _count(self) -> None:
        """Say when there were more verdicts than the wanted rate of false alarms explains."""
        wanted, known = self.stored.facts.get("false_alarms"), self._adapted
        if wanted is None or known.alarms == self._counted:
            return
        self._counted = known.alarms
        if beyond_chance(known.alarms, known.days, wanted):
            note(
                f"{known.alarms} verdicts in {known.days:.3g} task-days, more than the "
                f"{wanted:g} false alarms a day that are wanted explain: if no machine was faulty, "
                "fit again with these days"
            )

    def _mention(self, found: Detected) -> None:
        """Note once who stood out for a while and is back: no verdict, but worth a look."""
        task, grid = found.pull.name, found.pull.grid
        for one in found.verdict.jitters:
            machine, since = grid.machines[one.machine], grid.time(one.since)
            key = json.dumps([task, machine, "jitter"])
            if since > self._said.get(key, 0):
                self._said[key] = grid.time(one.until)
                seconds = (one.until - one.since + 1) * grid.interval / 1e9
                note(f"{task}: {machine} stood out on {one.metric} for {seconds:g} s, and is back")

    def _remember(self) -> None:
        """Keep what was said lately; nothing that is older can be said again."""
        newest = max(self._said.values(), default=0)
        old = newest - 2 * _LONGEST_SPAN * self.settings.span
        self._said = {key: at for key, at in self._said.items() if at >= old}
        if self.state is not None:
            with replacing(self.state / _SAID) as path:
                path.write_text(json.dumps(self._said) + "\n", encoding="utf-8")
            save_adaptation(self.state, self.stored, self._adapted)
