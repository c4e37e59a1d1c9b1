"""Keys that were packed say the same of every record and of every row as read."""

from __future__ import annotations

from dataclasses import fields
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from tests.features.table_source import TableSource

from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.column_files import ColumnFiles
from forewarn.features.records.packed_keys import PackedKeys
from forewarn.features.records.table import FeatureKinds
from forewarn.features.time_units import Nanoseconds

MINUTE = 60 * 10**9
KINDS = FeatureKinds(float=("load",), counter=("errors",))


def source(seed: int, first: int, *, backwards: bool) -> TableSource:
    """Return rows of some GPUs of which some are missing, doubled, too close or failed."""
    rng = np.random.default_rng(seed)
    gpu, step = np.repeat(np.arange(5), 30), np.tile(np.arange(first, first + 30), 5)
    keep = np.sort(rng.choice(150, 170))  # some twice, some not at all
    time = step[keep] * 10 * MINUTE + rng.choice([0, 0, 0, MINUTE, 7 * MINUTE], len(keep))
    order = np.argsort(time, kind="stable")[:: -1 if backwards else 1]
    table = pa.table(
        {
            "gpu_serial": [f"S{number}" for number in gpu[keep][order]],
            "timestamp": pa.array(time[order], pa.timestamp("ns", "UTC")),
            "failure": rng.choice([0, 0, 1], len(keep)),
            "load": rng.random(len(keep)),
            "errors": rng.integers(0, 9, len(keep)),
        }
    )
    return TableSource(f"part-{seed}", table)


@pytest.mark.parametrize("backwards", [False, True])
def test_packed_keys_give_the_same_records(*, backwards: bool) -> None:
    sources = [source(1, 0, backwards=backwards), source(2, 30, backwards=False)]
    records = assemble(sources, RecordsQuery("hand", KINDS, Nanoseconds(10 * MINUTE)))
    assert records.filled.any()
    assert records.failed.any()
    assert records.seen.doubled
    order = cast(ColumnFiles, records.columns).keys.order
    assert (order is not None) == backwards
    again = PackedKeys.of(records, order).records(sources, KINDS)
    for name in ("gpu", "time", "filled", "failed", "order"):
        before, after = getattr(records, name), getattr(again, name)
        assert before.dtype == after.dtype
        assert (before == after).all()
    rows = np.arange(len(records))
    for name in ("load", "errors"):
        assert np.array_equal(records.numbers(name, rows), again.numbers(name, rows), True)
    # A slice is gone through once: what may be written to is kept by nobody.
    assert not records.columns.read("load", 0, 1).flags.writeable
    assert again.columns.read("load", 0, 1).flags.writeable
    for field in fields(records.seen):
        assert getattr(again.seen, field.name) == getattr(records.seen, field.name)
