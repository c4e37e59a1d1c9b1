"""A plain LightGBM model as a baseline for a backtest, for `benchmarks.ensemble_ranking`.

    python -m benchmarks.plain_lightgbm --config tests/real_data/drives.toml FOLDER...

`FOLDER` holds `records` and `backtest` (`scores_expanding.parquet`). Before each test window the
model is trained on all instances with a label known at that time, including healthy ones. Features
of each numeric column are the last value, and mean, maximum and slope over spans of records; 500
trees, otherwise LightGBM's defaults. Its scores are written to `backtest/plain_lightgbm.parquet`,
in the row order of the backtest.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
from tqdm import tqdm

from forewarn.evaluation.prediction.walk_forward.walk_forward import find_scorable_instances
from forewarn.features.array_types import Float32Array, Float64Array, Int8Array, Int64Array
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.instances import Instances, label_instances
from forewarn.features.records.failures import Failures
from forewarn.features.records.record_table import Records
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.training_set import Recipe
from forewarn.pipelines.config.settings import Settings, load_settings
from forewarn.pipelines.prediction_job import open_job

PLAIN = "plain_lightgbm"
_BATCH_SIZE = 20_000


def _statistics(values: Float32Array, span: int) -> Iterator[Float32Array]:
    """Yield mean, maximum and slope of the last `span` values, shape (n, longest)."""
    values = values[:, -span:]
    known = np.isfinite(values)
    time = np.where(known, np.arange(values.shape[1], dtype=np.float32), np.nan)
    mean = np.nanmean(values, axis=1)
    time -= np.nanmean(time, axis=1)[:, None]
    yield mean
    yield np.nanmax(values, axis=1)
    yield np.nansum(time * (values - mean[:, None]), axis=1) / np.nansum(time**2, axis=1)


def _columns(
    records: Records, names: Sequence[str], rows: Int64Array, spans: list[int]
) -> Float32Array:
    """Return the features of windows that end at `rows`."""
    first = records.gpu_bounds()[records.gpu[rows]]
    window = rows[:, None] + np.arange(1 - max(spans), 1)
    inside = window >= first[:, None]
    table = []
    for name in names:
        column = records.numbers(name, np.arange(len(records))).astype(np.float32)
        values = np.where(inside, column[np.maximum(window, 0)], np.float32(np.nan))
        table.append(values[:, -1])
        for span in spans:
            table += _statistics(values, span)
    return np.stack(table, axis=1)


@dataclass(frozen=True)
class _Past:
    """The data that the trainings of a fleet select from."""

    recipe: Recipe
    records: Records
    failures: Failures
    instances: Instances
    table: Float32Array

    def known(self, moment: int) -> tuple[Int64Array, Int8Array]:
        """Return the instances with a label known at a time, and these labels."""
        gpu, end, horizon = self.instances.gpu, self.instances.end, self.recipe.horizon
        rows = np.flatnonzero(end < moment - horizon)
        reach = Nanoseconds(moment - self.records.first)
        timeline = as_of(self.records, self.failures, moment, reach)
        labels = label_instances(timeline, gpu[rows], end[rows], horizon)
        return rows[labels >= 0], labels[labels >= 0]

    def scores(self, moment: int, tested: Int64Array) -> Float64Array:
        """Train as of a time, and score some instances."""
        rows, labels = self.known(moment)
        model = lightgbm.LGBMClassifier(n_estimators=500, random_state=0, n_jobs=1, verbosity=-1)
        model.fit(self.table[rows], labels)
        return np.asarray(model.predict_proba(self.table[tested]))[:, 1]


def _past(folder: Path, settings: Settings, spans: list[int]) -> _Past:
    job = open_job(folder / "records", settings, ["gbdt"])
    records, failures = job.store.read_known()
    instances = find_scorable_instances(records, failures, job.walk_settings)
    kinds = job.walk_settings.recipe.plan.kinds
    names = (*kinds.float, *kinds.counter, *kinds.binary)
    parts = range(0, len(instances), _BATCH_SIZE)
    rows = [instances.row[start : start + _BATCH_SIZE] for start in parts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # only missing values
        table = [_columns(records, names, some, spans) for some in tqdm(rows, "measure")]
    return _Past(job.walk_settings.recipe, records, failures, instances, np.concatenate(table))


def _score(folder: Path, settings: Settings, spans: list[int]) -> None:
    past, out = _past(folder, settings, spans), folder / "backtest"
    columns = ["test_window", "gpu_serial", "window_end"]
    tested = pd.read_parquet(out / "scores_expanding.parquet", columns=columns)
    rows = _instance_rows(tested, past)
    scores = np.empty(len(tested))
    windows = tested["test_window"].astype("datetime64[ns, UTC]").astype(np.int64).to_numpy()
    for moment in tqdm(np.unique(windows), folder.name):
        of_window = windows == moment
        scores[of_window] = past.scores(int(moment), rows[of_window])
    pd.DataFrame({"score": scores}).to_parquet(out / f"{PLAIN}.parquet")


def _instance_rows(tested: pd.DataFrame, past: _Past) -> Int64Array:
    """Return the instance of each row of a table of scores."""
    instances = pd.DataFrame(
        {
            "gpu_serial": np.array(past.records.serials, dtype=object)[past.instances.gpu],
            "window_end": pd.to_datetime(past.instances.end, utc=True),
            "row": np.arange(len(past.instances)),
        }
    )
    return tested.merge(instances, how="left", validate="one_to_one")["row"].to_numpy(np.int64)


def main() -> None:
    """Write the scores of each backtest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="with `records` and `backtest`")
    parser.add_argument("--config", type=Path, help="of the backtests")
    parser.add_argument("--spans", default="14,45,120", help="of records")
    args = parser.parse_args()
    for folder in args.folders:
        _score(folder, load_settings(args.config), [*map(int, args.spans.split(","))])


if __name__ == "__main__":
    main()
