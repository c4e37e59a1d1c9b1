from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.dcgm_metrics import METRICS, metric_of
from forewarn.features.telemetry.parsers.prometheus_answers import parse_gpu_labels, parse_matrix


def test_serial_label_is_read() -> None:
    for name in ("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BOARD_SERIAL"):
        assert parse_gpu_labels({name: "165", "UUID": "GPU-1"}).serial == "165"


def test_a_matrix_without_blanks() -> None:
    values = [[60, "1.5"], [120, "140737488355328"], [180, "NaN"], [240, "2"]]
    answer = {
        "data": {"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": values}]}
    }
    (series,), unread = parse_matrix(answer)
    assert (series.times, series.values, dict(series.labels)) == ((60, 240), (1.5, 2), {"a": "b"})
    assert not unread


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "x",
        {},
        {"data": None},
        {"data": {"resultType": "vector", "result": []}},
        {"data": {"resultType": "matrix", "result": [1, {"metric": 1}, {"metric": {}}]}},
        {"data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1]]}]}},
    ],
)
def test_other_answers_are_unread(answer: object) -> None:
    series, unread = parse_matrix(answer)
    assert series == []
    assert unread


def test_metrics_exist_in_dcgm_with_both_names(shared_data: Path) -> None:
    with (shared_data.parent / "reference" / "dcgm_fields.csv").open() as file:
        renamed = {row["field"]: row["new_name_in_dcgm_4_6"] for row in csv.DictReader(file)}
    for metric in METRICS:
        for part, all_names in enumerate(metric.names):
            of_npus = [name for name in all_names if name.startswith("npu_")]
            names = all_names[: len(all_names) - len(of_npus)]
            assert all_names == (*names, *of_npus)
            old_names = [name for name in names if name in renamed]
            assert names[:1] == tuple(old_names[:1])
            both = [(name, renamed[name]) if renamed[name] else (name,) for name in old_names]
            assert names == tuple(name for pair in both for name in pair)
            for rank, name in enumerate(all_names):
                assert metric_of(name) == (metric, part, rank)


KEYS = ["data", "resultType", "result", "metric", "values", "x"]
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "resultType", "result", "metric", "values", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_answer_is_read_or_unread(answer: object) -> None:
    parse_matrix(answer)
    parse_matrix({"data": {"resultType": "matrix", "result": [answer]}})
