"""`forewarn study detection`: the tables and plots of Minder's section 6 for a data set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from forewarn.evaluation.detection.verdict_evaluation import (
    PullOutcome,
    evaluate_best_thresholds,
    evaluate_random_guess,
    evaluate_verdicts,
)
from forewarn.features.detection.sampling import Sampling
from forewarn.features.time_units import SECOND
from forewarn.models.detection.detector import Detector
from forewarn.models.detection.detector_file import StoredDetector
from forewarn.pipelines.detection.task_metrics import Pull, PullError, find_pulls, open_pull
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.csv_table import write_csv
from forewarn.pipelines.storage.files.regular_files import require_all_regular
from forewarn.pipelines.studies.detector_variants import DetectorVariants
from forewarn.pipelines.studies.pull_means import PullMeans

__all__ = ["StudySet", "run_study", "study_text"]

_SIZES = ((4, 15), (16, 63), (64, 255), (256, 100_000))


@dataclass(frozen=True, slots=True)
class StudySet:
    """A data set written by `simulate incidents`, or real pulls in the same format.

    Attributes
    ----------
    folder : Path
        Contains `train`, `pulls` and `truth.csv`.
    interval : int
        Nanoseconds.
    sampling : Sampling
    truth : DataFrame
        By task.
    """

    folder: Path
    interval: int
    sampling: Sampling
    truth: pd.DataFrame

    @classmethod
    def open(cls, folder: Path, interval: int, sampling: Sampling) -> StudySet:
        """Read the ground truth.

        Raises
        ------
        PullError
            If it is missing or lacks a column.
        """
        path = folder / "truth.csv"
        require_all_regular(path)
        try:
            truth = pd.read_csv(path, keep_default_na=False, dtype={"task": str, "machine": str})
        except (OSError, ValueError) as error:
            raise PullError(f"{path}: cannot be read as CSV ({str(error)[:100]}).") from None
        for name in ("task", "machine", "fault", "start_s", "machines"):
            if name not in truth.columns:
                raise PullError(f"{path}: column `{name}` is missing.")
        return cls(folder, interval, sampling, truth.set_index("task"))

    def train(self) -> Iterator[Pull]:
        """Open the pulls of the training set."""
        for folder in find_pulls(self.folder / "train"):
            yield open_pull(folder, self.interval, sampling=self.sampling)

    def pulls(self) -> Iterator[Pull]:
        """Open the pulls with known ground truth."""
        for folder in find_pulls(self.folder / "pulls"):
            pull = open_pull(folder, self.interval, sampling=self.sampling)
            if pull.name in self.truth.index:
                yield pull

    def outcome(
        self,
        detector: Detector | PullMeans,
        pull: Pull,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> PullOutcome:
        """Run the detector on a pull, given list weights, and compare with the ground truth."""
        row: Any = self.truth.loc[pull.name]
        verdict, _ = detector.find(pull.task(weights))
        first = verdict.findings[0] if verdict.findings else None
        named = None if first is None else pull.grid.machines[first.machine]
        truth = str(row["machine"]) or None
        delay = None
        if first is not None and named == truth:
            delay = first.at * self.interval / SECOND - float(row["start_s"])
        return PullOutcome(truth, named, str(row["fault"]), int(row["machines"]), delay)

    def strongest(
        self, detector: Detector | PullMeans, pull: Pull
    ) -> tuple[tuple[str, float], ...]:
        """Return the machine with the highest score of each metric, and its threshold ratio."""
        task, strongest = pull.task(), []
        if isinstance(detector, PullMeans):
            return detector.strongest(task)
        detector = detector.for_task(task)
        paused = detector.pauses(task)
        for model in detector.metrics:
            done = detector.examine(task, model, None, paused)
            if done is not None and model.threshold is not None:
                by = done.highest() / model.threshold.for_machines(task.machines)
                most = int(by.argmax())
                strongest.append((task.machines[most], float(by[most])))
        return tuple(strongest)


def run_study(
    data: StudySet,
    stored: StoredDetector,
    out: Path,
    names: Sequence[str],
    false_alarms: float | None = None,
) -> dict[str, Any]:
    """Compare variants of a detector on a data set; write `study.json`, `study.csv` and plots.

    Parameters
    ----------
    data : StudySet
    stored : StoredDetector
        Fitted to `data.train()`.
    out : Path
    names : sequence of str
        Names in `VARIANTS`.
    false_alarms : float, optional
        Rate per task and day for which every threshold is fitted again; by default the rate of the
        detector.

    Returns
    -------
    dict
        Content of `study.json`.
    """
    variants = DetectorVariants.from_stored(stored, data.train, false_alarms)
    outcomes: dict[str, list[PullOutcome]] = {}
    sure: dict[str, float] = {}
    tasks = list(data.truth.index)
    with progress_bar(len(names) * (len(tasks) + 1), "study", "pull") as bar:
        for name in names:
            bar.set_postfix_str(name)
            detector = variants.make(name)
            bar.update()
            outcomes[name], sure[name] = [], max(detector.rules.stop_strength[1], 1.0)
            for pull in data.pulls():
                outcome = data.outcome(detector, pull)
                outcome = replace(outcome, strongest=data.strongest(detector, pull))
                outcomes[name].append(outcome)
                bar.update()
    study = {
        "pulls": len(tasks),
        "false_alarms_per_task_day": variants.per_day,
        "methods": {name: _figures(of_method, sure[name]) for name, of_method in outcomes.items()},
        "random": evaluate_random_guess(next(iter(outcomes.values()))),
    }
    _write(out, study, outcomes, tasks)
    return study


def _figures(outcomes: Sequence[PullOutcome], sure: float) -> dict[str, Any]:
    """Return the metrics of a method in total, by fault and by size."""
    faults = sorted({outcome.fault for outcome in outcomes if outcome.fault})
    by_fault = {
        fault: {
            "recall": sum(outcome.right for outcome in outcomes if outcome.fault == fault) / n,
            "pulls": n,
        }
        for fault in faults
        if (n := sum(outcome.fault == fault for outcome in outcomes))
    }
    by_size = {
        f"{low} to {high}" if high < 10_000 else f"{low} and more": evaluate_verdicts(of_size)
        for low, high in _SIZES
        if (of_size := [outcome for outcome in outcomes if low <= outcome.machines <= high])
    }
    best = evaluate_best_thresholds(outcomes, sure)
    parts = {"in_hindsight": best, "by_fault": by_fault, "by_size": by_size}
    return evaluate_verdicts(outcomes) | parts


def _write(
    out: Path,
    study: Mapping[str, Any],
    outcomes: Mapping[str, Sequence[PullOutcome]],
    tasks: Sequence[str],
) -> None:
    from forewarn.pipelines.studies.detection_plot import detection_study_plot

    columns = {f"named by {name}": [outcome.named for outcome in o] for name, o in outcomes.items()}
    first = next(iter(outcomes.values()))
    table = pd.DataFrame(
        {
            "task": tasks,
            "machines": [outcome.machines for outcome in first],
            "fault": [outcome.fault for outcome in first],
            "truth": [outcome.truth for outcome in first],
            **columns,
        }
    )
    with ExitStack() as files:
        path = files.enter_context(replacing(out / "study.json"))
        path.write_text(json.dumps(study, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        write_csv(table, files.enter_context(replacing(out / "study.csv")))
        picture = files.enter_context(replacing(out / "study.png"))
        detection_study_plot(study).savefig(picture, dpi=110, format="png")


def study_text(study: Mapping[str, Any]) -> str:
    """Return the table of all methods for a terminal."""
    lines = [
        f"{'method':26}{'precision':>22}{'recall':>22}{'F1':>22}{'best F1':>9}"
        f"{'false':>7}{'wrong':>7}{'delay':>8}"
    ]
    for name, figures in study["methods"].items():
        cells = "".join(f"{_cell(figures, figure):>22}" for figure in ("precision", "recall", "f1"))
        delay = figures["delay_seconds"]["p50"]
        late = "-" if delay is None else f"{delay:.0f} s"
        best = f"{figures['in_hindsight']['f1']:>9.3f}"
        counts = f"{figures['false_alarms']:>7}{figures['wrong']:>7}"
        lines.append(f"{name:26}{cells}{best}{counts}{late:>8}")
    chance = study["random"]
    cells = "".join(f"{chance[figure]:>8.3f}{'':14}" for figure in ("precision", "recall", "f1"))
    lines.append(f"{'random machine':26}{cells}")
    lines.append("best F1: with the thresholds that are best for these pulls, an upper bound.")
    name, first = next(iter(study["methods"].items()))
    for what, part in (("machines", "by_size"), ("fault", "by_fault")):
        known = {row: cell for row, cell in first[part].items() if cell["recall"] is not None}
        rows = [_recall(row, figures) for row, figures in known.items()]
        lines.append(f"recall of {name} by {what}: {', '.join(rows)}")
    return "\n".join(lines)


def _recall(row: str, figures: Mapping[str, Any]) -> str:
    return f"{row} {figures['recall']:.2f} of {figures.get('faulty', figures['pulls'])}"


def _cell(figures: Mapping[str, Any], figure: str) -> str:
    value, between = figures[figure], figures[f"{figure}_interval"]
    if value is None:
        return "-"
    return f"{value:.3f}" + (f" [{between[0]:.2f}, {between[1]:.2f}]" if between else "")
