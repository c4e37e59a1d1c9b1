"""Training slice by slice of GPUs, for records too large to read at once."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.evaluation.prediction.walk_forward.walk_forward import SlicedRecords, WalkForward
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.fleet_timeline import FleetSlice
from forewarn.features.records.record_table import Records
from forewarn.pipelines.backtest import windowed_records
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import Job, open_job
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.records.compaction import compact_date
from forewarn.pipelines.storage.records.stored_fleet import StoredFleet
from forewarn.pipelines.storage.registry.predictor_folder import save_predictor
from forewarn.pipelines.training.train import TrainedWalk, trained_walk

pytestmark = pytest.mark.long

AT = parse_moment("2025-01-22")

Write = Callable[[pd.DataFrame, Path], Path]
Fleet = Callable[[int, int], pd.DataFrame]


@pytest.fixture(autouse=True, scope="module")
def few_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("forewarn.models.prediction.trees.tree_model._N_TREES", 6)
        yield


@pytest.fixture(scope="module")
def records(fleet_of: Fleet, write: Write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return records with missing and duplicate rows, some later than the training time."""
    fleet = fleet_of(60, 24)
    fleet = fleet[fleet.index % 61 != 0]
    folder = tmp_path_factory.mktemp("fleet24") / "records"
    return write(pd.concat([fleet, fleet[::97]]), folder)


def job_of(records: Path, config_text: str, folder: Path, strategy: str) -> Job:
    head, rest = config_text.split("[ensembles]")
    trees = '[ensembles]\nparallel = ["gbdt"]\ncascade = [["gbdt", 0.2]]\nlinear = 0.25\n'
    training = f'[training]\nstrategy = "{strategy}"\n'
    path = folder / "config.toml"
    path.write_text(
        head.replace("[training]\n", training) + trees + rest[rest.index("[evaluation]") :]
    )
    return open_job(records, load_settings(path))


def in_small_slices(patched: pytest.MonkeyPatch) -> list[int]:
    """Read few rows at once; return a list to which numbers of slices are appended."""
    patched.setattr("forewarn.pipelines.storage.records.date_merge._MIN_ROWS_PER_GROUP", 256)
    patched.setattr("forewarn.pipelines.storage.records.file_slice._TARGET_ROWS_PER_SLICE", 6000)
    patched.setattr(windowed_records, "_MAX_SPAN_ROWS", 9000)
    patched.setattr(
        "forewarn.evaluation.prediction.walk_forward.window_scores._MAX_BATCH_INSTANCES", 500
    )
    slices, numbers = StoredFleet.slices, []

    def counted(self: StoredFleet[Any]) -> Iterator[FleetSlice]:
        numbers.append(self.n_slices)
        return slices(self)

    patched.setattr(StoredFleet, "slices", counted)
    return numbers


def compacted(records: Path, folder: Path) -> Path:
    """Copy and compact records, then add a late file to a compacted date."""
    shutil.copytree(records, folder)
    dates = sorted(folder.glob("date=*"))
    late = dates[3] / "part-0.parquet"
    rows = pq.read_table(late)
    pq.write_table(rows.slice(0, 7), late)
    for date in dates[:-1]:
        compact_date(folder, dt.date.fromisoformat(date.name[5:]))
    pq.write_table(rows.slice(7), late)
    return folder


def files_of(trained: TrainedWalk, folder: Path) -> dict[str, bytes]:
    save_predictor(trained.predictor, folder)
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def assert_same_windows(walk: WalkForward, expected: WalkForward) -> None:
    assert walk.unseen_from == expected.unseen_from
    for window, other in zip(walk.windows, expected.windows, strict=True):
        assert np.array_equal(window.tested, other.tested)
        assert window.by_span.keys() == other.by_span.keys()
        for span, scores in window.by_span.items():
            for name, values in scores.items():
                assert np.array_equal(values, other.by_span[span][name]), (span, name)


@pytest.mark.parametrize("strategy", ["variable", "expanding"])
def test_sliced_training_gives_same_bytes(
    strategy: str,
    records: Path,
    config_text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = trained_walk(job_of(records, config_text, tmp_path, strategy), AT)
    assert len(whole.walk.windows) == 3
    expected = files_of(whole, tmp_path / "whole")
    numbers = in_small_slices(monkeypatch)
    for name in ("as they are", "compacted"):
        folder = records if name == "as they are" else compacted(records, tmp_path / "records")
        numbers.clear()
        trained = trained_walk(job_of(folder, config_text, tmp_path, strategy), AT)
        assert (max(numbers) > 2) == (name == "compacted")
        assert files_of(trained, tmp_path / name) == expected
        assert_same_windows(trained.walk, whole.walk)


def test_changes_during_training_are_ignored(
    records: Path, config_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(records, config_text, tmp_path, "variable")
    expected = files_of(trained_walk(job, AT), tmp_path / "undisturbed")
    in_small_slices(monkeypatch)
    folder = tmp_path / "records"
    shutil.copytree(records, folder)
    first, second, *_, last = sorted(folder.glob("date=2025-01-[12]*"))
    moved: list[Path] = []

    def disturbing(
        self: WalkForward,
        records: Records,
        instances: Instances,
        sliced: SlicedRecords | None = None,
    ) -> None:
        if not moved:
            compact_date(folder, dt.date.fromisoformat(first.name[5:]))
            shutil.rmtree(second)
            shutil.copy(last / "part-0.parquet", last / "part-1.parquet")
        moved.append(folder)
        move_to(self, records, instances, sliced)

    move_to = WalkForward.move_to
    monkeypatch.setattr(WalkForward, "move_to", disturbing)
    trained = trained_walk(job_of(folder, config_text, tmp_path, "variable"), AT)
    assert len(moved) > 4
    assert files_of(trained, tmp_path / "disturbed") == expected
