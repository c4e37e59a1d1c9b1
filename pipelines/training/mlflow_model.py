"""A predictor as an MLflow model: the `loader_module`, its signature, and the input example."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import latest_instances
from forewarn.features.records.column_names import ColumnNames
from forewarn.features.records.failures import Failures
from forewarn.features.records.file_check import SPARSE_COLUMNS
from forewarn.features.records.fleet_timeline import build_timeline
from forewarn.features.records.record_table import (
    FAILURE,
    MACHINE,
    SERIAL,
    SLOT,
    TIMESTAMP,
    RecordsError,
)
from forewarn.features.time_units import DAY
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.at_risk.fleet_scoring import score_with
from forewarn.pipelines.config import CONFIG_VARIABLE
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder
from forewarn.pipelines.storage.records.record_store import RecordStore

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

__all__ = ["ServedPredictor", "input_example", "signature_of"]

_MAX_EXAMPLE_ROWS = 1_000_000
_INPUT = "the input of `predict`"


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
            Records (docs/reference/formats.md, section 1) that cover the history, as
            `pandas.read_parquet` gives them, or as JSON with times as ISO 8601 text. Times without
            a zone mean UTC. Columns that the model does not use are ignored.
        params : dict, optional
            Ignored.

        Returns
        -------
        DataFrame
            `rank`, `gpu_serial`, `probability`, `window_end`: one row per GPU that can be scored.

        Raises
        ------
        RecordsError
            If a column is missing or cannot be used.
        """
        del params
        records = self._checked(model_input)
        times = records[TIMESTAMP]
        with scratch_folder() as folder:
            for date, rows in records.groupby(times.dt.date):
                day_folder = folder / f"date={date}"
                day_folder.mkdir()
                rows.to_parquet(day_folder / "part-0.parquet")
            at = int(times.max().as_unit("ns").value) + 1
            # Hindsight is allowed because MLflow calls it with the input example, which is training
            # data.
            made = score_with(self.predictor, "the model", folder, at, hindsight=True)
        columns = made.table[["rank", "gpu_serial", "probability", "window_end"]]
        # Integer columns of a signature cannot have missing values.
        return columns.astype({"rank": "float64"})

    def _checked(self, model_input: pd.DataFrame) -> pd.DataFrame:
        """Return the used columns by our names, with times in UTC."""
        required, optional = _columns(self.predictor)
        names = ColumnNames.from_mapping(self.predictor.facts.columns)
        records = model_input.reset_index(drop=True)
        records.columns = pd.Index(names.renamed([str(name) for name in records.columns]))
        absent = [name for name in required if name not in records]
        if absent:
            raise RecordsError(f"{_INPUT}: column `{absent[0]}` is missing; the model requires it.")
        records = records[[name for name in (*required, *optional) if name in records]]
        records = records.assign(**{TIMESTAMP: _utc(records[TIMESTAMP])})
        if not records[TIMESTAMP].notna().any():
            raise RecordsError(f"{_INPUT}: holds no record with a `{TIMESTAMP}`.")
        return records


def _utc(times: pd.Series) -> pd.Series:
    """Return times in UTC; refuse numbers, whose unit nothing tells."""
    if pd.api.types.is_numeric_dtype(times.dropna().infer_objects()):
        raise RecordsError(
            f"{_INPUT}: column `{TIMESTAMP}` holds numbers, expected times, or ISO 8601 text "
            '(`DataFrame.to_json(date_format="iso")`).'
        )
    is_text = times.dtype == object or isinstance(times.dtype, pd.StringDtype)
    try:
        return pd.to_datetime(times, utc=True, format="ISO8601" if is_text else None)
    except (ValueError, TypeError) as error:
        detail = str(error).splitlines()[0][:100]
        raise RecordsError(f"{_INPUT}: column `{TIMESTAMP}` is no time ({detail}).") from None


def _columns(predictor: Predictor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that scoring requires, and those that it uses if they are there."""
    plan = predictor.encoder.measures.plan
    used = dict.fromkeys((SERIAL, TIMESTAMP, *plan.kinds.names, *plan.peers))
    required = tuple(name for name in used if name not in SPARSE_COLUMNS)
    further = dict.fromkeys((*used, FAILURE, MACHINE, SLOT))
    return required, tuple(name for name in further if name not in required)


def signature_of(predictor: Predictor, listed: pd.DataFrame) -> ModelSignature:
    """Return the signature of a predictor: records in, at-risk list out.

    MLflow refuses times with a zone, categories and whole numbers where a signature has inferred
    times, texts and floats, and drops columns that a signature does not name. So it names every
    column that scoring uses, of any type: the records are checked by `predict`.

    Parameters
    ----------
    predictor : Predictor
    listed : DataFrame
        Output of `ServedPredictor.predict`.
    """
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import Schema

    columns = [
        {"type": "any", "name": name, "required": is_required}
        for name, is_required in _input_names(predictor).items()
    ]
    return ModelSignature(Schema.from_json(json.dumps(columns)), infer_signature(listed).inputs)


def _input_names(predictor: Predictor) -> dict[str, bool]:
    """Return whether MLflow requires each input column; a mapped one may have either name."""
    required, optional = _columns(predictor)
    mapped = predictor.facts.columns or {}
    is_required = {name: name in required for name in (*required, *optional)}
    either = [name for pair in mapped.items() if pair[0] in is_required for name in pair]
    return is_required | dict.fromkeys(either, False)


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
    """Return the last records of two GPUs, enough for a window, with the columns of the site."""
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
        "timestamp": pd.to_datetime(records.time[rows], utc=True),
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
    return pd.DataFrame(columns).rename(columns=dict(store.names.pairs))
