"""A predictor as an MLflow model: the `loader_module`, and the input example."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import latest_instances
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import build_timeline
from forewarn.features.time_units import DAY
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.at_risk.fleet_scoring import score_with
from forewarn.pipelines.config import CONFIG_VARIABLE
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder
from forewarn.pipelines.storage.records.record_store import RecordStore

__all__ = ["ServedPredictor", "input_example"]

_MAX_EXAMPLE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class ServedPredictor:
    """A predictor behind the interface of `mlflow.pyfunc`.

    Attributes
    ----------
    predictor : Predictor
    """

    predictor: Predictor

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Return the at-risk list of some records as of just after the last of them.

        Parameters
        ----------
        model_input : DataFrame
            Records (docs/formats.md, section 1) that cover the history. Times have no zone, as
            MLflow requires, and mean UTC.
        params : dict, optional
            Ignored.

        Returns
        -------
        DataFrame
            `rank`, `gpu_serial`, `probability`, `window_end`: one row per GPU that can be scored.
        """
        del params
        records = model_input.reset_index(drop=True)
        times = pd.to_datetime(records["timestamp"], utc=True)
        with scratch_folder() as folder:
            for date, rows in records.groupby(times.dt.date):
                day_folder = folder / f"date={date}"
                day_folder.mkdir()
                rows.assign(timestamp=times[rows.index]).to_parquet(day_folder / "part-0.parquet")
            at = int(times.max().value) + 1
            # Hindsight is allowed because MLflow calls it with the input example, which is training
            # data.
            made = score_with(self.predictor, "the model", folder, at, hindsight=True)
        columns = made.table[["rank", "gpu_serial", "probability", "window_end"]]
        return columns.astype(
            {"rank": "float64"}
        )  # integer columns of a signature cannot have missing values


def _load_pyfunc(path: str) -> ServedPredictor:
    """Return the object whose `predict` MLflow calls."""
    folder = Path(path)
    if not (folder / "predictor.json").exists():
        folder = folder / "predictor"
    # MLflow passes no configuration; the one that the environment names allows plug-in models.
    config = os.environ.get(CONFIG_VARIABLE)
    settings = load_settings(Path(config) if config else None)
    return ServedPredictor(Predictor.load(folder, settings.models.catalogue))


def input_example(store: RecordStore, last: int, plan: FeaturePlan) -> pd.DataFrame:
    """Return the last records of two GPUs, enough for a window, as input example."""
    since = last - DAY
    records = store.read_part(
        since - plan.window_records * store.interval, last + 1, _MAX_EXAMPLE_ROWS
    )
    newest = latest_instances(
        build_timeline(records, Failures.empty()), window_records=plan.window_records, since=since
    )
    rows = np.concatenate([np.arange(r - plan.window_records + 1, r + 1) for r in newest.row[:2]])
    columns: dict[str, Any] = {
        "gpu_serial": np.array(records.serials, dtype=object)[records.gpu[rows]],
        "timestamp": pd.to_datetime(records.time[rows]),
    }
    for name in dict.fromkeys((*plan.kinds.categorical, *plan.peers)):
        names = np.array([*records.texts[name].texts, ""], dtype=object)
        columns[name] = names[records.codes(name, rows)]
    for name in (*plan.kinds.float, *plan.kinds.binary, *plan.kinds.code):
        columns[name] = records.numbers(name, rows).astype(np.float64)
    for name in plan.kinds.counter:  # stored as increases; the start value is arbitrary
        gained = pd.Series(np.nan_to_num(records.numbers(name, rows).astype(np.float64)))
        columns[name] = gained.groupby(columns["gpu_serial"]).cumsum()
    for name in plan.kinds.date:
        days = records.numbers(name, rows).astype(np.float64)
        columns[name] = pd.to_datetime(pd.Series(days), unit="D").dt.strftime("%Y-%m-%d")
    return pd.DataFrame(columns)
