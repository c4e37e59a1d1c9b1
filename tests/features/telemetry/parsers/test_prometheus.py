from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.dcgm import METRICS, metric_of
from forewarn.features.telemetry.parsers.prometheus import gpu_labels, parse_matrix, parse_metrics

LABELS = (
    'gpu="3",UUID="GPU-7",Hostname="node-1",modelName="NVIDIA H100",pci_bus_id="00000000:3B:00.0"'
)


def test_old_and_new_names_give_the_same() -> None:
    pages = [
        f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 41\nDCGM_FI_DEV_POWER_USAGE{{{LABELS}}} 99.5\n",
        f"DCGM_FI_DEV_GPU_TEMP_CELSIUS{{{LABELS}}} 41\n"
        f"DCGM_FI_DEV_BOARD_POWER_WATTS{{{LABELS.replace('Hostname', 'hostname')}}} 99.5\n",
    ]
    for page in pages:
        (reading,), unread = parse_metrics(f"# HELP x y\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n{page}")
        assert not unread
        assert reading.numbers == {"temperature_gpu": 41.0, "power_draw": 99.5}
        assert (reading.uuid, reading.slot, reading.pci) == ("GPU-7", 3, "0000:3b:00")
        assert (reading.host, reading.texts) == ("node-1", {"gpu_type": "NVIDIA H100"})


def test_remapped_rows_are_added_up_and_need_both() -> None:
    corrected = f"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{{{LABELS}}} 2\n"
    both = f"{corrected}DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{LABELS}}} 1\n"
    assert parse_metrics(both)[0][0].numbers == {"rows_remapped": 3.0}
    assert parse_metrics(corrected)[0][0].numbers == {}


@pytest.mark.parametrize("blank", ["140737488355328.0", "9223372036854775792", "NaN", "+Inf"])
def test_blank_values_are_nothing(blank: str) -> None:
    readings, unread = parse_metrics(f"DCGM_FI_DEV_POWER_USAGE{{{LABELS}}} {blank}\n")
    assert not any(reading.numbers for reading in readings)
    assert not unread


def test_parts_of_split_gpus_and_the_xid_gauge_are_left_out() -> None:
    page = f'DCGM_FI_DEV_GPU_TEMP{{{LABELS},GPU_I_ID="1"}} 41\n'
    page += f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 79\nup 1\n"
    assert parse_metrics(page)[0] == []


def test_a_broken_line_costs_no_other() -> None:
    page = f'DCGM_FI_DEV_GPU_TEMP{{gpu="3 41\nDCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 41\n'
    (reading,), unread = parse_metrics(page)
    assert reading.numbers == {"temperature_gpu": 41.0}
    assert unread.counts["a line that is no sample"] == 1
    assert parse_metrics("DCGM_FI_DEV_GPU_TEMP 41\n")[1].counts["a metric that names no GPU"] == 1


def test_the_serial_is_read_where_the_exporter_has_it() -> None:
    for name in ("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BOARD_SERIAL"):
        assert gpu_labels({name: "165", "UUID": "GPU-1"}).serial == "165"


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
def test_another_answer_is_unread(answer: object) -> None:
    series, unread = parse_matrix(answer)
    assert series == []
    assert unread


def test_every_metric_is_one_of_dcgm_and_both_its_names_are_there(shared_data: Path) -> None:
    with (shared_data.parent / "reference" / "dcgm_fields.csv").open() as file:
        renamed = {row["field"]: row["new_name_in_dcgm_4_6"] for row in csv.DictReader(file)}
    for metric in METRICS:
        for part, names in enumerate(metric.names):
            assert names[0] in renamed
            assert names[1:] == ((renamed[names[0]],) if renamed[names[0]] else ())
            assert {metric_of(name) for name in names} == {(metric.column, part)}


@given(st.text())
def test_any_text_is_read_or_unread(text: str) -> None:
    readings, _ = parse_metrics(text)
    assert all(math.isfinite(v) for reading in readings for v in reading.numbers.values())


@given(st.text(alphabet='DCGM_FIEV{}",=\n\\ 0123456789.eE+-guUI#', max_size=120))
def test_any_text_like_a_page_is_read_or_unread(text: str) -> None:
    page = f"DCGM_FI_DEV_GPU_TEMP{text}\nDCGM_FI_DEV_GPU_TEMP{{{LABELS}}} {text}\n"
    readings, _ = parse_metrics(page)
    assert all(math.isfinite(v) for reading in readings for v in reading.numbers.values())


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
