"""Part `metrics/`: GPU and network metrics of the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.probes.metric_phases import work_phases
from forewarn.models.diagnosis.probes.metrics_probe import idle_gpus, metrics_probe
from forewarn.models.diagnosis.slow.rank_deviation import PeerChannel, deviation_finding
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.diagnosis.parts.rank_sample_tables import SampledPart, read_samples

__all__ = ["MetricsPart", "metrics_until", "read_metrics", "traffic_channels"]

_COUNTERS = ("rdma_tx_bytes", "rdma_rx_bytes", "nvlink_bytes")
_GAUGES = ("gpu_utilization", "sm_activity")


@dataclass(frozen=True, slots=True)
class MetricsPart(SampledPart):
    """Metrics of all ranks."""

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return whether bytes move, times of work, idle GPUs, and ranks with deviating traffic."""
        samples = metrics_until(snapshot)
        if not len(samples.rank):
            return PartResult(blind=("metrics: no sample before the verdict",))
        probe = metrics_probe(samples, len(snapshot.ranks.table), snapshot.at)
        findings = [idle_gpus(samples, snapshot.ranks, probe.since, snapshot.at)]
        if "kernel" not in snapshot.parts:
            findings.append(
                deviation_finding(traffic_channels(samples), snapshot.ranks, snapshot.at)
            )
        phases = work_phases(samples, len(snapshot.ranks.table))
        return PartResult(probe, tuple(f for f in findings if f is not None), tuple(phases))


def metrics_until(snapshot: JobSnapshot) -> RankSamples:
    """Return the metrics up to the time of a snapshot; empty if none were read."""
    part = snapshot.parts.get("metrics")
    if isinstance(part, MetricsPart):
        return part.samples.between(0, snapshot.at)
    none = np.zeros(0, np.int64)
    return RankSamples(none, none, {})


def traffic_channels(samples: RankSamples) -> list[PeerChannel]:
    """Return the NVLink and RDMA byte rates of each rank for comparison with its peers."""
    nvlink = samples.rates("nvlink_bytes")
    rdma = samples.rates("rdma_tx_bytes", "rdma_rx_bytes")
    return [
        PeerChannel(nvlink, "rate", "metrics", "NVLink traffic in bytes/s"),
        PeerChannel(rdma, "rate", "metrics", "RDMA traffic in bytes/s"),
    ]


def read_metrics(folder: JobFolder, _: Ranks) -> MetricsPart | None:
    """Read the metrics of a job, or return None if there is no sample.

    Raises
    ------
    JobFolderError, RecordsError
        If a table cannot be used.
    """
    path = folder.part("metrics")
    samples = None if path is None else read_samples(path, (*_COUNTERS, *_GAUGES))
    return None if samples is None or not len(samples.rank) else MetricsPart(samples)
