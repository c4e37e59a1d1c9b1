"""The two walk-forward backtests of a simulated fleet in the prediction study."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from forewarn.evaluation.prediction.walk_forward.negative_sampling import negative_sampling_mask
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import retraining_times
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward import (
    WalkForward,
    find_scorable_instances,
)
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.record_table import MACHINE
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.trained_recipe import RecipeTrainer
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import Job, open_job
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import to_timestamps
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

__all__ = ["MAX_MODEL_AGE_DAYS", "FleetScores", "backtest_fleet", "count_retrainings"]

MAX_MODEL_AGE_DAYS = 9  # days after training for which a model is scored
_DERIVED_SCORES = ("blend", "probability")
_FLEET_OFFSET = (
    4000 * DAY
)  # time offset between fleets, which keeps their windows and machines apart
STRATEGIES = (Strategy.FIXED, Strategy.SLIDING, Strategy.VARIABLE, Strategy.STEADY)


@dataclass(frozen=True, slots=True)
class FleetScores:
    """Scores of a fleet's instances, one row per instance and model age or strategy.

    Attributes
    ----------
    strategies : dict of DataFrame
        Test sets (1:8) by strategy, retrained according to the settings.
    spans : dict of DataFrame
        Test sets by training span, retrained at the same moments.
    daily : DataFrame
        Scores of models on the longest span, retrained daily and used for `MAX_MODEL_AGE_DAYS`
        days. `trained` is the number of the training day, `age` the days since then. `of_window`
        marks the rows of the test sets above, `of_day` those of test sets of single days.
    facts : dict
    """

    strategies: dict[str, pd.DataFrame]
    spans: dict[Nanoseconds, pd.DataFrame]
    daily: pd.DataFrame
    facts: dict[str, Any]


def backtest_fleet(
    settings: Settings,
    models: Sequence[str],
    fleet: tuple[int, int, int],
    number: int,
    done: Callable[[], object],
) -> tuple[FleetScores, Job]:
    """Simulate a fleet and run the backtests on it.

    Parameters
    ----------
    settings : Settings
    models : sequence of str
    fleet : tuple of (int, int, int)
        GPUs, days and seed.
    number : int
        Number of the fleet, from 0, which makes its serials and times unique.
    done : callable
        Called after each retraining.

    Raises
    ------
    JobError
        If the days are too short for a retraining, or too few GPUs fail.
    """
    n_gpus, n_days, seed = fleet
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        simulate_fleet_to(out, n_gpus=n_gpus, n_days=n_days, seed=seed, progress=False)
        job = open_job(out / "records", settings, models)
        records, failures = job.store.read_known()
    instances = find_scorable_instances(records, failures, job.walk_settings)

    def walk(
        walked: WalkForwardSettings, every: Nanoseconds, strategies: Sequence[str]
    ) -> WalkForward:
        walk = WalkForward(walked, RecipeTrainer(walked.recipe), records, failures, instances)
        limits = {"longest": walked.longest, "horizon": walked.recipe.horizon, "every": every}
        for moment in retraining_times(records.first, records.last, **limits):
            walk.retrain(moment, strategies)
            done()
        if not walk.windows:
            raise JobError(
                f"`--gpus {n_gpus} --days {n_days}`: no retraining is possible with seed {seed}, "
                "expected more days than the longest training length, and enough failing GPUs."
            )
        return walk

    compared = walk(job.walk_settings, job.walk_settings.every, STRATEGIES)
    aging = replace(
        job.walk_settings,
        training_spans=(job.walk_settings.longest,),
        every=Nanoseconds(MAX_MODEL_AGE_DAYS * DAY),
        baselines=(),
    )
    daily = _daily(walk(aging, DAY, (Strategy.SLIDING,)), compared, number)
    facts = {
        "seed": seed,
        "failures": len(failures.episodes()),
        **_test_counts(compared, instances),
    }
    return FleetScores(_strategies(compared, number), _spans(compared, number), daily, facts), job


def _test_counts(walk: WalkForward, instances: Instances) -> dict[str, int]:
    known = instances.label[instances.end <= walk.last_tested]
    return {
        "instances": int((known >= 0).sum()),
        "positives": int((known == 1).sum()),
        "retrainings": len(walk.windows),
    }


def count_retrainings(job_settings: Settings, n_days: int) -> int:
    """Return the maximum number of retrainings of the backtests of a fleet."""
    span = max(job_settings.training.lengths) + job_settings.horizon
    left = max(0, n_days - -(-span // DAY))
    return left + -(-left * DAY // job_settings.training.retrain_every)


def _sampled_rows(walk: WalkForward) -> dict[int, npt.NDArray[np.bool_]]:
    """Return the 1:8 set of each test window, as a mask of its tested instances, by its start."""
    ratio = walk.settings.negatives_per_positive
    return {
        window.start: negative_sampling_mask(
            window.instances.label[window.tested], window.hashes[window.tested], ratio
        )
        for window in walk.windows
    }


def _strategies(walk: WalkForward, number: int) -> dict[str, pd.DataFrame]:
    rows: dict[str, list[pd.DataFrame]] = {name: [] for name in STRATEGIES}
    sets = _sampled_rows(walk)
    for window in walk.windows:
        for name, (span, scores) in window.by_strategy.items():
            models = {key: value for key, value in scores.items() if key not in _DERIVED_SCORES}
            frame = _rows(walk, window, span, models, number)
            rows[name].append(frame[sets[window.start]])
    return {name: pd.concat(frames, ignore_index=True) for name, frames in rows.items()}


def _spans(walk: WalkForward, number: int) -> dict[Nanoseconds, pd.DataFrame]:
    rows: dict[Nanoseconds, list[pd.DataFrame]] = {}
    sets = _sampled_rows(walk)
    for window in walk.windows:
        for span, scores in window.by_span.items():
            # Baselines are trained on the spans of strategies only, which differ between windows.
            models = {k: v for k, v in scores.items() if k not in walk.settings.baselines}
            frame = _rows(walk, window, span, models, number)
            rows.setdefault(span, []).append(frame[sets[window.start]])
    return {span: pd.concat(rows[span], ignore_index=True) for span in sorted(rows)}


def _daily(walk: WalkForward, compared: WalkForward, number: int) -> pd.DataFrame:
    """Return the scores of the daily models on the test sets of windows and of single days."""
    first, every = compared.windows[0].start, compared.settings.every
    sets, frames = _sampled_rows(compared), []
    hashes = [w.hashes[w.tested][sets[w.start]] for w in compared.windows]
    in_windows = np.concatenate(hashes)
    for window in walk.windows:
        ((span, scores),) = window.by_span.items()
        frame = _rows(walk, window, span, scores, number)
        end = window.instances.end[window.tested]
        block = first + (end - first) // every * every
        frame["test_window"] = to_timestamps(block + number * _FLEET_OFFSET)
        frame["trained"] = (window.start - first) // DAY
        frame["age"] = (end - window.start) // DAY
        frame["of_window"] = np.isin(frame["hash"].to_numpy(), in_windows)
        frame["of_day"] = False
        for _, rows in frame.groupby("age").groups.items():
            labels, of_day = frame["label"].to_numpy()[rows], frame["hash"].to_numpy()[rows]
            ratio = walk.settings.negatives_per_positive
            frame.loc[rows, "of_day"] = negative_sampling_mask(labels, of_day, ratio)
        frames.append(frame[frame["of_window"] | frame["of_day"]])
    return pd.concat(frames, ignore_index=True)


def _rows(
    walk: WalkForward,
    window: WindowScores,
    span: int,
    scores: Mapping[str, npt.NDArray[np.float64]],
    number: int,
) -> pd.DataFrame:
    """Return the tested instances of a window with some scores, in the format of a score table."""
    instances, later = window.instances.select(window.tested), number * _FLEET_OFFSET
    serials = np.array([f"{number}/{serial}" for serial in walk.records.serials], dtype=object)
    texts = walk.records.texts[MACHINE].texts
    machines = np.array([*(f"{number}/{text}" for text in texts), f"{number}/"], dtype=object)
    columns = {
        "test_window": to_timestamps(np.full(len(instances), window.start + later)),
        "gpu_serial": serials[instances.gpu],
        "machine_id": machines[walk.records.codes(MACHINE, instances.row)],
        "window_end": to_timestamps(instances.end + later),
        "label": instances.label,
        "sampled": True,
        "hash": window.hashes[window.tested],
        "train_length_days": span / DAY,
    }
    columns |= {f"score_{name}": values[window.tested] for name, values in scores.items()}
    return pd.DataFrame(columns)
