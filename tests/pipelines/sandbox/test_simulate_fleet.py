from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.evaluation.simulation.fleet.fleet_simulator import FleetDay, FleetRun, simulate_fleet
from forewarn.evaluation.simulation.fleet.simulated_records import RECORD_COLUMNS
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_folder_holds_contract_files_only(tmp_path: Path) -> None:
    simulate_fleet_to(tmp_path / "out", n_gpus=40, n_days=3, seed=1, progress=False)
    assert list(contents(tmp_path / "out")) == [
        "cmdb.csv",
        "records/date=2025-01-01/part-0.parquet",
        "records/date=2025-01-02/part-0.parquet",
        "records/date=2025-01-03/part-0.parquet",
        "truth.csv",
    ]


def test_files_hold_simulated_data(tmp_path: Path) -> None:
    simulate_fleet_to(tmp_path, n_gpus=300, n_days=6, seed=2, progress=False)
    run = simulate_fleet(n_gpus=300, n_days=6, seed=2)
    for day in run:
        path = tmp_path / "records" / f"date={day.date}" / "part-0.parquet"
        written = pq.ParquetFile(path).read().to_pandas()
        strings = dict.fromkeys(written.select_dtypes("category").columns, "str")
        expected = day.records.astype(strings)
        pd.testing.assert_frame_equal(written.astype(strings), expected, check_dtype=False)
    cmdb, truth = pd.read_csv(tmp_path / "cmdb.csv"), pd.read_csv(tmp_path / "truth.csv")
    pd.testing.assert_frame_equal(cmdb, run.cmdb(), check_dtype=False)
    assert truth.columns.tolist() == ["gpu_serial", "failed_at", "mechanism"]
    assert len(truth) > 0
    assert (pd.to_datetime(truth["failed_at"]) == run.truth()["failed_at"]).all()
    assert truth["gpu_serial"].tolist() == run.truth()["gpu_serial"].tolist()


def test_strings_are_zstd_dictionaries(tmp_path: Path) -> None:
    simulate_fleet_to(tmp_path, n_gpus=8, n_days=1, seed=0, progress=False)
    file = pq.ParquetFile(tmp_path / "records" / "date=2025-01-01" / "part-0.parquet")
    assert file.schema_arrow.names == list(RECORD_COLUMNS)
    for name in ("gpu_serial", "machine_id", "driver_version", "expiration_date"):
        assert pa.types.is_dictionary(file.schema_arrow.field(name).type)
    assert file.schema_arrow.field("timestamp").type == pa.timestamp("ns", tz="UTC")
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_same_seed_gives_same_bytes(tmp_path: Path) -> None:
    simulate_fleet_to(tmp_path, n_gpus=20, n_days=2, seed=4, progress=False)
    before = contents(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    simulate_fleet_to(tmp_path, n_gpus=20, n_days=2, seed=4, progress=False)
    assert contents(tmp_path) == before | {"notes.txt": b"mine"}


def test_another_seed_replaces_files(tmp_path: Path) -> None:
    simulate_fleet_to(tmp_path, n_gpus=20, n_days=1, seed=4, progress=False)
    before = contents(tmp_path)
    simulate_fleet_to(tmp_path, n_gpus=20, n_days=1, seed=5, progress=False)
    after = contents(tmp_path)
    assert before.keys() == after.keys()
    assert before["cmdb.csv"] != after["cmdb.csv"]


def test_unfinished_file_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_fleet_to(tmp_path, n_gpus=8, n_days=1, seed=0, progress=False)
    before = contents(tmp_path)

    def fail(_table: object, where: Path, **_options: object) -> None:
        where.write_bytes(b"half a fi")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        simulate_fleet_to(tmp_path, n_gpus=8, n_days=1, seed=1, progress=False)
    assert contents(tmp_path) == before


def test_days_are_written_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = iter(simulate_fleet(n_gpus=8, n_days=2, seed=0))

    def watched(_self: FleetRun) -> object:
        yield next(days)
        assert (tmp_path / "records" / "date=2025-01-01" / "part-0.parquet").exists()
        yield FleetDay("2025-01-02", next(days).records)

    monkeypatch.setattr(FleetRun, "__iter__", watched)
    simulate_fleet_to(tmp_path, n_gpus=8, n_days=2, seed=0, progress=False)
    assert (tmp_path / "records" / "date=2025-01-02" / "part-0.parquet").exists()


@pytest.mark.parametrize(
    ("option", "n_gpus", "n_days", "seed"),
    [("--gpus", 0, 1, 0), ("--days", 1, 0, 0), ("--seed", 1, 1, -1)],
)
def test_out_of_range_number_leaves_nothing(
    tmp_path: Path, option: str, n_gpus: int, n_days: int, seed: int
) -> None:
    with pytest.raises(ValueError, match=f"`{option}` must be at least"):
        simulate_fleet_to(tmp_path / "new", n_gpus=n_gpus, n_days=n_days, seed=seed)
    assert not (tmp_path / "new").exists()


def test_progress_is_silent_without_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate_fleet_to(tmp_path, n_gpus=8, n_days=1, seed=0, progress=True)
    assert capsys.readouterr() == ("", "")
