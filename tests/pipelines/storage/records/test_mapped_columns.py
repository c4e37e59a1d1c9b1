"""Records whose columns have other names in the data give the same results."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.records.column_names import ColumnNames
from forewarn.features.records.record_table import RecordsError
from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import SettingsError, parse_settings
from forewarn.pipelines.ingest.complete_days import complete_days
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.records.compaction import compact_date
from forewarn.pipelines.storage.records.record_store import RecordStore

NAMES = {
    "gpu_serial": "device",
    "timestamp": "ts",
    "failure": "broken",
    "machine_id": "host",
    "gpu_type": "model",
    "xid": "xid_code",
    "temperature_gpu": "gpu.temp",
    "ecc_corrected": "sbe",
}
AT = "2025-01-13"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the records of a small simulated fleet, with a table of failures."""
    out = tmp_path_factory.mktemp("fleet")
    options = ["--gpus", "150", "--days", "14", "--seed", "3"]
    assert main(["simulate", "fleet", "--out", str(out), *options]) == 0
    gpu = next((out / "records").rglob("*.parquet"))
    serial = pq.read_table(gpu)["gpu_serial"][0].as_py()
    table = pa.table({"gpu_serial": [serial], "failed_at": [dt.datetime(2025, 1, 9)]})
    pq.write_table(table, out / "records/failures.parquet")
    return out / "records"


def renamed(records: Path, out: Path, names: Mapping[str, str], days: int = 99) -> Path:
    """Copy records with other names of their columns on the first days."""
    for number, path in enumerate(sorted(records.rglob("*.parquet"))):
        table = pq.read_table(path)
        theirs = names if number < days or path.name == "failures.parquet" else {}
        target = out / path.relative_to(records)
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.rename_columns([theirs.get(n, n) for n in table.column_names]), target)
    return out


def config(folder: Path, names: Mapping[str, str], rest: str = "") -> str:
    pairs = ", ".join(f'{ours} = "{theirs}"' for ours, theirs in names.items())
    path = folder / "my.toml"
    path.write_text(f"[records]\ncolumns = {{{pairs}}}\n{rest}")
    return str(path)


def scored(records: Path, out: Path, *options: str) -> list[dict[str, object]]:
    words = ["score", "--records", str(records), "--model", "builtin:rules", "--at", AT]
    assert main([*words, "--out", str(out), *options]) == 0
    rows: list[dict[str, object]] = json.loads((out / f"date={AT}/at_risk.json").read_text())
    return rows


@pytest.mark.parametrize("days", [99, 6], ids=["all", "first days"])
def test_renamed_columns_keep_their_meaning(fleet: Path, tmp_path: Path, days: int) -> None:
    theirs = renamed(fleet, tmp_path / "theirs", NAMES, days)
    options = ("--config", config(tmp_path, NAMES))
    assert scored(theirs, tmp_path / "a", *options) == scored(fleet, tmp_path / "b")


def test_doctor_sees_the_same_fleet(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = renamed(fleet, tmp_path / "theirs", NAMES)
    reports = []
    for records, options in ((theirs, ["--config", config(tmp_path, NAMES)]), (fleet, [])):
        assert main(["doctor", str(records), "--json", *options]) == 0
        reports.append(json.loads(capsys.readouterr().out) | {"layout": None})
    assert reports[0] == reports[1]


def test_compaction_keeps_their_names(fleet: Path, tmp_path: Path) -> None:
    theirs = renamed(fleet, tmp_path / "theirs", NAMES)
    before = pq.read_table(theirs / "date=2025-01-05")
    compact_date(theirs, dt.date(2025, 1, 5), ColumnNames.from_mapping(NAMES))
    after = pq.read_table(theirs / "date=2025-01-05")
    assert after.column_names == before.column_names
    rows = [
        set(map(tuple, t.to_pandas()[["device", "ts", "sbe"]].fillna(0).values))
        for t in (before, after)
    ]
    assert rows[0] == rows[1]
    assert scored(theirs, tmp_path / "a", "--config", config(tmp_path, NAMES)) == scored(
        fleet, tmp_path / "b"
    )


def test_mapped_column_hides_one_of_our_name(tmp_path: Path) -> None:
    moments = np.arange(6) * 10 * MINUTE + parse_moment("2025-01-01T00:10:00")
    columns = {
        "gpu_serial": ["not a serial"] * 6,
        "device": ["SN1"] * 6,
        "timestamp": pa.array(moments, pa.timestamp("ns", "UTC")),
    }
    (tmp_path / "date=2025-01-01").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "date=2025-01-01/a.parquet")
    kinds = parse_settings({}, name="default").features.kinds.among(set())
    names = ColumnNames((("gpu_serial", "device"),))
    store = RecordStore(tmp_path, kinds, Nanoseconds(10 * MINUTE), names=names)
    assert list(store.read().serials) == ["SN1"]


@pytest.mark.parametrize("ours", ["gpu_serial", "temperature_gpu"])
def test_missing_mapped_column_is_named(fleet: Path, tmp_path: Path, ours: str) -> None:
    theirs = renamed(fleet, tmp_path / "theirs", {ours: "something else"})
    kinds = parse_settings({}, name="default").features.kinds
    names = ColumnNames(((ours, "wanted"),))
    store = RecordStore(theirs, kinds, Nanoseconds(10 * MINUTE), names=names)
    message = f"column `wanted` is missing, which `records.columns` reads as `{ours}`"
    with pytest.raises(RecordsError, match=message):
        store.read()


def test_features_may_use_the_names_of_the_data() -> None:
    values = {
        "records": {"columns": {"temperature_gpu": "gpu.temp", "machine_id": "host"}},
        "features": {"float": ["gpu.temp", "fan"], "peers": ["host"]},
    }
    features = parse_settings(values, name="my.toml").features
    assert (features.float, features.peers) == (("temperature_gpu", "fan"), ("machine_id",))


def test_column_cannot_be_mapped_twice() -> None:
    values = {"records": {"columns": {"rack": "place", "data_center": "place"}}}
    with pytest.raises(SettingsError, match=r"`records.columns` maps `place` twice"):
        parse_settings(values, name="my.toml")


def test_complete_days_read_mapped_keys(fleet: Path, tmp_path: Path) -> None:
    theirs = renamed(fleet, tmp_path / "theirs", NAMES)
    interval, now = 10 * MINUTE, parse_moment("2025-01-12T01:00:00")
    names = ColumnNames.from_mapping(NAMES)
    assert complete_days(theirs, interval, now, names) == complete_days(fleet, interval, now)


def test_model_remembers_the_names(fleet: Path, tmp_path: Path) -> None:
    from forewarn.pipelines.at_risk.fleet_scoring import load_predictor
    from forewarn.pipelines.config.settings import Settings

    rest = '[training]\nselect_by = "gbdt"\nlengths = ["5d"]\n[ensembles]\nparallel = ["gbdt"]\n'
    rest += 'cascade = [["gbdt", 0.02]]\nlinear = 0.0\n[windows]\nhorizon = 36\n'
    theirs = renamed(fleet, tmp_path / "theirs", NAMES)
    options = ["--config", config(tmp_path, NAMES, rest), "--model", str(tmp_path / "model")]
    assert main(["train", "--records", str(theirs), "--at", AT, *options]) == 0
    predictor = load_predictor(str(tmp_path / "model"), Settings())
    assert predictor.facts.columns == NAMES
    words = ["score", "--records", str(theirs), "--model", str(tmp_path / "model"), "--at", AT]
    assert main([*words, "--out", str(tmp_path / "lists")]) == 0
