from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.prediction.instances import find_instances, label_instances
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.fleet_timeline import build_timeline
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.records.record_table import Records
from forewarn.features.time_units import MINUTE, Nanoseconds, RecordCount

Rows = Callable[..., list[dict[str, Any]]]

START = 20_500 * 24 * 60 * MINUTE  # as in tests/features/conftest.py
HORIZON = Nanoseconds(20 * MINUTE)


def _spans(*spans: tuple[int, float, float]) -> OutOfService:
    gpu, start, end = zip(*spans, strict=True)
    moments = [
        np.array([NEVER if m == np.inf else START + int(m) * MINUTE for m in part], np.int64)
        for part in (start, end)
    ]
    return OutOfService(np.array(gpu, np.int32), *moments)


def _labels(records: Records, failures: Failures) -> dict[str, list[int]]:
    instances = find_instances(
        build_timeline(records, failures),
        window_records=RecordCount(1),
        step_records=RecordCount(1),
        horizon=HORIZON,
    )
    serials = records.serials
    return {
        name: instances.label[instances.gpu == number].tolist()
        for number, name in enumerate(serials)
    }


def test_horizon_overlapping_a_span_is_unknown(
    assembled: Callable[..., Records], rows: Rows
) -> None:
    records = assembled(rows("A", range(0, 90, 10)) + rows("B", range(0, 90, 10)))
    out = replace(records, out_of_service=_spans((0, 40, 51)))
    labels = _labels(out, Failures.empty())
    # Instances of A end at 20 to 50; the last two are unknown because the records end.
    assert labels["A"] == [0, 0, -1, -1, -1, -1, 0, -1, -1]
    assert labels["B"] == [0, 0, 0, 0, 0, 0, 0, -1, -1]


def test_known_failure_keeps_its_label(
    assembled: Callable[..., Records], rows: Rows, failures: Callable[..., Failures]
) -> None:
    records = assembled(rows("A", range(0, 90, 10)))
    out = replace(records, out_of_service=_spans((0, 20, np.inf)))
    labels = _labels(out, failures(records, ("A", 45, 55)))
    assert labels["A"] == [-1, -1, -1, 1, 1, -1, -1, -1][: len(labels["A"])]


def test_spans_are_kept_for_shorter_records(assembled: Callable[..., Records], rows: Rows) -> None:
    records = assembled(rows("A", range(0, 90, 10)))
    out = replace(records, out_of_service=_spans((0, 40, 51)))
    assert len(out.between(START, START + 30 * MINUTE).out_of_service) == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 90), st.integers(1, 60)), min_size=1, max_size=5
    )
)
def test_label_is_unknown_exactly_on_overlap(spans: list[tuple[int, int, int]]) -> None:
    out = _spans(*((gpu, start, start + length) for gpu, start, length in spans))
    gpu = np.repeat(np.arange(2, dtype=np.int32), 10)
    end = np.tile(START + np.arange(10) * 10 * MINUTE, 2)
    within = out.within(gpu, end, HORIZON)
    for row in range(20):
        minute = int(end[row] - START) // MINUTE
        # Of (minute, minute + 20] and [start, start + length), in half minutes.
        horizon = set(range(2 * minute + 1, 2 * minute + 41))
        overlaps = any(
            number == gpu[row] and horizon & set(range(2 * start, 2 * (start + length)))
            for number, start, length in spans
        )
        assert within[row] == overlaps


def test_without_spans_nothing_changes(assembled: Callable[..., Records], rows: Rows) -> None:
    records = assembled(rows("A", range(0, 90, 10)))
    timeline = build_timeline(records, Failures.empty())
    gpu, end = records.gpu, records.time
    assert len(records.out_of_service) == 0
    assert (label_instances(timeline, gpu, end, HORIZON) >= 0).sum() == 7
