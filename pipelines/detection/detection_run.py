"""`forewarn detect run`: one verdict per task, with its evidence."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.detection.sample_grid import build_task_grid
from forewarn.features.time_units import MINUTE
from forewarn.models.detection.detection_verdict import MachineFinding, Verdict
from forewarn.models.detection.detector import Detector
from forewarn.models.detection.detector_file import StoredDetector
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.monitored_task import Task
from forewarn.models.detection.peer_deviation import MIN_GROUP_SIZE
from forewarn.models.detection.threshold import Threshold
from forewarn.pipelines.detection.baseline_store import load_baselines_or_empty, save_baselines
from forewarn.pipelines.detection.task_metrics import (
    FilePull,
    Pull,
    PullError,
    find_pulls,
    open_pull,
    task_name,
)
from forewarn.pipelines.detection.task_result import TaskVerdict, UnjudgedTask
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.evidence.at_risk_prior import Prior
from forewarn.pipelines.storage.evidence.host_events import HostEvents, HostEventsError

__all__ = ["detect", "detect_pulls", "no_task_judged", "open_for_detector", "warm_up"]


_XID_LOOKBACK = 15 * MINUTE  # span before a deviation in which an Xid may be its cause


def detect_pulls(
    metrics: Path,
    stored: StoredDetector,
    *,
    at_risk: Path | None = None,
    state: Path | None = None,
    events: HostEvents | None = None,
) -> Iterator[TaskVerdict | UnjudgedTask]:
    """Search every task of a folder for a faulty machine, one task after another.

    An invalid task is reported with the reason and does not stop the others.

    Parameters
    ----------
    metrics : Path
        `task=NAME/*.parquet`.
    stored : StoredDetector
    at_risk : Path, optional
        Lists of `forewarn score`; only rows that are valid at the end of a pull are used.
    state : Path, optional
        Folder of machine baselines, read and updated.
    events : HostEvents, optional
        Kernel log events.

    Raises
    ------
    PullError
        If the folder holds no task, or no task could be judged (raised after all reasons).
    """
    lists = Prior.open(at_risk) if at_risk is not None else None
    warm_up(stored)
    folders, refused = find_pulls(metrics), list[PullError]()
    for folder in folders:
        started = time.perf_counter()
        try:
            pull = open_for_detector(folder, stored)
            before = load_baselines_or_empty(state, pull.name)
            detected, baselines = detect(pull, stored.detector, lists, before, events)
        except PullError as error:
            refused.append(error)
            seconds = time.perf_counter() - started
            observe_only = stored.detector.observe_only
            yield UnjudgedTask(task_name(folder), str(error), seconds, observe_only)
            continue
        if state is not None:
            save_baselines(state, pull.name, baselines)
        yield replace(detected, seconds=time.perf_counter() - started)
    if len(refused) == len(folders):
        raise no_task_judged(refused)


def no_task_judged(refused: Sequence[PullError]) -> PullError:
    """Return the error for a call in which no task could be judged."""
    if len(refused) == 1:
        return refused[0]
    return PullError(f"none of {len(refused)} tasks can be judged. First reason: {refused[0]}")


def warm_up(stored: StoredDetector) -> None:
    """Compile or load the code that a pull needs, so that the first pull does not wait.

    Needed once per process if compiled code cannot be cached on disk.
    """
    n, ticks = 4, 6 * stored.detector.rules.window
    machine = np.repeat(np.arange(n, dtype=np.int32), ticks)
    times = np.tile(np.arange(ticks, dtype=np.int64) * stored.interval, n)
    grid = build_task_grid(machine, ["a", "b", "c", "d"], times, stored.interval)
    values = 0.1 * np.random.default_rng(0).random(n * ticks, dtype=np.float32)
    values[machine == 0] += 0.9  # only samples of a machine that deviates are scored one by one

    sampling = stored.sampling
    limits = {part.name: part for model in stored.detector.metrics for part in model.limits}

    def series(name: str) -> npt.NDArray[np.float32] | None:
        if name not in limits:  # the activity, if it is no metric
            return None
        low, high = limits[name].low, limits[name].high
        sent = (low + (high - low) * values).astype(np.float32)
        if name in sampling.counters:
            counted = np.cumsum(sent, dtype=np.float64)
            return grid.increases_on_ticks(counted, times, sampling.max_sample_ticks)
        return grid.on_ticks(sent, sampling.max_sample_ticks)

    groups, weights = np.zeros(n, dtype=np.int64), np.ones(n)
    least = Threshold(base=0.0, slope=0.0, margin=0.0, tail=0.1)
    task = Task(grid.machines, 0, ticks, series, groups, weights)
    for model in stored.detector.metrics:
        replace(stored.detector, metrics=(replace(model, threshold=least),)).find(task)


def open_for_detector(folder: Path, stored: StoredDetector, span: int | None = None) -> FilePull:
    """Open the metrics of a task for a detector: the last `span` nanoseconds, or all.

    Raises
    ------
    PullError
        If they are invalid, or include no metric of the detector.
    """
    pull = open_pull(folder, stored.interval, span, stored.sampling)
    known = [limits.name for model in stored.detector.metrics for limits in model.limits]
    if not set(known) & pull.columns:
        raise PullError(
            f"{folder}: has none of the metrics of this detector ({', '.join(known)}), found "
            f"{', '.join(sorted(pull.columns))[:200]}."
        )
    return pull


def detect(
    pull: Pull,
    detector: Detector,
    lists: Prior | None,
    baselines: Mapping[str, MachineBaseline],
    events: HostEvents | None = None,
    *,
    incremental: bool = False,
) -> tuple[TaskVerdict, dict[str, MachineBaseline]]:
    """Search a task for a faulty machine.

    Parameters
    ----------
    pull : Pull
    detector : Detector
    lists : Prior or None
    baselines : mapping of str to MachineBaseline
        Baselines of earlier calls, by metric.
    events : HostEvents, optional
    incremental : bool
        Score only windows that earlier calls have not scored (`Detector.find`).

    Returns
    -------
    TaskVerdict
    dict
        The updated baselines, by metric.
    """
    started = time.perf_counter()
    n = len(pull.grid.machines)
    if n < MIN_GROUP_SIZE:
        note(f"{pull.name}: {n} machine(s); at least {MIN_GROUP_SIZE} are needed to identify one")
    weights = _weights(pull, lists)
    verdict, now = detector.find(pull.task(weights), baselines, incremental=incremental)
    helped = bool(verdict.findings and weights[verdict.findings[0].machine] > 1.0)
    if helped:
        without, _ = detector.find(pull.task(), baselines, incremental=incremental)
        helped = _machine(without.findings) != _machine(verdict.findings)
    if verdict.absent:
        note(f"{pull.name}: no machine sends {', '.join(verdict.absent)}")
    xids = _xids(pull, verdict, events)
    return TaskVerdict(pull, verdict, helped, time.perf_counter() - started, xids), now


def _xids(pull: Pull, verdict: Verdict, events: HostEvents | None) -> list[dict[str, Any]] | None:
    if events is None or not verdict.findings:
        return None
    first, grid = verdict.findings[0], pull.grid
    machine, end = grid.machines[first.machine], grid.time(grid.n_ticks - 1)
    try:
        return events.xids(machine, grid.time(first.since) - _XID_LOOKBACK, end)
    except HostEventsError as error:  # missing evidence must not suppress a verdict
        note(str(error))
        return None


def _machine(findings: Sequence[MachineFinding]) -> int | None:
    return findings[0].machine if findings else None


def _weights(pull: Pull, lists: Prior | None) -> npt.NDArray[np.float64]:
    machines = pull.grid.machines
    if lists is None:
        return np.ones(len(machines))
    return lists.weights(machines, pull.grid.time(pull.grid.n_ticks - 1))
