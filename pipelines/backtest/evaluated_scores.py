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

from forewarn.evaluation.prediction.metrics.member_worth import averages_without
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
_ByName = dict[str, tuple[list[float | None], npt.NDArray[np.float64]]]
_Averages = tuple[_ByName, _ByName]


@dataclass(frozen=True)
class EvaluatedScores:
    """Scores of a strategy, reduced to what the metrics of a report need.

    Attributes
    ----------
    table : ScoreTable
        Rows of the test sets and the daily lists.
    averages : dict of str to WindowAveragePrecision
        By method, on all rows.
    without : dict of str to WindowAveragePrecision
        Of the blend without each of its models, on all rows.
    judged : iterable of LabelledProbabilities
        All rows with fitted probabilities; read from the files on each iteration.
    """

    table: ScoreTable
    averages: dict[str, WindowAveragePrecision]
    without: dict[str, WindowAveragePrecision]
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
        parts: list[_Averages] = []
        frames = []
        for path, (of_window, rows) in zip(paths, slices.map(evaluate_window, items), strict=True):
            parts.append(of_window)
            frames.append(_frame(path, names).iloc[rows])
        table = ScoreTable(pd.concat(frames, ignore_index=True), protocol, unseen_from)
        averages, without = (_joined([part[number] for part in parts]) for number in (0, 1))
        return cls(table, averages, without, _Probabilities(paths, names))


def _joined(parts: Sequence[_ByName]) -> dict[str, WindowAveragePrecision]:
    """Join the average precisions of the windows by name; windows without failures have none."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: WindowAveragePrecision.joined(
            [WindowAveragePrecision(*part[name]) for part in parts if name in part]
        )
        for name in names
    }


def evaluate_window(window: _Window) -> tuple[_Averages, npt.NDArray[np.int64]]:
    """Return the average precisions of a file, and the rows needed later.

    The average precisions are those of each method, and of the blend without each of its models.
    """
    path, names, rules = window
    protocol = EvaluationProtocol(**rules | {"committee": Committee(**rules["committee"])})
    table = ScoreTable(_frame(path, names), protocol)
    averages, without = (
        {name: (part.precisions, part.draws) for name, part in measured.items()}
        for measured in (window_average_precision(table), averages_without(table))
    )
    return (averages, without), table.evaluated_rows


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
