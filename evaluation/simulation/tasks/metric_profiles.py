"""Profiles of the metrics of a simulated machine: levels, noise, and families."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["METRIC_PROFILES", "MetricProfile"]


@dataclass(frozen=True, slots=True)
class MetricProfile:
    """Behaviour of a metric of a healthy machine.

    Attributes
    ----------
    name : str
    family : str
        Family of metrics in which a fault shows together.
    busy, idle, saving : (float, float)
        Range of the task's level while it computes, between two steps, and during a checkpoint.
    noise : float
        Deviation of a machine from second to second, as a share of `busy`.
    lasting : float
        Deviation of a machine's own level, as a share.
    top : float
        Upper bound of the values.
    inertia : float
        Autocorrelation of the noise between adjacent seconds.
    """

    name: str
    family: str
    busy: tuple[float, float]
    idle: tuple[float, float]
    saving: tuple[float, float]
    noise: float
    lasting: float
    top: float
    inertia: float = 0.5


METRIC_PROFILES = (
    MetricProfile(
        "pfc_tx_packet_rate", "pfc", (2.0, 60.0), (0.0, 5.0), (0.0, 5.0), 0.8, 0.3, 2e5, 0.3
    ),
    MetricProfile("cpu_usage", "cpu", (18.0, 45.0), (10.0, 30.0), (30.0, 60.0), 0.05, 0.05, 100.0),
    MetricProfile(
        "gpu_duty_cycle", "gpu", (85.0, 99.0), (30.0, 80.0), (0.0, 5.0), 0.03, 0.01, 100.0
    ),
    MetricProfile(
        "power_draw", "gpu", (420.0, 650.0), (200.0, 400.0), (90.0, 140.0), 0.03, 0.03, 1000.0
    ),
    MetricProfile(
        "graphics_engine_activity", "gpu", (75.0, 97.0), (25.0, 70.0), (0.0, 5.0), 0.04, 0.02, 100.0
    ),
    MetricProfile(
        "tensor_core_activity", "gpu", (30.0, 60.0), (5.0, 25.0), (0.0, 1.0), 0.05, 0.02, 100.0
    ),
    MetricProfile(
        "nvlink_bandwidth", "link", (120.0, 420.0), (20.0, 200.0), (0.0, 2.0), 0.08, 0.03, 900.0
    ),
    MetricProfile(
        "rdma_throughput", "net", (40.0, 180.0), (10.0, 80.0), (0.0, 10.0), 0.1, 0.03, 400.0
    ),
    MetricProfile(
        "memory_usage", "memory", (35.0, 70.0), (35.0, 70.0), (40.0, 75.0), 0.004, 0.04, 100.0, 0.95
    ),
    MetricProfile(
        "gpu_temperature", "heat", (55.0, 70.0), (50.0, 65.0), (40.0, 50.0), 0.01, 0.06, 100.0, 0.95
    ),
    MetricProfile(
        "disk_write", "disk", (0.5, 5.0), (0.5, 5.0), (200.0, 900.0), 0.9, 0.3, 4000.0, 0.2
    ),
)
