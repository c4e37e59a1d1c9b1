from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from forewarn.features.records.table import FeatureKinds
from forewarn.features.time_units import date_of
from forewarn.pipelines.doctor.file_survey import survey_file

KINDS = FeatureKinds(float=("temperature_gpu", "volts"), counter=("resets",))


def test_what_crosses_names_no_serial_twice_and_says_the_same(tmp_path: Path) -> None:
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
    (plain,) = survey_file((tmp_path / "a.parquet", date, asdict(KINDS)))
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
