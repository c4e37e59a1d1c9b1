"""Which series of exporters hold a machine metric, in which unit, and how they become one value.

Names: node_exporter (collectors `cpu`, `netdev`, `diskstats`, `infiniband`, `ethtool`), the ethtool
exporter of Showmax, dcgm-exporter, nvidia_gpu_exporter. Pause counters by driver: mlx5
`tx_prioN_pause`, bnxt_en `tx_pfc_ena_frames_priN`, ice `tx_priority_N_xoff`,
hns3 `tx_pfc_priN_pkt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from forewarn.features.array_types import Float64Array

__all__ = ["METRIC_SERIES", "ExporterSeries", "combine_samples", "counter_rates"]

_GIGABITS = 8e-9  # of a byte
# A bond, a VLAN or a bridge repeats the traffic of the ports below it.
_PORTS = (
    'device!~"lo|(bond|team|vlan|veth|docker|br|virbr|cali|cni|flannel|tunl|lxc|tap|dummy|kube).*|'
    '.+[.][0-9]+"'
)


@dataclass(frozen=True, slots=True)
class ExporterSeries:
    """Series of an exporter that hold a machine metric.

    Attributes
    ----------
    names : str
        Regular expression of the whole name.
    factor, offset : float
        The metric is `offset + factor x` value; for a counter its increase per second.
    counter : bool
    combine : {"mean", "sum", "max"}
        How the series of one machine become one value. Packets and bytes are summed over ports and
        priorities, since a job uses all of them; shares and GPU values are averaged.
    labels : str
        Further label matchers.
    """

    names: str
    factor: float = 1.0
    offset: float = 0.0
    counter: bool = False
    combine: Literal["mean", "sum", "max"] = "mean"
    labels: str = ""

    def selector(self, more: str = "") -> str:
        """Return the PromQL selector, with further matchers of the site.

        Examples
        --------
        >>> ExporterSeries("DCGM_FI_DEV_GPU_UTIL").selector('job="gpu"')
        '{__name__=~"DCGM_FI_DEV_GPU_UTIL",job="gpu"}'
        """
        parts = (f'__name__=~"{self.names}"', self.labels, more)
        return f"{{{','.join(part for part in parts if part)}}}"


def _counted(names: str, factor: float = 1.0, labels: str = "") -> ExporterSeries:
    return ExporterSeries(names, factor, counter=True, combine="sum", labels=labels)


def _pause(way: Literal["tx", "rx"]) -> tuple[ExporterSeries, ...]:
    """Return the counters of priority flow control, then of pause frames of a whole link."""
    side = {"tx": "tx|transmitted", "rx": "rx|received"}[way]
    per_priority = (
        "prio[0-7]_pause|pfc_ena_frames_pri[0-7]|pfc_pri[0-7]_pkt|priority_[0-7]_xoff(_nic)?"
    )
    return (
        _counted(f"(.+_)?({side})_({per_priority})(_total)?"),
        _counted("node_net_ethtool", labels=f'type=~"{way}_({per_priority})"'),
        _counted(f"(.+_)?({side})_(pause_ctrl_phy|pfc_frames)(_total)?"),
        _counted("node_net_ethtool", labels=f'type=~"{way}_(pause_ctrl_phy|pfc_frames)"'),
    )


def _hardware_counter(name: str) -> tuple[ExporterSeries, ...]:
    return (_counted(f"(.+_)?{name}(_total)?"),)


METRIC_SERIES: dict[str, tuple[ExporterSeries, ...]] = {
    "pfc_tx_packet_rate": _pause("tx"),
    "pfc_rx_packet_rate": _pause("rx"),
    "cnp_sent_rate": _hardware_counter("np_cnp_(packets_)?sent"),
    "cnp_handled_rate": _hardware_counter("rp_cnp_(packets_)?handled"),
    "ecn_marked_rate": _hardware_counter("np_ecn_marked_roce_packets"),
    "rdma_throughput": (
        # node_exporter multiplies the 4-byte words of the port by four.
        _counted("node_infiniband_port_data_transmitted_bytes_total", _GIGABITS),
    ),
    "tcp_throughput": (_counted("node_network_transmit_bytes_total", _GIGABITS, _PORTS),),
    "disk_write": (_counted("node_disk_written_bytes_total", 1e-6, 'device!~"(dm|loop|md).*"'),),
    "cpu_usage": (
        ExporterSeries("node_cpu_seconds_total", -100.0, 100.0, counter=True, labels='mode="idle"'),
    ),
    "gpu_duty_cycle": (
        ExporterSeries("DCGM_FI_DEV_GPU_UTIL"),
        ExporterSeries("nvidia_smi_utilization_gpu_ratio", 100.0),
    ),
    "power_draw": (
        ExporterSeries("DCGM_FI_DEV_POWER_USAGE"),
        ExporterSeries("nvidia_smi_power_draw_watts"),
    ),
    "graphics_engine_activity": (ExporterSeries("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100.0),),
    "tensor_core_activity": (ExporterSeries("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100.0),),
    # Bytes per second; the mean over both directions and all GPUs, twice.
    "nvlink_bandwidth": (ExporterSeries("DCGM_FI_PROF_NVLINK_[TR]X_BYTES", 2e-9),),
    "gpu_temperature": (ExporterSeries("DCGM_FI_DEV_GPU_TEMP"),),
    "gpu_memory_used": (ExporterSeries("DCGM_FI_DEV_FB_USED"),),
}


def counter_rates(times: Float64Array, values: Float64Array) -> Float64Array:
    """Return the increase of a counter per second since the sample before.

    NaN for the first sample, and where the counter fell: after a reset, or a 32-bit counter that
    started again, the true increase is unknown.

    Parameters
    ----------
    times : ndarray of shape (n_samples,)
        Seconds, rising.
    values : ndarray of shape (n_samples,)

    Examples
    --------
    >>> counter_rates(np.array([0.0, 15.0, 30.0]), np.array([10.0, 40.0, 5.0])).tolist()
    [nan, 2.0, nan]
    """
    rates = np.full(len(values), np.nan)
    rise, lasted = np.diff(values), np.diff(times)
    valid = (rise >= 0) & (lasted > 0)
    rates[1:][valid] = rise[valid] / lasted[valid]
    return rates


def combine_samples(
    source: ExporterSeries, parts: Iterable[tuple[Sequence[float], Float64Array]]
) -> tuple[Float64Array, Float64Array]:
    """Combine the series of one machine, sample by sample, and convert the unit.

    A time at which a series is unknown (NaN) is dropped, since a sum without it would be a fall
    that did not happen. A series that has ended no longer counts: its port is gone.

    Parameters
    ----------
    source : ExporterSeries
    parts : iterable of (times in seconds, values)

    Returns
    -------
    ndarray, ndarray
        Times and values.

    Examples
    --------
    >>> ports = [([0.0, 15.0], np.array([1.0, 3.0])), ([0.0, 15.0], np.array([2.0, np.nan]))]
    >>> combine_samples(ExporterSeries("packets", combine="sum"), ports)
    (array([0.]), array([3.]))
    """
    series = list(parts)
    times = np.concatenate([np.asarray(time, dtype=np.float64) for time, _ in series])
    values = np.concatenate([value for _, value in series])
    distinct, position = np.unique(times, return_inverse=True)
    if source.combine == "max":
        combined = np.full(len(distinct), -np.inf)
        np.maximum.at(combined, position, values)
    else:
        combined = np.bincount(position, weights=values, minlength=len(distinct))
        if source.combine == "mean":
            combined = combined / np.bincount(position, minlength=len(distinct))
    known = np.isfinite(combined)
    return distinct[known], source.offset + source.factor * combined[known]
