"""How MLflow loads a predictor: `loader_module` of the registered model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.at_risk.score import score_with
from forewarn.pipelines.storage.leftovers import scratch_folder

__all__ = ["Served"]


@dataclass(frozen=True, slots=True)
class Served:
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
            Records (docs/formats.md, section 1), as many days back as the history reaches; times
            without a zone, as MLflow wants them, mean UTC.
        params : dict, optional
            Not used.

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
                place = folder / f"date={date}"
                place.mkdir()
                rows.assign(timestamp=times[rows.index]).to_parquet(place / "part-0.parquet")
            at = int(times.max().value) + 1
            # Also of records that it was trained on: such are the input example that MLflow keeps.
            made = score_with(self.predictor, "the model", folder, at, hindsight=True)
        found = made.table[["rank", "gpu_serial", "probability", "window_end"]]
        return found.astype({"rank": "float64"})  # a signature with integers allows no missing one


def _load_pyfunc(path: str) -> Served:
    """Return what MLflow calls `predict` of."""
    folder = Path(path)
    if not (folder / "predictor.json").exists():
        folder = folder / "predictor"
    return Served(Predictor.load(folder))
