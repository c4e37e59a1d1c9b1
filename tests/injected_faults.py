"""Smallest fault that is detected in real samples: recall by size of an injected fault.

    python tests/injected_faults.py --metrics FOLDER --config FILE [--json]

FOLDER holds tasks without faults. Each job is scored by a detector fitted to the others. In each of
its pulls each machine gets a fault in turn: from a third of the pull on, its values are reduced, on
one metric or on all. With a size of 0 every detection is a false alarm. Idle machines have little
to lose, so only faults that change a metric by at least its floor are counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.models.detection.detector import Detector
from forewarn.models.detection.monitored_task import Task, job_name
from forewarn.pipelines.config.settings import DetectionTable, load_settings
from forewarn.pipelines.detection.detector_fit import fit_detector
from forewarn.pipelines.detection.task_metrics import find_pulls, open_pull, task_name
from forewarn.pipelines.runtime.terminal import write_line

SIZES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8)
Counts = dict[str, dict[float, list[int]]]  # by metric and size: large enough, correct, wrong


def _weakened(task: Task, machine: int, metrics: Sequence[str], size: float) -> Task:
    """Reduce the values of a machine from a third of the pull on."""
    begin = task.n_ticks // 3

    def series(name: str) -> Float32Array | None:
        values = task.series(name)
        if values is None or name not in metrics:
            return values
        weaker = values.copy()
        weaker[machine, begin:] *= 1.0 - size
        return weaker

    return replace(task, series=series)


def _large(task: Task, weaker: Task, machine: int, detector: Detector) -> bool:
    """Tell whether the reduction reaches the floor of a metric."""
    begin = task.n_ticks // 3
    for model in detector.metrics:
        (limits,) = model.limits
        before, after = task.series(limits.name), weaker.series(limits.name)
        if before is not None and after is not None:
            lost = limits.scale(before[machine, begin:]) - limits.scale(after[machine, begin:])
            if np.nanmean(lost) >= limits.floor:
                return True
    return False


def _judge(detector: Detector, task: Task, counts: Counts) -> None:
    """Inject faults of each size into each machine, and count the detections."""
    names = [model.name for model in detector.metrics]
    for shown, metrics in {**{name: [name] for name in names}, "all": names}.items():
        for size in SIZES:
            count = counts.setdefault(shown, {}).setdefault(size, [0, 0, 0])
            for machine in range(len(task.machines)):
                weaker = _weakened(task, machine, metrics, size)
                verdict, _ = detector.find(weaker)
                named = [finding.machine for finding in verdict.findings[:1]]
                count[0] += size == 0 or _large(task, weaker, machine, detector)
                count[1] += named == [machine] and size > 0
                count[2] += bool(named) and (named != [machine] or size == 0)


def _held_out(folder: Path, settings: DetectionTable) -> Iterator[tuple[Detector, list[Path]]]:
    """Fit to all jobs but one in turn; return the pulls of that job and the detector."""
    pulls = find_pulls(folder)
    for job in sorted({job_name(task_name(pull)) for pull in pulls}):
        with tempfile.TemporaryDirectory() as name:
            for pull in pulls:
                if job_name(task_name(pull)) != job:
                    shutil.copytree(pull, Path(name) / pull.name)
            stored, _ = fit_detector(Path(name), settings)
        yield stored.detector, [pull for pull in pulls if job_name(task_name(pull)) == job]


def main() -> None:
    """Print the recall by metric and size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    settings = load_settings(args.config).detection
    counts: Counts = {}
    for detector, pulls in _held_out(args.metrics, settings):
        for pull in pulls:
            _judge(detector, open_pull(pull, settings.interval).task(), counts)
    if args.json:
        write_line(json.dumps(counts))
        return
    write_line(f"{'metric':20}" + "".join(f"{f'less {size:.0%}':>12}" for size in SIZES))
    for metric, by_size in counts.items():
        cells = (f"{right}/{n} ({wrong})" for n, right, wrong in by_size.values())
        write_line(f"{metric:20}" + "".join(f"{cell:>12}" for cell in cells))
    write_line("right/injected and at least as large as the floor (somebody else named)")


if __name__ == "__main__":
    main()
