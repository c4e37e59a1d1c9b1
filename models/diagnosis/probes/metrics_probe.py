"""Metrics probe: whether bytes move between ranks, and which GPU is idle while the others spin."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    CulpritCandidate,
    Evidence,
    JobFinding,
)
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["idle_gpus", "inter_rank_traffic", "metrics_probe", "sm_percent"]

_IDLE_WINDOW = 180 * SECOND  # without a byte (FACTS: "for minutes")
_BACKGROUND_TRAFFIC_RATIO = 1e-3  # of the usual rate; keep-alive traffic is below it
_MIN_BUSY_UTILIZATION, _MAX_IDLE_UTILIZATION = 99.0, 5.0
_MAX_LOW_SM_PERCENT = 30.0  # a waiting collective uses a few SMs
_MAJORITY = 0.5  # of the ranks
_MIN_COVERAGE = 0.5
_MAX_IDLE_RANKS = 2  # Baidu 4.2


def inter_rank_traffic(samples: RankSamples) -> tuple[RankSamples, str]:
    """Return the byte rates between ranks and the name of the link: RDMA, or else NVLink.

    A job within one machine moves nothing by RDMA; NVLink counts in that case.
    """
    rdma = samples.rates("rdma_tx_bytes", "rdma_rx_bytes")
    nvlink = samples.rates("nvlink_bytes")
    if not rdma.values["rate"].any() and nvlink.values["rate"].any():
        return nvlink, "NVLink"
    return (rdma, "RDMA") if len(rdma.rank) or not len(nvlink.rank) else (nvlink, "NVLink")


def sm_percent(samples: RankSamples) -> RankSamples:
    """Return the samples with SM activity in percent; some exporters report it as a fraction."""
    column = samples.values.get("sm_activity")
    if column is None or not np.isfinite(column).any() or np.nanmax(column) > 1.0:
        return samples
    values = {**samples.values, "sm_activity": column * 100.0}
    return RankSamples(samples.rank, samples.time, values)


def metrics_probe(samples: RankSamples, n_ranks: int, at: int) -> Probe:
    """Return whether no byte has moved for 3 minutes while most GPUs are busy but not their SMs.

    Parameters
    ----------
    samples : RankSamples
        Not after `at`.
    n_ranks : int
        Number of ranks of the job.
    at : int
        Nanoseconds since 1970 UTC.
    """
    rates, link = inter_rank_traffic(samples)
    recent = samples.between(at - _IDLE_WINDOW, at)
    utilization = recent.medians("gpu_utilization")
    measured = np.unique(rates.rank[rates.time >= at - _IDLE_WINDOW])
    if len(measured) < _MIN_COVERAGE * n_ranks or len(utilization) < _MIN_COVERAGE * n_ranks:
        why = (
            f"the last 3 minutes have traffic and utilization of only {len(measured)} of {n_ranks}"
        )
        return Probe("metrics", "blind", None, f"{why} ranks")
    moved = _last_moved(rates)
    since = int(samples.time.min()) if moved is None else moved
    if at - since < _IDLE_WINDOW:
        return Probe("metrics", "active", None, f"last {link} traffic {_seconds(at - since)} s ago")
    busy = np.mean([value >= _MIN_BUSY_UTILIZATION for value in utilization.values()])
    activity = sm_percent(samples).between(at - _IDLE_WINDOW, at).medians("sm_activity")
    low = np.mean([value < _MAX_LOW_SM_PERCENT for value in activity.values()]) if activity else 1.0
    still = f"no {link} traffic for {_seconds(at - since)} s"
    spin = f"{busy:.0%} of the GPUs are at 100 %"
    if busy <= _MAJORITY:
        return Probe("metrics", "active", None, f"{still}, but only {spin}")
    if low <= _MAJORITY:
        return Probe(
            "metrics", "active", None, f"{still}, but SMs are busy on {1 - low:.0%} of them"
        )
    sm = "with low SM activity" if activity else "SM activity unknown"
    return Probe(
        "metrics",
        "idle",
        since,
        f"{still}; {spin}, {sm}",
        confirmed_at=since + _IDLE_WINDOW,
        is_late=moved is None,
    )


def _seconds(span: int) -> int:
    return round(span / SECOND)


def _last_moved(rates: RankSamples) -> int | None:
    """Return when any rank last moved more than keep-alive traffic."""
    rate = rates.values["rate"]
    moving = rate[rate > 0]
    if not len(moving):
        return None
    times = rates.time[rate > _BACKGROUND_TRAFFIC_RATIO * np.quantile(moving, 0.9)]
    return int(times.max())


def idle_gpus(samples: RankSamples, ranks: Ranks, since: int | None, at: int) -> JobFinding | None:
    """Return the one or two ranks whose GPU is idle while the GPUs of most others spin.

    Parameters
    ----------
    samples : RankSamples
        Not after `at`.
    ranks : Ranks
        Provides machines: more than two idle ranks on one machine make the machine a candidate.
    since : int or None
        Last progress of the job.
    at : int
        Nanoseconds since 1970 UTC.
    """
    utilization = samples.between(at - _IDLE_WINDOW, at).medians("gpu_utilization")
    idle = sorted(rank for rank, value in utilization.items() if value <= _MAX_IDLE_UTILIZATION)
    busy = sum(value >= _MIN_BUSY_UTILIZATION for value in utilization.values())
    if not idle or busy <= _MAJORITY * len(utilization):
        return None
    why = "its GPU is at 0 % while the others are at 100 %"
    machines = {ranks.machine(rank) for rank in idle}
    candidates: tuple[CulpritCandidate, ...] = ()
    if len(idle) <= _MAX_IDLE_RANKS:
        candidates = tuple(
            CulpritCandidate(rank, why, MODERATE / len(idle), since) for rank in idle
        )
    elif len(machines) == 1 and None not in machines:
        candidates = (
            CulpritCandidate(
                None, why.replace("its", "each", 1), MODERATE, since, machine=machines.pop()
            ),
        )
    if not candidates:
        return None
    return JobFinding("hang", "", candidates, evidence=_evidence(idle, utilization, since))


def _evidence(
    idle: list[int], utilization: Mapping[int, float], since: int | None
) -> tuple[Evidence, ...]:
    others = float(np.median([value for rank, value in utilization.items() if rank not in idle]))
    return tuple(
        Evidence(
            "metrics",
            f"GPU utilization of rank {rank} is {utilization[rank]:.0f} %, the median of the "
            f"others is {others:.0f} %",
            rank,
            since,
            {"gpu_utilization": utilization[rank], "others": others},
        )
        for rank in idle[:8]
    )
