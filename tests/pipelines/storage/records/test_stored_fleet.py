"""Reading a fleet slice by slice gives the same results as reading it as a whole."""

from __future__ import annotations

import datetime as dt
import gc
import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.models.prediction.test_training_set import one_training_set

from forewarn.features.errors import InputError
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.fleet_slices import MAX_SLICES, assign_slices
from forewarn.features.records.fleet_timeline import Fleet, FleetSlice
from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import HOUR, Nanoseconds, RecordCount
from forewarn.models.prediction.training_candidates import TrainingCandidates, instances_known_at
from forewarn.models.prediction.training_set import (
    Recipe,
    TrainingSet,
    UndersampledInstances,
    build_training_sets,
)
from forewarn.pipelines.at_risk.fleet_scoring import score_with_rules
from forewarn.pipelines.config.settings import parse_settings
from forewarn.pipelines.storage.records import record_store
from forewarn.pipelines.storage.records.compaction import compact_date
from forewarn.pipelines.storage.records.consistent_read import ReplacedFileError
from forewarn.pipelines.storage.records.file_slice import FileSlice, number_of_slices
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.pipelines.storage.records.stored_fleet import StoredFleet

START = pd.Timestamp("2025-01-01", tz="UTC")
N_GPUS, N_HOURS = 30, 96
SERIALS = [f"S{number:02d}" for number in range(N_GPUS)]
KINDS = FeatureKinds(
    categorical=("gpu_type",),
    float=("temperature", "power", "limit"),
    counter=("errors", "replays"),
    code=("xid", "seldom"),
    date=("expires",),
)
PLAN = FeaturePlan(
    kinds=KINDS,
    window_records=RecordCount(3),
    interval=HOUR,
    history=(2, 5),
    peers=("machine_id", "gpu_type"),
    residuals=(("temperature", "power"),),
)
RECIPE = Recipe(
    plan=PLAN,
    step=Nanoseconds(2 * HOUR),
    horizon=Nanoseconds(6 * HOUR),
    cascade_model="gbdt",
    negatives_per_positive=1.0,
    positive_weight=1.0,
    cascade_positive_weight=10.0,
    seed=0,
    max_instances=300,
)
MOMENT = START.value + 90 * HOUR
SPAN = Nanoseconds(60 * HOUR)
REACH = Nanoseconds(SPAN + RECIPE.horizon + PLAN.reach)


def fleet_rows() -> pd.DataFrame:
    """Return hourly records with failures, moves, gaps and missing readings."""
    rng = np.random.default_rng(5)
    gpu, hour = np.repeat(np.arange(N_GPUS), N_HOURS), np.tile(np.arange(N_HOURS), N_GPUS)
    n = len(gpu)
    machine = gpu // 4 + 9 * ((gpu % 7 == 0) & (hour > 40))
    power = rng.normal(300, 60, n)
    rows = pd.DataFrame(
        {
            "gpu_serial": np.array(SERIALS)[gpu],
            "timestamp": START + pd.to_timedelta(hour, unit="h"),
            "failure": ((gpu % 5 == 2) & (hour > 30 + gpu) & (hour < 40 + gpu)).astype("int8"),
            "machine_id": [f"m{number}" for number in machine],
            "slot": [f"{number}" for number in gpu % 4],
            "gpu_type": np.where(gpu % 3 == 0, "H200", "A100"),
            "temperature": 30 + power / 10 + rng.normal(0, 2, n),
            "power": np.where(rng.random(n) < 0.05, np.nan, power),
            "errors": rng.poisson(0.5, n).cumsum(),
            "rows_remapped": ((gpu % 6 == 1) & (hour > 45)).cumsum(),
            "xid": rng.choice([0, 0, 0, 13, 48, 79], n),
            "limit": np.where(hour < 60, 0.1 * (gpu % 3), np.where(gpu % 4, 0.7, np.nan)),
            "replays": (3 * (hour >= 30) + (hour >= 62)) * (gpu % 3),
            "seldom": pd.array(np.where((gpu % 7 == 1) & (hour == 55), 31, 0), "Int16"),
            "expires": np.where(gpu % 2 == 0, "2026-03-01", "2027-01-01"),
        }
    )
    return rows[rng.random(n) > 0.03]


def write(folder: Path, rows: pd.DataFrame, name: str) -> None:
    """Write one file per date, sorted by time as a collector does."""
    for date, part in rows.groupby(rows["timestamp"].dt.date):
        (folder / f"date={date}").mkdir(parents=True, exist_ok=True)
        part.sort_values("timestamp").to_parquet(folder / f"date={date}" / name, index=False)


def late_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return corrected copies of some rows of one day."""
    late = rows[rows["timestamp"].between(START + pd.Timedelta("50h"), START + pd.Timedelta("60h"))]
    return late.iloc[::9].assign(temperature=99.0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the same records as landed, compacted, and compacted with late files."""
    folder, rows = tmp_path_factory.mktemp("fleet"), fleet_rows()
    made = {name: folder / name for name in ("landed", "compacted", "late")}
    write(made["landed"], rows, "part-0.parquet")
    for name in ("compacted", "late"):
        shutil.copytree(made["landed"], made[name])
    write(made["landed"], late_rows(rows), "part-1.parquet")
    write(made["compacted"], late_rows(rows), "part-1.parquet")
    for name in ("compacted", "late"):
        for day in range(N_HOURS // 24):
            compact_date(made[name], dt.date(2025, 1, 1 + day))
    write(made["late"], late_rows(rows), "part-1.parquet")
    return made


def store_of(folder: Path) -> RecordStore:
    return RecordStore(folder, KINDS, HOUR, PLAN.peers)


def fleet_of(
    folder: Path, n_slices: int, start: int | None = MOMENT - REACH
) -> StoredFleet[Instances]:
    return store_of(folder).read_fleet(start, MOMENT, RECIPE.instances, n_slices)


def trained_on(fleet: Fleet, instances: Instances) -> tuple[Encoder, TrainingSet]:
    return one_training_set(
        RECIPE, fleet, instances_known_at(instances, MOMENT, SPAN, RECIPE.horizon)
    )


def assert_same(first: Instances, second: Instances) -> None:
    for name in Instances.__slots__:
        assert (getattr(first, name) == getattr(second, name)).all()


def bytes_of(encoder: Encoder, training: TrainingSet) -> tuple[bytes, ...]:
    inputs = training.inputs
    arrays = (inputs.sequence, inputs.context, training.labels, training.weights, training.ends)
    return (repr(encoder.to_dict()).encode(), *(array.tobytes() for array in arrays))


@pytest.fixture(scope="module")
def as_a_whole(folders: dict[str, Path]) -> tuple[bytes, ...]:
    records, failures = store_of(folders["landed"]).read_known(MOMENT - REACH, MOMENT)
    timeline = as_of(records, failures, MOMENT, REACH)
    encoder, training = trained_on(timeline, RECIPE.instances(timeline))
    assert 0 < (training.labels == 1).sum() < len(training.labels)
    return bytes_of(encoder, training)


@pytest.mark.parametrize(
    ("form", "n_slices"), [("landed", 1), ("landed", 64), ("compacted", 5), ("late", 16)]
)
def test_training_set_is_independent_of_slices(
    folders: dict[str, Path], as_a_whole: tuple[bytes, ...], form: str, n_slices: int
) -> None:
    fleet = fleet_of(folders[form], n_slices)
    assert_same(fleet.selection, RECIPE.instances(fleet))
    # 30 GPUs do not fill all 64 slices.
    assert fleet.n_slices == len(set(assign_slices(SERIALS, n_slices).tolist()))
    assert bytes_of(*trained_on(fleet, fleet.selection)) == as_a_whole


def test_training_spans_share_one_read(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(RECIPE, max_instances=40)
    spans = [SPAN, Nanoseconds(30 * HOUR), Nanoseconds(45 * HOUR)]
    records, failures = store_of(folders["landed"]).read_known(MOMENT - REACH, MOMENT)
    timeline = as_of(records, failures, MOMENT, REACH)
    every = recipe.instances(timeline)
    several = [instances_known_at(every, MOMENT, span, recipe.horizon) for span in spans]
    alone = [bytes_of(*one_training_set(recipe, timeline, some)) for some in several]
    assert len(set(alone)) == len(spans)
    look = recipe.candidate_selector(MOMENT - REACH, MOMENT, spans)
    fleet = store_of(folders["compacted"]).read_fleet(MOMENT - REACH, MOMENT, look, 5)
    slices, readings = StoredFleet.slices, list[object]()

    def counted(self: StoredFleet[TrainingCandidates]) -> Iterator[FleetSlice]:
        readings.append(self)
        return slices(self)

    monkeypatch.setattr(StoredFleet, "slices", counted)
    candidates = fleet.selection
    assert (
        len(candidates.instances) < len(every) // 2
    )  # instances that cannot be chosen are released
    thinned = [
        UndersampledInstances.from_instances(
            recipe, fleet, candidates.known(span), candidates.counts[span]
        )
        for span in spans
    ]
    together = build_training_sets(recipe, fleet, thinned)
    assert [bytes_of(*made) for made in together] == alone
    assert len(readings) == 1


def test_later_records_change_nothing(
    folders: dict[str, Path], as_a_whole: tuple[bytes, ...], tmp_path: Path
) -> None:
    shutil.copytree(folders["landed"], tmp_path / "records")
    later = fleet_rows()
    later = later[later["timestamp"] >= pd.Timestamp(MOMENT, tz="UTC")]
    write(tmp_path / "records", later.assign(failure=1, temperature=5.0), "part-2.parquet")
    fleet = fleet_of(tmp_path / "records", 3)
    assert bytes_of(*trained_on(fleet, fleet.selection)) == as_a_whole


def test_wrong_interval_is_rejected_in_slices(folders: dict[str, Path]) -> None:
    store = RecordStore(folders["landed"], KINDS, Nanoseconds(HOUR // 4), PLAN.peers)
    with pytest.raises(InputError, match=r"records are 1 h apart \(median\), expected"):
        store.read_fleet(MOMENT - REACH, MOMENT, RECIPE.instances, 64)


def test_few_irregular_gpus_are_accepted(tmp_path: Path) -> None:
    rows = fleet_rows()
    odd = rows["gpu_serial"].isin([SERIALS[3]]) & (rows["timestamp"].dt.hour % 3 > 0)
    write(tmp_path, rows[~odd], "part-0.parquet")
    fleet = fleet_of(tmp_path, 64, None)
    assert len(fleet.serials) == N_GPUS


def test_missing_serials_are_rejected_in_slices(tmp_path: Path) -> None:
    write(tmp_path, fleet_rows().assign(gpu_serial=None), "part-0.parquet")
    with pytest.raises(InputError, match="there is no row with a serial and a timestamp"):
        fleet_of(tmp_path, 4, None)


def test_slice_reads_only_its_row_groups(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("forewarn.pipelines.storage.records.date_merge._MIN_ROWS_PER_GROUP", 16)
    shutil.copytree(folders["landed"] / "date=2025-01-02", tmp_path / "date=2025-01-02")
    loose = ParquetSource(tmp_path / "date=2025-01-02" / "part-0.parquet")
    n_rows = loose.n_rows
    assert FileSlice.for_slices(loose, (0, 1)).n_rows == n_rows
    compact_date(tmp_path, dt.date(2025, 1, 2))
    merged = ParquetSource(tmp_path / "date=2025-01-02" / "00-compacted.parquet")
    halves = [FileSlice.for_slices(merged, half).n_rows for half in ((0, 32), (32, MAX_SLICES))]
    assert sum(halves) == n_rows
    assert min(halves) > 0


def test_compacted_files_allow_more_slices(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("forewarn.pipelines.storage.records.date_merge._MIN_ROWS_PER_GROUP", 16)
    monkeypatch.setattr("forewarn.pipelines.storage.records.file_slice._TARGET_ROWS_PER_SLICE", 500)
    n_most = "forewarn.pipelines.storage.records.file_slice._MAX_ROWS_PER_SLICE"
    monkeypatch.setattr(n_most, 5000)
    shutil.copytree(folders["landed"], tmp_path / "records")
    files = store_of(tmp_path / "records").files()
    assert (
        number_of_slices([ParquetSource(path) for _, path in files]) == 2
    )  # each file is read at most twice
    for date in {date for date, _ in files}:
        compact_date(tmp_path / "records", date)
    files = store_of(tmp_path / "records").files()
    assert number_of_slices([ParquetSource(path) for _, path in files]) == 8


SETTINGS = parse_settings(
    {
        "records": {"interval": "1h"},
        "windows": {"length": 3, "horizon": 6, "step": 2},
        "list": {"share": 0.5},
        "features": {
            **{kind: list(getattr(KINDS, kind)) for kind in FeatureKinds.__slots__},
            "counter": ["errors", "rows_remapped"],
            "history": [2, 5],
            "peers": list(PLAN.peers),
            "residuals": [],
        },
    },
    name="a test",
)


def list_of_rules(folder: Path, out: Path) -> dict[str, bytes]:
    written = score_with_rules(SETTINGS, folder, START.value + 65 * HOUR).write(out)
    return {path.name: path.read_bytes() for path in written.iterdir()}


@pytest.mark.parametrize(
    ("form", "n_slices"), [("landed", 64), ("compacted", 5), ("late", 16), ("late", 1)]
)
def test_list_is_independent_of_slices(
    folders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    n_slices: int,
) -> None:
    as_a_whole = list_of_rules(folders["landed"], tmp_path / "whole")
    unscored = pd.read_csv(io.BytesIO(as_a_whole["unscored.csv"]))
    assert "failed" in set(unscored["reason"])
    page = as_a_whole["at_risk.html"].decode()
    assert page.count('class="picture"') >= 2

    monkeypatch.setattr(record_store, "number_of_slices", lambda *_: n_slices)
    assert list_of_rules(folders[form], tmp_path / "sliced") == as_a_whole


@pytest.fixture
def compacted_file(folders: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(folders["landed"] / "date=2025-01-02", tmp_path / "date=2025-01-02")
    compact_date(tmp_path, dt.date(2025, 1, 2))
    return tmp_path / "date=2025-01-02" / "00-compacted.parquet"


def test_compacted_metadata_are_released(compacted_file: Path) -> None:
    """Regression: the metadata of four months of 20,000 GPUs took 200 MB until a garbage
    collection.
    """
    gc.collect()
    gc.disable()
    try:
        source = ParquetSource(compacted_file)
        assert source.n_rows == pq.read_metadata(compacted_file).num_rows
        assert source.schema.equals(pq.read_schema(compacted_file), check_metadata=True)
        assert not [held for held in gc.get_objects() if type(held) is pq.FileMetaData]
    finally:
        gc.enable()


def test_reread_metadata_are_of_same_file(compacted_file: Path) -> None:
    source = ParquetSource(compacted_file)
    with source.columns() as columns:
        assert len(columns) == source.n_rows
    assert source.metadata is not None
    assert source.metadata.num_rows == source.n_rows
    late = ParquetSource(compacted_file)
    assert late.schema.names
    pq.write_table(pa.table({"gpu_serial": ["G"]}), compacted_file)
    with pytest.raises(ReplacedFileError), late.columns():
        raise AssertionError("it was opened")
