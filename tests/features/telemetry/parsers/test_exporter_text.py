from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.exporter_text import parse_metrics

LABELS = (
    'gpu="3",UUID="GPU-7",Hostname="node-1",modelName="NVIDIA H100",pci_bus_id="00000000:3B:00.0"'
)
MILLISECONDS = 1_795_601_400_000


def numbers(page: str) -> dict[str, float]:
    (reading,) = parse_metrics(page).readings
    return dict(reading.numbers)


def test_old_and_new_names_give_the_same() -> None:
    pages = [
        f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 41\nDCGM_FI_DEV_POWER_USAGE{{{LABELS}}} 99.5\n",
        f"DCGM_FI_DEV_GPU_TEMP_CELSIUS{{{LABELS}}} 41\n"
        f"DCGM_FI_DEV_BOARD_POWER_WATTS{{{LABELS.replace('Hostname', 'hostname')}}} 99.5\n",
    ]
    for page in pages:
        parsed = parse_metrics(f"# HELP x y\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n{page}")
        (reading,) = parsed.readings
        assert not parsed.unread
        assert reading.numbers == {"temperature_gpu": 41.0, "power_draw": 99.5}
        assert (reading.uuid, reading.slot, reading.pci) == ("GPU-7", 3, "0000:3b:00")
        assert (reading.host, reading.texts) == ("node-1", {"gpu_type": "NVIDIA H100"})


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_first_metric_name_wins_in_any_order(order: tuple[int, ...]) -> None:
    lines = [
        f"DCGM_FI_PROF_SM_ACTIVE{{{LABELS}}} 0.5\n",
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{LABELS}}} 0.9\n",
        f"DCGM_FI_PROF_SM_UTIL_RATIO{{{LABELS}}} 0.4\n",
    ]
    assert numbers("".join(lines[i] for i in order)) == {"sm_active": 0.5}


def test_remapped_rows_sum_needs_both_metrics() -> None:
    corrected = f"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{{{LABELS}}} 2\n"
    both = f"{corrected}DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{LABELS}}} 1\n"
    assert numbers(both) == {"rows_remapped": 3.0}
    assert numbers(corrected) == {}


def test_optional_columns_in_their_units() -> None:
    values = {
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5_000_000,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1,
        "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": 2,
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x44,
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 7,
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 3,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25,
        "DCGM_FI_PROF_DRAM_ACTIVE": 0.4,
    }
    page = "".join(f"{name}{{{LABELS}}} {value}\n" for name, value in values.items())
    assert numbers(page) == {
        "energy_consumption": 5000.0,
        "row_remap_failure": 1.0,
        "recovery_action": 2.0,
        "throttle_hardware": 1.0,
        "nvlink_errors": 10.0,
        "tensor_active": 0.25,
        "dram_active": 0.4,
    }
    assert numbers(page.replace(" 68\n", " 52\n"))["throttle_hardware"] == 0.0


@pytest.mark.parametrize("blank", ["140737488355328.0", "9223372036854775792", "NaN", "+Inf"])
def test_blank_values_are_missing(blank: str) -> None:
    parsed = parse_metrics(f"DCGM_FI_DEV_POWER_USAGE{{{LABELS}}} {blank}\n")
    assert not any(reading.numbers for reading in parsed.readings)
    assert not parsed.unread


def test_mig_instances_are_joined_without_whole_gpu() -> None:
    page = ""
    for part, used in (("1", 3744), ("2", 11)):
        labels = f'{LABELS},GPU_I_ID="{part}",GPU_I_PROFILE="1g.10gb"'
        page += f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 41\nDCGM_FI_DEV_FB_USED{{{labels}}} {used}\n"
        page += f"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL{{{labels}}} 2\n"
    parsed = parse_metrics(page)
    (reading,) = parsed.readings
    joined = {"temperature_gpu": 41.0, "memory_used": 3755.0, "ecc_uncorrected": 2.0}
    assert reading.numbers == joined
    assert parsed.unread.counts["no series of the whole GPU (MIG); its instances were joined"] == 1
    whole = parse_metrics(f"{page}DCGM_FI_DEV_FB_USED{{{LABELS}}} 4000\n")
    assert whole.readings[0].numbers == joined | {"memory_used": 4000.0}
    assert not whole.unread


def test_shared_gpu_is_not_summed_over_pods() -> None:
    page = "".join(
        f'DCGM_FI_DEV_GPU_TEMP{{{LABELS},pod="p{i}",vgpu="{i}"}} 55\n'
        f'DCGM_FI_DEV_FB_USED{{{LABELS},pod="p{i}",vgpu="{i}"}} 9\n'
        for i in range(3)
    )
    assert numbers(page) == {"temperature_gpu": 55.0, "memory_used": 9.0}


@pytest.mark.parametrize("unit", [1, 1000])
def test_reading_has_time_of_its_samples(unit: int) -> None:
    """Exporters write milliseconds, OpenMetrics seconds."""
    page = ""
    for minute, degrees in ((0, 40), (1, 50)):
        time = (MILLISECONDS + minute * 60_000) // unit
        page += f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} {degrees} {time}\n"
        page += f'DCGM_FI_DEV_SM_CLOCK{{{LABELS},pod="p{minute}"}} 1000 {time}\n'
    parsed = parse_metrics(page)
    assert [(reading.time, reading.numbers) for reading in parsed.readings] == [
        (MILLISECONDS * 10**6, {"temperature_gpu": 40.0, "clock_sm": 1000.0}),
        ((MILLISECONDS + 60_000) * 10**6, {"temperature_gpu": 50.0, "clock_sm": 1000.0}),
    ]


def test_last_scrape_without_time_wins() -> None:
    page = "".join(
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
        f'DCGM_FI_DEV_GPU_TEMP{{{LABELS},pod="p{i}"}} {degrees}\n'
        "# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
        f'DCGM_FI_DEV_XID_ERRORS{{{LABELS},pod="p{i}"}} {xid}\n'
        for i, (degrees, xid) in enumerate([(40, 0), (50, 79), (60, 45)])
    )
    parsed = parse_metrics(page)
    assert [reading.numbers for reading in parsed.readings] == [{"temperature_gpu": 60.0}]
    assert parsed.unread.counts == {"a scrape without a time, followed by another one": 2}
    assert [(state.scrape, state.value) for state in parsed.states] == [(0, 0), (1, 79), (2, 45)]


def test_states_and_xid_counts_are_separate() -> None:
    page = f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 45\nup 1\n"
    for code in ("62", "45", "bad", ""):
        page += f'DCGM_EXP_XID_ERRORS_COUNT{{{LABELS},xid="{code}"}} 1\n'
    parsed = parse_metrics(page)
    assert not parsed.readings
    assert [(state.state, state.value) for state in parsed.states] == [
        ("xid", 45.0),
        ("xid 62", 1.0),
        ("xid 45", 1.0),
    ]


def test_exporter_pod_is_not_the_machine() -> None:
    page = f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 41\n"
    for pod in ("nvidia-dcgm-exporter-6ldbb", "8e21d3ebf589", "localhost"):
        assert parse_metrics(page.replace("node-1", pod)).readings[0].host is None
        other = page.replace('"node-1"', f'"{pod}",kubernetes_node="gn04",instance="10.2.3.9:9400"')
        assert parse_metrics(other).readings[0].host == "gn04"


def test_invalid_line_affects_no_other() -> None:
    page = f'DCGM_FI_DEV_GPU_TEMP{{gpu="3 41\nDCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 41\n'
    assert numbers(page) == {"temperature_gpu": 41.0}
    assert parse_metrics(page).unread.counts["a line that is not a sample"] == 1
    nameless = parse_metrics("DCGM_FI_DEV_GPU_TEMP 41\n").unread
    assert nameless.counts["a metric that names no GPU"] == 1


@given(st.text())
def test_any_text_is_read_or_counted_unread(text: str) -> None:
    readings = parse_metrics(text).readings
    assert all(math.isfinite(v) for reading in readings for v in reading.numbers.values())


@given(st.text(alphabet='DCGM_FIEV{}",=\n\\ 0123456789.eE+-guUI#', max_size=120))
def test_any_metrics_text_is_read_or_unread(text: str) -> None:
    page = f"DCGM_FI_DEV_GPU_TEMP{text}\nDCGM_FI_DEV_GPU_TEMP{{{LABELS}}} {text}\n"
    readings = parse_metrics(page).readings
    assert all(math.isfinite(v) for reading in readings for v in reading.numbers.values())
