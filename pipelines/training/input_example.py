"""The input example of a registered predictor: the newest records of two GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from forewarn.features.prediction.instances import latest_instances
from forewarn.features.records.failures import Failures
from forewarn.features.records.timeline import lay_out
from forewarn.features.time_units import DAY
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.storage.record_store import RecordStore

__all__ = ["input_example"]

_ENOUGH_ROWS = 1_000_000


def input_example(store: RecordStore, last: int, predictor: Predictor) -> pd.DataFrame:
    """Return the records of two GPUs up to the last of all, enough for a window, as an example."""
    plan = predictor.encoder.measures.plan
    since = last - DAY
    records = store.read_part(since - plan.window_records * store.interval, last + 1, _ENOUGH_ROWS)
    newest = latest_instances(
        lay_out(records, Failures.none()), window_records=plan.window_records, since=since
    )
    rows = np.concatenate([np.arange(r - plan.window_records + 1, r + 1) for r in newest.row[:2]])
    columns: dict[str, Any] = {
        "gpu_serial": np.array(records.serials, dtype=object)[
            records.line.gpu[records.line.run_at(rows)]
        ],
        "timestamp": pd.to_datetime(records.line.time_at(rows)),
    }
    for name in dict.fromkeys((*plan.kinds.categorical, *plan.peers)):
        names = np.array([*records.texts[name].texts, ""], dtype=object)
        columns[name] = names[records.codes(name, rows)]
    for name in (*plan.kinds.float, *plan.kinds.binary, *plan.kinds.code):
        columns[name] = records.numbers(name, rows).astype(np.float64)
    for name in plan.kinds.counter:  # kept as increases; any start of a count will do
        gained = pd.Series(np.nan_to_num(records.numbers(name, rows).astype(np.float64)))
        columns[name] = gained.groupby(columns["gpu_serial"]).cumsum()
    for name in plan.kinds.date:
        days = records.numbers(name, rows).astype(np.float64)
        columns[name] = pd.to_datetime(pd.Series(days), unit="D").dt.strftime("%Y-%m-%d")
    return pd.DataFrame(columns)
