from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import date_of
from forewarn.pipelines.doctor import file_survey
from forewarn.pipelines.doctor.file_survey import survey_file

KINDS = FeatureKinds(float=("temperature_gpu", "volts"), counter=("resets",))


def test_worker_results_are_plain_and_unique(tmp_path: Path) -> None:
    times = pd.date_range("2025-01-01", periods=24, freq="1h", tz="UTC")
    rows = pd.concat(
        pd.DataFrame(
            {
                "gpu_serial": serial,
                "timestamp": times,
                "temperature_gpu": 50.0 if serial == "B" else [50.0, 51.0] * 12,
                "volts": range(24),
                "resets": counts,
            }
        )
        for serial, counts in (("B", [7.0] * 24), ("A", [3.0] * 23 + [1.0]), ("C", [None] * 24))
    )
    rows.to_parquet(tmp_path / "a.parquet")
    date = date_of(times[0].value)
    (plain,) = survey_file((tmp_path / "a.parquet", date, asdict(KINDS), ()))
    serials = plain["serials"]
    assert sorted(serials) == ["A", "B", "C"]
    (counter,) = (column for column in plain["columns"] if len(column["gpu"]))
    assert (counter["name"], counter["resets"]) == ("resets", 1)
    ends = zip(counter["gpu"].tolist(), counter["first"], counter["last"], strict=True)
    assert {serials[gpu]: values for gpu, *values in ends} == {"B": [7.0, 7.0], "A": [3.0, 1.0]}
    still = plain["floats"]["still"]["temperature_gpu"].tolist()
    assert [serials[gpu] for gpu in still] == ["B"]
    assert plain["floats"]["days"] == {"temperature_gpu": 3, "volts": 3}
    texts = repr([each for name, each in plain.items() if name not in ("serials", "machines")])
    assert not any(repr(serial) in texts for serial in serials)


def rows_by_time() -> pd.DataFrame:
    """Return two days of five GPUs as a collector writes them: by time, with gaps."""
    rng = np.random.default_rng(5)
    times = pd.date_range("2025-01-01", periods=48, freq="1h", tz="UTC")
    rows = pd.DataFrame(
        [(serial, time) for time in times for serial in ("D", "B", "A", "C", "E")],
        columns=["gpu_serial", "timestamp"],
    )
    rows["temperature_gpu"] = rng.choice([50.0, 51.0, 900.0, np.nan], len(rows))
    rows.loc[rows["gpu_serial"] == "C", "temperature_gpu"] = 60.0
    rows["volts"] = rng.random(len(rows))
    rows["resets"] = rng.choice([0.0, 1.0, 2.0, -1.0, np.nan], len(rows))
    rows.loc[rng.random(len(rows)) < 0.05, "gpu_serial"] = None
    return rows


@pytest.mark.parametrize("n_rows", [1, 60, 96])
@pytest.mark.parametrize("with_rows", [True, False])
def test_survey_of_parts_equals_whole(
    with_rows: bool, n_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_by_time()
    rows[: len(rows) * with_rows].to_parquet(tmp_path / "a.parquet")
    date = date_of(rows["timestamp"][0].value)
    item = (tmp_path / "a.parquet", date, asdict(KINDS), ())
    (whole,) = survey_file(item)
    monkeypatch.setattr(file_survey, "_MAX_PART_ROWS", n_rows)
    (in_parts,) = survey_file(item)
    assert repr(in_parts) == repr(whole)
    assert whole["rows"] + whole["without_key"] == len(rows) * with_rows
    assert sum(whole["days"].values()) == whole["rows"]
    assert 0 not in whole["days"].values()
    if with_rows:
        temperature = whole["columns"][0]
        keyed = rows[rows["gpu_serial"].notna()]
        assert temperature["impossible"] == (keyed["temperature_gpu"] == 900).sum()
        assert whole["columns"][2]["impossible"] == (keyed["resets"] < 0).sum()
        assert set(whole["days"].values()) == set(keyed.groupby(keyed["timestamp"].dt.day).size())
        assert whole["misfiled"] == (keyed["timestamp"].dt.day == 2).sum()
        still = whole["floats"]["still"]["temperature_gpu"]
        assert [whole["serials"][gpu] for gpu in still] == ["C"]  # while its volts moved


@pytest.mark.parametrize(
    ("n_rows", "expected"),
    [(1, [3, 1, 2]), (4, [4, 2]), (5, [6]), (100, [6])],
)
def test_parts_end_at_gpu_boundaries(
    n_rows: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_survey, "_MAX_PART_ROWS", n_rows)
    gpu = np.array([0, 0, 0, 1, 4, 4], dtype=np.int32)
    parts = file_survey._parts(np.arange(6)[::-1], gpu)
    assert [len(part.row) for part in parts] == expected
    assert np.concatenate([part.gpu for part in parts]).tolist() == gpu.tolist()
    assert parts[0].row[0] == 5
    assert parts[-1].starts.tolist() == ([0] if len(parts) > 1 else [0, 3, 4])


def test_no_rows_give_one_empty_part() -> None:
    (part,) = file_survey._parts(np.arange(0), np.zeros(0, dtype=np.int32))
    assert not len(part.row)
