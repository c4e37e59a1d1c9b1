"""Tags of registered versions, as forewarn and other programs write them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import DAY
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.registry.registered_version import (
    Version,
    length_tag,
    version_from_mlflow,
)


def _version(at: str, length: str) -> Version:
    tags = {"forewarn.at": at, "forewarn.length": length}
    return version_from_mlflow(SimpleNamespace(version=1, tags=tags), [])


@given(st.integers(0, 2**62), st.integers(1, 30_000 * DAY))
def test_times_and_lengths_are_exact(moment: int, span: int) -> None:
    version = _version(format_iso(moment), length_tag(span))
    assert (version.trained_at, version.length) == (moment, span)


@given(st.text(), st.text() | st.from_regex("P[0-9]*DT[0-9.HMS]*", fullmatch=True))
def test_foreign_tags_are_no_error(at: str, length: str) -> None:
    version = _version(at, length)
    assert version.length is None or version.length >= 0


@pytest.mark.parametrize("at", ["9" * 400, "9999-12-31", "0001-01-01", "2025-02-30"])
def test_times_out_of_range_are_unknown(at: str) -> None:
    assert _version(at, "P99999DT0H0M0S").trained_at is None
