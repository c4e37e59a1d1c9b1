"""`forewarn detect fit`: denoisers, thresholds and the order of the metrics."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.records.table import DAY
from forewarn.models.detection.denoiser_training import fit_lstm_vae
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.detector_file import StoredDetector, save_detector
from forewarn.models.detection.fitting import (
    fit_metric_threshold,
    fit_usual,
    reached_by,
    sample_windows,
)
from forewarn.models.detection.metric_ranking import largest_z, ranked_metrics
from forewarn.models.detection.rules import Rules
from forewarn.pipelines.config.settings import DetectionTable
from forewarn.pipelines.detection.task_metrics import FilePull, PullError, open_pull, sound_pulls
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.storage.atomic_files import replacing
from forewarn.pipelines.storage.regular_files import refuse_irregular

__all__ = ["Incident", "fit_detector", "read_incidents", "save_fitted"]

_WINDOWS = 40_000  # that a denoiser is trained on
_BLOCKS = 4  # of a machine's past in a continuity
_COLUMNS = ("task", "machine", "start", "end")
_TIMES = (pd.Timestamp("1700-01-01", tz="UTC"), pd.Timestamp("2262-01-01", tz="UTC"))


@dataclass(frozen=True, slots=True)
class Incident:
    """A task in which a machine is known to have been faulty; nanoseconds."""

    task: str
    machine: str
    start: int
    end: int


def read_incidents(path: Path) -> list[Incident]:
    """Read `task,machine,start,end`; a row without a machine says that its task was healthy.

    Raises
    ------
    PullError
        If the file cannot be read, or a column is missing or no time.
    """
    refuse_irregular(path)
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise PullError(f"{path}: cannot be read as CSV ({str(error)[:100]}).") from None
    missing = [name for name in _COLUMNS if name not in table.columns]
    if missing:
        raise PullError(f"{path}: column `{missing[0]}` is missing, expected {','.join(_COLUMNS)}.")
    times = {}
    for name in ("start", "end"):
        parsed = pd.to_datetime(table[name], utc=True, errors="coerce", format="ISO8601")
        parsed = parsed.where(parsed.between(*_TIMES))  # of which there are nanoseconds
        wrong = table.index[parsed.isna() & (table["machine"] != "")]
        if len(wrong):
            found = table[name][wrong[0]][:40]
            raise PullError(
                f"{path}: column `{name}` of row {wrong[0] + 2} is {found!r}, expected a time."
            )
        times[name] = parsed.dt.as_unit("ns").astype("int64")
    columns = (table["task"], table["machine"], times["start"], times["end"])
    return [Incident(*row) for row in zip(*columns, strict=True) if row[1]]


def fit_detector(
    metrics: Path, settings: DetectionTable, incidents: Sequence[Incident] = ()
) -> StoredDetector:
    """Fit a detector to the tasks of a folder, which are mostly healthy.

    Parameters
    ----------
    metrics : Path
        `task=NAME/*.parquet`.
    settings : DetectionTable
    incidents : sequence of Incident
        Their tasks are left out of what is taken for healthy, and the metrics are ranked by how
        well they tell them from the rest.

    Raises
    ------
    PullError
        If no task keeps the contract, or none of the metrics that the settings name is there.
    """
    wanted = [one.name for one in settings.metrics]
    folders = sound_pulls(metrics, settings.interval, wanted)
    tasks = _Tasks(folders, settings, frozenset(one.task for one in incidents))
    continuity = settings.continuity // settings.interval
    block = max(continuity // _BLOCKS, 1)
    rules = Rules(settings.window, continuity, block, settings.mode, settings.distance)
    limits = [one.limits for one in settings.metrics]
    present = tasks.present([one.name for one in limits])
    if not present:
        raise PullError(
            f"{metrics}: holds none of the metrics {', '.join(one.name for one in limits)}; "
            "expected those of `detection.metrics`."
        )
    for one in limits:
        if one.name not in present:
            note(f"no task has the metric `{one.name}`: it is left out")
    limits = [one for one in limits if one.name in present]
    activity = settings.activity if settings.activity in present else None
    detector = Detector(rules, (), activity)
    models, errors = [], {}
    with progress_bar(3 * len(limits), "fit", "step") as bar:
        for number, one in enumerate(limits):
            bar.set_postfix_str(one.name)
            model, errors[one.name] = _denoiser(tasks, one, rules, settings.seed + number)
            bar.update()
            models.append(_fitted(tasks, detector, model, settings, len(limits), bar))
    ranks = _ranks(tasks, limits, incidents, settings)
    order = [name for name, _ in ranks] or [one.name for one in limits]
    ordered = tuple(sorted(models, key=lambda model: order.index(model.name)))
    facts = {
        "tasks": len(tasks.folders),
        "incidents": len(incidents),
        "reconstruction_error": {name: float(f"{e:.4g}") for name, e in errors.items()},
        "ranked_by": "incidents" if ranks else "configuration",
        "importance": dict(ranks),
        "false_alarms": settings.false_alarms,
    }
    return StoredDetector(Detector(rules, ordered, activity), settings.interval, facts)


def save_fitted(stored: StoredDetector, folder: Path) -> None:
    """Write both files of a detector, each as a whole."""
    with tempfile.TemporaryDirectory() as made:
        save_detector(stored, Path(made))
        with ExitStack() as files:
            for path in sorted(Path(made).iterdir()):
                shutil.copyfile(path, files.enter_context(replacing(folder / path.name)))


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The tasks that are trained on, opened one after the other."""

    folders: list[Path]
    settings: DetectionTable
    known_faulty: frozenset[str]

    def healthy(self) -> Iterator[FilePull]:
        """Open those in which nothing is known to be wrong."""
        for folder in self.folders:
            if folder.name.removeprefix("task=") not in self.known_faulty:
                yield open_pull(folder, self.settings.interval)

    def all(self) -> Iterator[FilePull]:
        """Open every one."""
        for folder in self.folders:
            yield open_pull(folder, self.settings.interval)

    def present(self, names: Sequence[str]) -> set[str]:
        """Return the metrics that any task has."""
        return {name for pull in self.all() for name in names if name in pull.columns}


def _denoiser(
    tasks: _Tasks, limits: MetricLimits, rules: Rules, seed: int
) -> tuple[MetricModel, float]:
    """Train a denoiser on windows of all healthy tasks, each with an equal share."""
    generator = np.random.default_rng(seed)
    share = -(-_WINDOWS // max(len(tasks.folders) - len(tasks.known_faulty), 1))
    parts = []
    for pull in tasks.healthy():
        series = pull.series(limits.name)
        if series is not None:
            scaled = limits.scale(series)[None]
            parts.append(sample_windows(scaled, rules.window, share, generator))
    windows = np.concatenate(parts) if parts else np.empty((0, rules.window, 1), np.float32)
    if not len(windows):
        raise PullError(
            f"metric `{limits.name}`: no window of {rules.window} samples without a gap, expected "
            "samples every `detection.interval`."
        )
    denoiser, error = fit_lstm_vae(windows, seed=seed)
    return MetricModel((limits,), denoiser), error


def _fitted(
    tasks: _Tasks,
    detector: Detector,
    model: MetricModel,
    settings: DetectionTable,
    n_metrics: int,
    bar: Any,
) -> MetricModel:
    """Find what is usual on a metric, and the threshold that healthy tasks do not pass."""
    model = replace(model, usual=fit_usual(detector, model, (p.task() for p in tasks.healthy())))
    bar.update()
    reached = []
    for pull in tasks.healthy():
        days = pull.grid.n_ticks * pull.grid.interval / DAY
        one = reached_by(detector, model, pull.task(), days)
        if one is not None:
            reached.append(one)
    bar.update()
    # Any metric may raise the alarm, so that each gets its part of what is allowed.
    threshold = fit_metric_threshold(reached, settings.false_alarms / n_metrics)
    return replace(model, threshold=threshold)


def _ranks(
    tasks: _Tasks,
    limits: Sequence[MetricLimits],
    incidents: Sequence[Incident],
    settings: DetectionTable,
) -> list[tuple[str, float]]:
    """Rank the metrics by labelled pulls; nothing where there are none, or nothing else."""
    faulty = {one.task for one in incidents}
    names, rows, labels = [one.name for one in limits], [], []
    if not faulty:
        return []
    span = settings.continuity // settings.interval
    for pull in tasks.all():
        row = []
        for one in limits:
            series = pull.series(one.name)
            scaled = None if series is None else one.scale(series)
            row.append(0.0 if scaled is None else largest_z(scaled, settings.window, span))
        rows.append(row)
        labels.append(pull.name in faulty)
    if len(set(labels)) < 2:
        note("the incidents name all tasks or none of them: the metrics keep their order")
        return []
    return ranked_metrics(names, np.array(rows), np.array(labels), settings.seed)
