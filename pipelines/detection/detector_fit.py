"""`forewarn detect fit`: fits thresholds, ranks metrics, and cross-validates both."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forewarn.evaluation.detection.fit_assessment import FitAssessment
from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.detection.sampling import Sampling
from forewarn.features.records.record_table import DAY
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import MetricModel
from forewarn.models.detection.detector_file import DetectorFacts, StoredDetector, save_detector
from forewarn.models.detection.fitting.denoiser_training import fit_lstm_vae
from forewarn.models.detection.fitting.detector_training import (
    CrossValidation,
    DetectorTerms,
    TrainedDetector,
    cross_validate,
    train_detector,
)
from forewarn.models.detection.fitting.metric_ranking import max_abs_z, rank_metrics
from forewarn.models.detection.fitting.threshold_fitting import sample_windows
from forewarn.models.detection.monitored_task import TrainingTask, job_name
from forewarn.pipelines.config.settings import DetectionTable
from forewarn.pipelines.detection.task_metrics import (
    FilePull,
    PullError,
    open_pull,
    readable_pulls,
    task_name,
)
from forewarn.pipelines.detection.usable_metrics import frequent_metrics, mark_counters
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.regular_files import require_all_regular

__all__ = ["LabelledIncident", "fit_detector", "read_incidents", "save_fitted"]

_MAX_TRAINING_WINDOWS = 40_000  # windows a denoiser is trained on
_COLUMNS = ("task", "machine", "start", "end")
_TIMES = (pd.Timestamp("1700-01-01", tz="UTC"), pd.Timestamp("2262-01-01", tz="UTC"))


@dataclass(frozen=True, slots=True)
class LabelledIncident:
    """A labelled task: the faulty machine and the span in nanoseconds, or no machine if healthy."""

    task: str
    machine: str
    start: int
    end: int


def read_incidents(path: Path) -> list[LabelledIncident]:
    """Read `task,machine,start,end`; a row without a machine labels its task as healthy.

    Raises
    ------
    PullError
        If the file cannot be read, a column is missing, or a value is not a time.
    """
    require_all_regular(path)
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
        parsed = parsed.where(parsed.between(*_TIMES))  # the range that nanoseconds can represent
        wrong = table.index[parsed.isna() & (table["machine"] != "")]
        if len(wrong):
            value = table[name][wrong[0]][:40]
            raise PullError(
                f"{path}: column `{name}` of row {wrong[0] + 2} is {value!r}, expected a time."
            )
        times[name] = parsed.dt.as_unit("ns").astype("int64")
    columns = (table["task"], table["machine"], times["start"], times["end"])
    return [LabelledIncident(*row) for row in zip(*columns, strict=True)]


def fit_detector(
    metrics: Path, settings: DetectionTable, incidents: Sequence[LabelledIncident] = ()
) -> tuple[StoredDetector, FitAssessment]:
    """Fit a detector to the mostly healthy tasks of a folder and cross-validate it.

    Parameters
    ----------
    metrics : Path
        `task=NAME/*.parquet`.
    settings : DetectionTable
    incidents : sequence of LabelledIncident
        Tasks with a faulty machine are excluded from the fit and used to rank the metrics. Tasks
        without one count as healthy.

    Raises
    ------
    PullError
        If no task is valid, or none of the configured metrics exists.
    """
    faulty = frozenset(incident.task for incident in incidents if incident.machine)
    configured = [metric.name for metric in settings.metrics]
    folders = readable_pulls(metrics, settings.interval, configured)
    tasks = _Tasks(folders, settings, faulty)
    limits = _present(metrics, tasks, [metric.limits for metric in settings.metrics])
    tasks, limits = _as_sampled(tasks, limits)
    names = [metric.name for metric in limits]
    is_sent = settings.activity in names or settings.activity in tasks.columns()
    activity = settings.activity if is_sent else None
    labelled = frozenset(incident.task for incident in incidents) - faulty
    terms = DetectorTerms(
        settings.rules, activity, settings.false_alarms, labelled, settings.joint_min_tasks
    )
    steps = 5 * len(tasks.folders) + len(limits)
    with progress_bar(steps, "fit", "step") as bar:
        bare, errors = _unfitted_models(tasks, limits, settings, bar)

        def source() -> Iterator[TrainingTask]:
            for pull in tasks.healthy():
                days = pull.grid.n_ticks * pull.grid.interval / DAY
                yield TrainingTask(pull.name, pull.task(), days)
                bar.update()

        trained = train_detector(source, bare, terms)
        judgement = _judgement(tasks, trained, cross_validate(source, trained, terms), settings)
    ranks = _ranks(tasks, limits, faulty, settings)
    order = [name for name, _ in ranks] or names
    ordered = tuple(sorted(trained.detector.metrics, key=lambda model: order.index(model.name)))
    facts = DetectorFacts(
        tasks=len(tasks.folders),
        incidents=len(faulty),
        reconstruction_error={name: float(f"{e:.4g}") for name, e in errors.items()},
        ranked_by="incidents" if ranks else "configuration",
        importance=dict(ranks),
        false_alarms=settings.false_alarms,
        fit=judgement.figures(),
    )
    detector = replace(trained.detector, metrics=ordered, observe_only=bool(judgement.doubts))
    return StoredDetector(detector, settings.interval, facts), judgement


def _present(metrics: Path, tasks: _Tasks, limits: Sequence[MetricLimits]) -> list[MetricLimits]:
    """Return the metrics that at least one task has; note the others."""
    columns = tasks.columns()
    if not any(metric.name in columns for metric in limits):
        raise PullError(
            f"{metrics}: holds none of the metrics {', '.join(metric.name for metric in limits)}; "
            "expected those of `detection.metrics`."
        )
    for metric in limits:
        if metric.name not in columns:
            note(f"no task has the metric `{metric.name}`: it is ignored")
    return [metric for metric in limits if metric.name in columns]


def _as_sampled(tasks: _Tasks, limits: Sequence[MetricLimits]) -> tuple[_Tasks, list[MetricLimits]]:
    """Determine how the metrics are sampled, so that they are read the same way from here on."""
    settings = tasks.settings
    interval, slowest = settings.interval, settings.rules.max_sample_ticks
    frequent = frequent_metrics(tasks.all, limits, interval, slowest)
    declared = {metric.name for metric in settings.metrics if "kind" in metric.model_fields_set}
    marked = mark_counters(tasks.all, frequent, declared, interval)
    counters = frozenset(metric.name for metric in marked if metric.counter)
    return replace(tasks, sampling=Sampling(slowest, counters)), marked


def _unfitted_models(
    tasks: _Tasks, limits: Sequence[MetricLimits], settings: DetectionTable, bar: Any
) -> tuple[list[MetricModel], dict[str, float]]:
    """Return unfitted metric models; in mode `minder`, each with a trained denoiser."""
    models, errors = [], {}
    for number, metric in enumerate(limits):
        if settings.mode == "minder":
            seed = settings.seed + number
            model, errors[metric.name] = _denoiser(tasks, metric, settings.rules, seed)
        else:
            model = MetricModel((metric,), None)
        models.append(model)
        bar.update()
    return models, errors


def _judgement(
    tasks: _Tasks, trained: TrainedDetector, judged: CrossValidation, settings: DetectionTable
) -> FitAssessment:
    pulls = [(pull.name, len(pull.grid.machines)) for pull in tasks.all()]
    names = [model.name for model in trained.detector.metrics]
    return FitAssessment(
        tasks=len(pulls),
        machines=sum(n for _, n in pulls),
        jobs=len({job_name(name) for name, _ in pulls}),
        left_out=trained.excluded,
        judged=judged,
        never_useful=tuple(name for name in names if not trained.peak_scores[name]),
        metrics=len(names),
        false_alarms=settings.false_alarms,
    )


def save_fitted(stored: StoredDetector, folder: Path) -> None:
    """Write both files of a detector atomically."""
    with tempfile.TemporaryDirectory() as made:
        save_detector(stored, Path(made))
        with ExitStack() as files:
            for path in sorted(Path(made).iterdir()):
                shutil.copyfile(path, files.enter_context(replacing(folder / path.name)))


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The training tasks, opened one after the other."""

    folders: list[Path]
    settings: DetectionTable
    known_faulty: frozenset[str]
    sampling: Sampling = field(default_factory=Sampling)

    def healthy(self) -> Iterator[FilePull]:
        """Open the tasks without a known fault."""
        for folder in self.folders:
            if task_name(folder) not in self.known_faulty:
                yield self._opened(folder)

    def all(self) -> Iterator[FilePull]:
        """Open all tasks."""
        for folder in self.folders:
            yield self._opened(folder)

    def _opened(self, folder: Path) -> FilePull:
        return open_pull(folder, self.settings.interval, sampling=self.sampling)

    def columns(self) -> set[str]:
        """Return the metrics that at least one task has."""
        return {name for pull in self.all() for name in pull.columns}


def _denoiser(
    tasks: _Tasks, limits: MetricLimits, rules: DetectionRules, seed: int
) -> tuple[MetricModel, float]:
    """Train a denoiser on windows of all healthy tasks, an equal share from each."""
    generator = np.random.default_rng(seed)
    share = -(-_MAX_TRAINING_WINDOWS // max(len(tasks.folders) - len(tasks.known_faulty), 1))
    parts = []
    for pull in tasks.healthy():
        series = pull.series(limits.name)
        if series is not None:
            scaled = limits.scale(series)[None]
            parts.append(sample_windows(scaled, rules.window, share, generator))
    windows = np.concatenate(parts) if parts else np.empty((0, rules.window, 1), np.float32)
    if not len(windows):
        raise PullError(
            f"metric `{limits.name}`: no window of {rules.window} samples without a gap; expected "
            "samples every `detection.interval`."
        )
    denoiser, error = fit_lstm_vae(windows, seed=seed)
    return MetricModel((limits,), denoiser), error


def _ranks(
    tasks: _Tasks,
    limits: Sequence[MetricLimits],
    faulty: frozenset[str],
    settings: DetectionTable,
) -> list[tuple[str, float]]:
    """Rank the metrics by labelled pulls; return nothing if they do not contain both classes."""
    names, rows, labels = [metric.name for metric in limits], [], []
    if not faulty:
        return []
    span = settings.continuity // settings.interval
    for pull in tasks.all():
        row = []
        for metric in limits:
            series = pull.series(metric.name)
            scaled = None if series is None else metric.scale(series)
            row.append(0.0 if scaled is None else max_abs_z(scaled, settings.window, span))
        rows.append(row)
        labels.append(pull.name in faulty)
    if len(set(labels)) < 2:
        note("--incidents labels all tasks or none as faulty: the metrics keep their order")
        return []
    return rank_metrics(names, np.array(rows), np.array(labels), settings.seed)
