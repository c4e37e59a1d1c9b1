from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import SECOND
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment, to_timestamps

MOMENTS = st.integers(-(2**61), 2**61)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86_400),
        ("1970-01-02T03:04:05", 97_445),
        ("1970-01-02 03:04", 97_440),
        ("1970-01-02T03:04:05Z", 97_445),
        ("1970-01-02T03:04:05+00:00", 97_445),
        ("1970-01-02T03:04:05+08:00", 68_645),
        ("1970-01-01T23:00:00-01:00", 86_400),
        ("1970-01-01T00:00:00.25Z", 0.25),
        ("1969-12-31T23:59:59Z", -1),
    ],
)
def test_time_without_zone_is_utc(text: str, seconds: float) -> None:
    assert parse_moment(text) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "soon", "NaT", "2025-13-01", "2025-02-30", "9999-01-01"])
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # its text is that of pandas
        parse_moment(text)


@pytest.mark.parametrize("text", ["now", "today", "12:00"])
def test_time_includes_its_date(text: str) -> None:
    # Otherwise the same command would mean another time tomorrow.
    with pytest.raises(ValueError):  # noqa: PT011  # its text is that of pandas
        parse_moment(text)


def test_iso_ends_in_z() -> None:
    assert format_iso(0) == "1970-01-01T00:00:00Z"
    assert format_iso(1_737_244_800 * SECOND) == "2025-01-19T00:00:00Z"
    assert format_iso(SECOND // 2) == "1970-01-01T00:00:00.500000Z"


@given(MOMENTS)
def test_iso_round_trips(moment: int) -> None:
    assert parse_moment(format_iso(moment)) == moment


@given(st.lists(MOMENTS))
def test_timestamps_are_utc(moments: list[int]) -> None:
    stamps = to_timestamps(np.array(moments, dtype=np.int64))
    assert str(stamps.dtype) == "datetime64[ns, UTC]"
    assert stamps.astype("int64").tolist() == moments
    assert all(
        stamp == pd.Timestamp(format_iso(moment))
        for stamp, moment in zip(stamps, moments, strict=True)
    )
