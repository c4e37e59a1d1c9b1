"""Evaluation of a strategy's scores, one test window at a time to limit memory.

Average precision needs all rows of a window in sorted order. Calibration metrics need all rows in
any order. All other metrics need only the rows of the test sets and the daily lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.evaluation.prediction.metrics.window_average_precision import (
    WindowAveragePrecision,
    window_average_precision,
)
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.reliability import LabelledProbabilities
from forewarn.pipelines.runtime.executor import SliceMap
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["EvaluatedScores", "evaluate_window"]

_NAMES = ("gpu_serial", "machine_id")
_JUDGED = ("probability", "label")

Names = dict[str, list[str]]
_Window = tuple[Path, Names, dict[str, Any]]


@dataclass(frozen=True)
class EvaluatedScores:
    """Scores of a strategy, reduced to what the metrics of a report need.

    Attributes
    ----------
    table : ScoreTable
        Rows of the test sets and the daily lists.
    averages : dict of str to WindowAveragePrecision
        By method, on all rows.
    judged : iterable of LabelledProbabilities
        All rows with fitted probabilities; read from the files on each iteration.
    """

    table: ScoreTable
    averages: dict[str, WindowAveragePrecision]
    judged: _Probabilities

    @classmethod
    def from_files(
        cls,
        paths: Sequence[Path],
        protocol: EvaluationProtocol,
        unseen_from: int | None,
        slices: SliceMap,
    ) -> EvaluatedScores:
        """Evaluate score files, each with one or several test windows, in order of time.

        Parameters
        ----------
        paths : sequence of Path
        protocol : EvaluationProtocol
        unseen_from : int or None
            See `ScoreTable`.
        slices : SliceMap
            Evaluates several files in parallel.
        """
        names = _names(paths)
        items = [(path, names, asdict(protocol)) for path in paths]
        averages, frames = [], []
        for path, (of_window, rows) in zip(paths, slices.map(evaluate_window, items), strict=True):
            averages.append(
                {name: WindowAveragePrecision(*part) for name, part in of_window.items()}
            )
            frames.append(_frame(path, names).iloc[rows])
        table = ScoreTable(pd.concat(frames, ignore_index=True), protocol, unseen_from)
        joined = {
            method: WindowAveragePrecision.joined([of_window[method] for of_window in averages])
            for method in averages[0]
        }
        return cls(table, joined, _Probabilities(paths, names))


def evaluate_window(
    window: _Window,
) -> tuple[dict[str, tuple[list[float | None], npt.NDArray[np.float64]]], npt.NDArray[np.int64]]:
    """Return the average precision of each method in a file, and the rows needed later."""
    path, names, rules = window
    protocol = EvaluationProtocol(**rules | {"committee": Committee(**rules["committee"])})
    table = ScoreTable(_frame(path, names), protocol)
    averages = {
        method: (part.precisions, part.draws)
        for method, part in window_average_precision(table).items()
    }
    return averages, table.evaluated_rows


def _names(paths: Sequence[Path]) -> Names:
    """Return the sorted serials and machines of some files."""
    known: dict[str, set[str]] = {}
    for path in paths:
        present = [name for name in _NAMES if name in pq.read_schema(arrow_path(path)).names]
        table = pq.read_table(arrow_path(path), columns=present, read_dictionary=present)
        for name in present:
            for chunk in table[name].chunks:
                known.setdefault(name, set()).update(chunk.dictionary.to_pylist())
    return {name: sorted(texts) for name, texts in known.items()}


def _frame(path: Path, names: Names) -> pd.DataFrame:
    """Read a file, with the names of all files as categories of serials and machines."""
    columns = [
        name for name in pq.read_schema(arrow_path(path)).names if not name.startswith("flag_")
    ]
    kinds = {name: pd.CategoricalDtype(texts, ordered=True) for name, texts in names.items()}
    table = pq.read_table(arrow_path(path), columns=columns, read_dictionary=list(names))
    frame: pd.DataFrame = table.to_pandas()
    return frame.astype(kinds)


@dataclass(frozen=True, slots=True)
class _Probabilities:
    """The probabilities in some files; one file at a time is in memory."""

    paths: Sequence[Path]
    names: Names

    def __iter__(self) -> Iterator[LabelledProbabilities]:
        # Machine numbers are those of `ScoreTable.machine`.
        machine = "machine_id" if "machine_id" in self.names else "gpu_serial"
        kind = pd.CategoricalDtype(self.names[machine], ordered=True)
        columns = [*_JUDGED, "calibrated", machine]
        for path in self.paths:
            table = pq.read_table(arrow_path(path), columns=columns, read_dictionary=[machine])
            fitted = table["calibrated"].to_numpy()
            numbers = table[machine].to_pandas().astype(kind).cat.codes.to_numpy()
            probabilities, labels = (table[name].to_numpy()[fitted] for name in _JUDGED)
            yield LabelledProbabilities(probabilities, labels, numbers[fitted].astype(np.int64))
