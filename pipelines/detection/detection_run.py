"""`forewarn detect run`: one verdict for each task, and what it rests on."""

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


_XID_LOOKBACK = 15 * MINUTE  # before a machine stood out: an Xid then may be the cause


def detect_pulls(
    metrics: Path,
    stored: StoredDetector,
    *,
    at_risk: Path | None = None,
    state: Path | None = None,
    events: HostEvents | None = None,
) -> Iterator[TaskVerdict | UnjudgedTask]:
    """Look for the faulty machine of every task in a folder, one task after another.

    A task that breaks the contract is given with its reason and stops no other.

    Parameters
    ----------
    metrics : Path
        `task=NAME/*.parquet`.
    stored : StoredDetector
    at_risk : Path, optional
        Lists of `forewarn score`; only rows that are valid at the end of a pull count.
    state : Path, optional
        What is known of each machine's past, read and written.
    events : HostEvents, optional
        What kernel logs said.

    Raises
    ------
    PullError
        If the folder holds no task, or, after their reasons, if none could be judged.
    """
    lists = Prior.open(at_risk) if at_risk is not None else None
    warm_up(stored)
    folders, refused = find_pulls(metrics), list[PullError]()
    for folder in folders:
        started = time.perf_counter()
        try:
            pull = open_for_detector(folder, stored)
            before = load_baselines_or_empty(state, pull.name)
            detected, pasts = detect(pull, stored.detector, lists, before, events)
        except PullError as error:
            refused.append(error)
            seconds = time.perf_counter() - started
            observe_only = stored.detector.observe_only
            yield UnjudgedTask(task_name(folder), str(error), seconds, observe_only)
            continue
        if state is not None:
            save_baselines(state, pull.name, pasts)
        yield replace(detected, seconds=time.perf_counter() - started)
    if len(refused) == len(folders):
        raise no_task_judged(refused)


def no_task_judged(refused: Sequence[PullError]) -> PullError:
    """Say of tasks that are all bad why the first one is."""
    if len(refused) == 1:
        return refused[0]
    return PullError(f"none of {len(refused)} tasks can be judged; the first: {refused[0]}")


def warm_up(stored: StoredDetector) -> None:
    """Compile what a pull needs, or load it, before the first one waits for it.

    Needed once for each process: where nothing can be written, machine code is not kept.
    """
    n, ticks = 4, 6 * stored.detector.rules.window
    machine = np.repeat(np.arange(n, dtype=np.int32), ticks)
    times = np.tile(np.arange(ticks, dtype=np.int64) * stored.interval, n)
    grid = build_task_grid(machine, ["a", "b", "c", "d"], times, stored.interval)
    values = np.random.default_rng(0).random(n * ticks, dtype=np.float32)

    sampling = stored.sampling
    counted = np.cumsum(values, dtype=np.float64)

    def series(name: str) -> npt.NDArray[np.float32]:
        if name in sampling.counters:
            return grid.increases_on_ticks(counted, times, sampling.slowest)
        return grid.on_ticks(values, sampling.slowest)

    groups, weights = np.zeros(n, dtype=np.int64), np.ones(n)
    stored.detector.find(Task(grid.machines, 0, ticks, series, groups, weights))


def open_for_detector(folder: Path, stored: StoredDetector, span: int | None = None) -> FilePull:
    """Open the metrics of a task for a detector, the last `span` nanoseconds or all.

    Raises
    ------
    PullError
        If they break the contract, or hold no metric that the detector knows.
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
    pasts: Mapping[str, MachineBaseline],
    events: HostEvents | None = None,
    *,
    go_on: bool = False,
) -> tuple[TaskVerdict, dict[str, MachineBaseline]]:
    """Look for the faulty machine of a task.

    Parameters
    ----------
    pull : Pull
    detector : Detector
    lists : Prior or None
    pasts : mapping of str to Past
        By metric, from earlier calls.
    events : HostEvents, optional
    go_on : bool
        Judge only what the call before has not (`Detector.find`).

    Returns
    -------
    Detected
    dict
        The pasts as they are now.
    """
    started = time.perf_counter()
    n = len(pull.grid.machines)
    if n < MIN_GROUP_SIZE:
        note(f"{pull.name}: {n} machine(s), expected {MIN_GROUP_SIZE} or more: nobody can be named")
    weights = _weights(pull, lists)
    verdict, now = detector.find(pull.task(weights), pasts, go_on=go_on)
    helped = bool(verdict.findings and weights[verdict.findings[0].machine] > 1.0)
    if helped:
        without, _ = detector.find(pull.task(), pasts, go_on=go_on)
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
    except HostEventsError as error:  # the verdict is worth more than what lies beside it
        note(str(error))
        return None


def _machine(findings: Sequence[MachineFinding]) -> int | None:
    return findings[0].machine if findings else None


def _weights(pull: Pull, lists: Prior | None) -> npt.NDArray[np.float64]:
    machines = pull.grid.machines
    if lists is None:
        return np.ones(len(machines))
    return lists.weights(machines, pull.grid.time(pull.grid.n_ticks - 1))
