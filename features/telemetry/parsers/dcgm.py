"""Metrics of dcgm-exporter: which record column each is, by its old and its new name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BLANK", "METRICS", "Metric", "metric_of"]

# Exporters write blank values as 0x7ffffffffffffff0 or 140737488355328.0; nothing real is as large.
BLANK = 2.0**46


@dataclass(frozen=True, slots=True)
class Metric:
    """One record column as DCGM measures it.

    Attributes
    ----------
    column : str
    names : tuple of tuple of str
        Names of each metric over the versions, the new one of DCGM 4.6 last; where a column takes
        several metrics they are added up.
    over : {"mean", "last", "change"}
        What an interval says: the mean of a gauge, the last value of a counter (it stays
        cumulative), or the value of a gauge that shows the last event, if it changed.
    """

    column: str
    names: tuple[tuple[str, ...], ...]
    over: Literal["mean", "last", "change"]


METRICS = (
    Metric("temperature_gpu", (("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),), "mean"),
    Metric("power_draw", (("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),), "mean"),
    Metric("utilization_gpu", (("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"),), "mean"),
    Metric("utilization_memory", (("DCGM_FI_DEV_MEM_COPY_UTIL",),), "mean"),
    Metric("memory_used", (("DCGM_FI_DEV_FB_USED",),), "mean"),
    Metric("clock_sm", (("DCGM_FI_DEV_SM_CLOCK",),), "mean"),
    Metric("ecc_corrected", (("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",),), "last"),
    Metric("ecc_uncorrected", (("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",),), "last"),
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
)

_COLUMN = {
    name: (metric.column, part)
    for metric in METRICS
    for part, names in enumerate(metric.names)
    for name in names
}


def metric_of(name: str) -> tuple[str, int] | None:
    """Return the record column of a metric and which part of it; None if it is none of ours.

    Examples
    --------
    >>> metric_of("DCGM_FI_DEV_GPU_TEMP_CELSIUS"), metric_of("up")
    (('temperature_gpu', 0), None)
    """
    return _COLUMN.get(name)
