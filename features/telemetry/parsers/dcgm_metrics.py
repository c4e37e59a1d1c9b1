"""Metrics of dcgm-exporter and npu-exporter: their record columns and names over versions.

The names of npu-exporter come last, since no GPU has metrics of both. It writes memory in MB of
1024 * 1024 bytes, and a missing value not at all (`collector/metrics` of Ascend/mind-cluster).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "BLANK_THRESHOLD",
    "FAULT_CODE",
    "FAULT_CODE_METRICS",
    "HARDWARE_THROTTLE",
    "METRICS",
    "NPU_HEALTH_METRIC",
    "XID_COUNT_METRIC",
    "Metric",
    "field_names",
    "metric_of",
    "throttled_by_hardware",
]

# Exporters write blank values as 0x7ffffffffffffff0 or 140737488355328.0; real values are smaller.
BLANK_THRESHOLD = 2.0**46
# Number of Xids in the last five minutes, one series per code (label `xid`).
XID_COUNT_METRIC = "DCGM_EXP_XID_ERRORS_COUNT"
# 1 for a NPU without faults; the series of its fault codes do not exist then.
NPU_HEALTH_METRIC = "npu_chip_info_health_status"
FAULT_CODE = "fault_code"
# The first fault code of a NPU; the next ones have a number at the end.
_FAULT_CODE_METRIC = "npu_chip_info_error_code"
FAULT_CODE_METRICS = rf"{_FAULT_CODE_METRIC}(?:_[1-9])?"
_NEXT_FAULT_CODE = re.compile(rf"{_FAULT_CODE_METRIC}_\d{{1,3}}")
# Bits of the throttle reasons: hardware slowdown, thermal slowdown, slowdown by the power supply.
# Smaller values have none of them.
_HARDWARE_REASONS = (0x8, 0x40, 0x80)
HARDWARE_THROTTLE = min(_HARDWARE_REASONS)


@dataclass(frozen=True, slots=True)
class Metric:
    """The DCGM metrics of one record column.

    Attributes
    ----------
    column : str
    names : tuple of tuple of str
        Names of each metric over the versions, the new name of DCGM 4.6 last; the first name that a
        GPU has is used. Several metrics of a column are summed.
    over : {"mean", "last", "max", "share", "change"}
        Aggregation over an interval: the mean of a gauge, the last value of a cumulative counter,
        the largest value of a state, the share of samples that hardware throttled, or the new
        values of a gauge that shows the last event.
    scale : float
        Factor from the unit of DCGM to that of the column.
    needs_all : bool
        The sum is unknown if one of several metrics is missing.
    sum_of_instances : bool
        A GPU split by MIG has the sum of its instances. Instances report other metrics for the
        whole GPU, or as their share.
    """

    column: str
    names: tuple[tuple[str, ...], ...]
    over: Literal["mean", "last", "max", "share", "change"]
    scale: float = 1.0
    needs_all: bool = True
    sum_of_instances: bool = False


METRICS = (
    Metric(
        "temperature_gpu",
        (
            (
                *("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
                "npu_chip_info_temperature",
            ),
        ),
        "mean",
    ),
    Metric(
        "power_draw",
        (
            (
                *("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
                "npu_chip_info_power",
            ),
        ),
        "mean",
    ),
    Metric(
        "utilization_gpu",
        (
            (
                *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
                "npu_chip_info_utilization",
            ),
        ),
        "mean",
    ),
    Metric(
        "utilization_memory",
        (("DCGM_FI_DEV_MEM_COPY_UTIL", "npu_chip_info_hbm_bandwidth_utilization"),),
        "mean",
    ),
    Metric(
        "memory_used",
        (("DCGM_FI_DEV_FB_USED", "npu_chip_info_hbm_used_memory", "npu_chip_info_used_memory"),),
        "mean",
        sum_of_instances=True,
    ),
    Metric("clock_sm", (("DCGM_FI_DEV_SM_CLOCK", "npu_chip_info_aicore_current_freq"),), "mean"),
    Metric(
        "ecc_corrected",
        (("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "npu_chip_info_hbm_ecc_total_single_bit_error_cnt"),),
        "last",
    ),
    Metric(
        "ecc_uncorrected",
        (("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "npu_chip_info_hbm_ecc_total_double_bit_error_cnt"),),
        "last",
    ),
    Metric(
        "rows_remapped",
        (
            (
                "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
                "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
            ),
            (
                "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
                "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
            ),
        ),
        "last",
    ),
    Metric(
        "pcie_replays",
        (("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"),),
        "last",
    ),
    Metric("pcie_link_width", (("DCGM_FI_DEV_PCIE_LINK_WIDTH",),), "last"),
    Metric("xid", (("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"),), "change"),
    Metric(  # mJ
        "energy_consumption", (("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",),), "last", scale=1e-3
    ),
    Metric(
        "row_remap_failure",
        (("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"),),
        "max",
    ),
    Metric(
        "recovery_action",
        (("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_GPU_RECOVERY_ACTION"),),
        "max",
    ),
    Metric(
        "throttle_hardware",
        (("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),),
        "share",
    ),
    Metric(
        "nvlink_errors",
        tuple(
            (
                f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL",
                f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_TOTAL",
            )
            for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
        ),
        "last",
        needs_all=False,
    ),
    Metric(
        "sm_active",
        (
            (
                *("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
                *("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
            ),
        ),
        "mean",
    ),
    Metric(
        "tensor_active",
        (("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),),
        "mean",
    ),
    Metric("dram_active", (("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),), "mean"),
    Metric(FAULT_CODE, ((_FAULT_CODE_METRIC,),), "change"),
)

_METRIC_OF_NAME = {
    name: (metric, part, rank)
    for metric in METRICS
    for part, names in enumerate(metric.names)
    for rank, name in enumerate(names)
}


def metric_of(name: str) -> tuple[Metric, int, int] | None:
    """Return the metric of a name, its part and the rank of the name; None if unknown.

    Examples
    --------
    >>> metric, part, rank = metric_of("DCGM_FI_DEV_GPU_TEMP_CELSIUS")
    >>> metric.column, part, rank, metric_of("up")
    ('temperature_gpu', 0, 1, None)
    """
    if _NEXT_FAULT_CODE.fullmatch(name):
        name = _FAULT_CODE_METRIC
    return _METRIC_OF_NAME.get(name)


def field_names(column: str) -> tuple[str, ...]:
    """Return the DCGM fields to export for a record column; empty if DCGM does not have it.

    The names are those before DCGM 4.6.

    Examples
    --------
    >>> field_names("clock_sm"), field_names("rack")
    (('DCGM_FI_DEV_SM_CLOCK',), ())
    """
    metrics = (metric for metric in METRICS if metric.column == column)
    return tuple(names[0] for metric in metrics for names in metric.names)


def throttled_by_hardware(reasons: float) -> bool:
    """Tell whether the bit mask of throttle reasons has a hardware reason.

    Examples
    --------
    >>> throttled_by_hardware(0x4), throttled_by_hardware(0x44)
    (False, True)
    """
    return any(int(reasons) & bit for bit in _HARDWARE_REASONS)
