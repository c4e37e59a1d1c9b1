"""Metrics of 4 ranks over 5 minutes, one sample every 10 s."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.hang.blocked_ranks import (
    busy_without_completion,
    sleep_finding,
    sleeping_ranks,
    stopped_process_finding,
)
from forewarn.models.diagnosis.probes.kernel_probe import kernel_probe
from forewarn.models.diagnosis.probes.metrics_probe import idle_gpus, metrics_probe
from forewarn.models.diagnosis.slow.rank_deviation import PeerChannel, deviation_finding

AT = 300 * SECOND
RANKS = Ranks({n: Rank(n, f"node-{n // 2}", tp=0, pp=0, dp=n) for n in range(8)})


def job(moves_until: int, *, step: int = 10, **gauges: object) -> RankSamples:
    """Return 8 ranks whose counters grow until a given second; gauges are constant or per rank."""
    times = np.arange(0, 301, step)
    rank, time = np.repeat(np.arange(8), len(times)), np.tile(times, 8)
    given = {"gpu_utilization": 100.0, "sm_activity": 0.1} | gauges
    values = {
        name: np.repeat(np.broadcast_to(np.asarray(level, dtype=float), 8), len(times))
        for name, level in given.items()
    }
    values["rdma_tx_bytes"] = 1e9 * np.minimum(time, moves_until)
    return RankSamples.from_columns(rank, time * SECOND, values)


def test_three_minutes_without_traffic_is_idle() -> None:
    probe = metrics_probe(job(110), 8, AT)
    assert (probe.state, probe.since) == ("idle", 110 * SECOND)
    assert probe.confirmed_at == 290 * SECOND
    assert metrics_probe(job(130), 8, AT).state == "active"


@pytest.mark.parametrize("step", [5, 30, 60])
def test_sampling_interval_does_not_matter(step: int) -> None:
    assert metrics_probe(job(60, step=step), 8, AT).state == "idle"
    assert metrics_probe(job(300, step=step), 8, AT).state == "active"


def test_computing_or_resting_job_is_active() -> None:
    assert metrics_probe(job(60, sm_activity=0.8), 8, AT).state == "active"
    assert metrics_probe(job(60, sm_activity=80.0), 8, AT).state == "active"
    assert metrics_probe(job(60, gpu_utilization=0.0), 8, AT).state == "active"


def test_half_of_ranks_must_be_measured() -> None:
    samples = job(60)
    some = samples.rank < 3
    few = RankSamples(
        samples.rank[some], samples.time[some], {n: v[some] for n, v in samples.values.items()}
    )
    assert metrics_probe(few, 8, AT).state == "blind"
    assert metrics_probe(job(60, gpu_utilization=np.nan), 8, AT).state == "blind"


def test_counter_resets_and_missing_values() -> None:
    samples = job(60)
    counter = samples.values["rdma_tx_bytes"]
    counter[samples.time == 250 * SECOND] = np.nan
    assert metrics_probe(samples, 8, AT).state == "idle"
    counter[(samples.rank == 2) & (samples.time >= 200 * SECOND)] = 7e9
    assert metrics_probe(samples, 8, AT).state == "active"


def test_nvlink_counts_without_rdma() -> None:
    samples = job(0)
    samples = RankSamples(
        samples.rank, samples.time, {**samples.values, "nvlink_bytes": 1e9 * samples.time / SECOND}
    )
    probe = metrics_probe(samples, 8, AT)
    assert (probe.state, "NVLink" in probe.why) == ("active", True)


@pytest.mark.parametrize(
    ("idle", "expected"),
    [((3,), [(3, 0.5)]), ((2, 5), [(2, 0.25), (5, 0.25)]), ((1, 2, 5), None), ((), None)],
)
def test_one_or_two_idle_gpus_are_candidates(idle: tuple[int, ...], expected: object) -> None:
    utilization = np.full(8, 100.0)
    utilization[list(idle)] = 0.0
    finding = idle_gpus(job(60, gpu_utilization=utilization), RANKS, 0, AT)
    named = None if finding is None else [(c.rank, c.weight) for c in finding.candidates]
    assert named == expected


def test_idle_gpus_of_one_machine() -> None:
    ranks = Ranks({n: Rank(n, "a" if n < 3 else "b") for n in range(8)})
    utilization = np.array([0.0] * 3 + [100.0] * 5)
    finding = idle_gpus(job(60, gpu_utilization=utilization), ranks, 0, AT)
    assert finding is not None
    assert [(c.rank, c.machine, c.weight) for c in finding.candidates] == [(None, "a", 0.5)]


def kernel(asleep: dict[int, int], measured: bool = True) -> RankSamples:
    """Return 8 ranks, some in state D since a given second; intervals last 10 s."""
    times = np.arange(0, 301, 10)
    rank, time = np.repeat(np.arange(8), len(times)), np.tile(times, 8)
    since = np.array([asleep.get(n, 1000) for n in range(8)])[rank]
    seconds = np.clip(time - since, 0, 10).astype(float)
    in_d = (seconds > 0).astype(float)
    values = {"in_d": in_d, "d_seconds": seconds if measured else np.full(len(time), np.nan)}
    values["verbs_completions"] = np.zeros(len(time))
    values["syscalls"] = np.where(in_d > 0, 0.0, 50.0)
    return RankSamples.from_columns(rank, time * SECOND, values)


def test_state_d_over_five_seconds_is_moderate() -> None:
    assert sleeping_ranks(kernel({2: 100}), AT) == {2: (100 * SECOND, 200.0)}
    assert sleeping_ranks(kernel({2: 296}), AT) == {}
    assert sleeping_ranks(kernel({2: 290}, measured=False), AT) == {2: (290 * SECOND, 10.0)}
    finding = sleep_finding(kernel({2: 100}), RANKS, AT)
    assert finding is not None
    assert [(c.rank, c.weight) for c in finding.candidates] == [(2, 0.5)]


def test_state_d_for_two_minutes_is_permanent() -> None:
    sleeping = {"one": {2: 180}, "shorter": {2: 190}, "all": dict.fromkeys(range(8), 180)}
    findings = {name: sleep_finding(kernel(who), RANKS, AT) for name, who in sleeping.items()}
    assert {name for name, f in findings.items() if f is not None and f.is_permanent} == {"one"}


def test_repeated_calls_in_state_d_are_not_permanent() -> None:
    """Checkpoint writers do this; 30 s before the end a call of the writer returned."""
    asleep = kernel({2: 100})
    calls = asleep.values["syscalls"].copy()
    calls[(asleep.rank == 2) & (asleep.time == AT - 30 * SECOND)] = 1.0
    unknown = np.full(len(calls), np.nan)
    ends = {"none": asleep.values["syscalls"], "one": calls, "unknown": unknown}
    findings = {
        name: sleep_finding(
            replace(asleep, values={**asleep.values, "syscalls": values}), RANKS, AT
        )
        for name, values in ends.items()
    }
    assert {name for name, f in findings.items() if f is not None and f.is_permanent} == {"none"}


def test_both_ranks_of_machine_are_candidates() -> None:
    finding = sleep_finding(kernel({2: 100, 3: 100}), RANKS, AT)
    assert finding is not None
    assert {c.rank for c in finding.candidates} == {2, 3}


def test_many_sleeping_ranks_share_a_cause() -> None:
    finding = sleep_finding(kernel(dict.fromkeys(range(8), 100)), RANKS, AT)
    assert finding is not None
    assert finding.candidates == ()
    assert "shared storage or network" in finding.cause


def _stopped(samples: RankSamples) -> RankSamples:
    """Return the samples with state T instead of state D."""
    return replace(samples, values={"is_stopped": samples.values["in_d"]})


def test_stopped_process_is_moderate_evidence() -> None:
    samples = kernel({2: 100}, measured=False)
    assert stopped_process_finding(samples, RANKS, AT) is None
    finding = stopped_process_finding(_stopped(samples), RANKS, AT)
    assert finding is not None
    assert [(c.rank, c.weight, c.since) for c in finding.candidates] == [(2, 0.5, 100 * SECOND)]
    together = kernel(dict.fromkeys(range(8), 100), measured=False)
    suspended = stopped_process_finding(_stopped(together), RANKS, AT)
    assert suspended is not None
    assert (suspended.candidates, "suspended" in suspended.cause) == ((), True)


def test_busy_without_completion_in_state_d_is_strong() -> None:
    activity = np.array([0.1, 0.1, 0.97, 0.1, 0.1, 0.1, 0.1, 0.1])
    metrics = job(60, sm_activity=activity)
    awake, asleep = kernel({}), kernel({2: 100})
    for samples, weight in ((awake, 0.5), (asleep, 1.0)):
        finding = busy_without_completion(samples, metrics, RANKS, AT)
        assert finding is not None
        assert [(c.rank, c.weight) for c in finding.candidates] == [(2, weight)]
    awake.values["verbs_completions"][:] = 5.0
    assert busy_without_completion(awake, metrics, RANKS, AT) is None
    assert (
        busy_without_completion(asleep, job(60, sm_activity=0.9), RANKS, AT) is None
    )  # all ranks are busy


def channel(level: float, before: float, part: str = "runq_wait_ms") -> PeerChannel:
    """Return 8 ranks at about 10, with rank 5 at `level` in the last 3 of 15 minutes."""
    times = np.arange(0, 901, 10)
    rank, time = np.repeat(np.arange(8), len(times)), np.tile(times, 8)
    values = (10.0 + 0.1 * rank).astype(np.float64)
    odd = rank == 5
    values[odd] = np.where(time[odd] > 700, level, before)
    return PeerChannel(
        RankSamples.from_columns(rank, time * SECOND, {part: values}), part, "kernel", part
    )


def test_two_channels_agree_one_is_weak() -> None:
    at = 900 * SECOND
    alone = deviation_finding([channel(50.0, 10.0)], RANKS, at)
    assert alone is not None
    assert (alone.kind, [c.rank for c in alone.candidates]) == ("none", [5])
    both = deviation_finding([channel(50.0, 10.0), channel(90.0, 10.0, "syscalls")], RANKS, at)
    assert both is not None
    assert (both.kind, both.candidates[0].rank, both.candidates[0].weight) == ("slow", 5, 1.0)


def test_link_rates_are_one_channel_kind() -> None:
    at = 900 * SECOND
    traffic = deviation_finding(
        [channel(50.0, 10.0, "rate"), channel(90.0, 10.0, "rate")], RANKS, at
    )
    assert traffic is not None
    assert (traffic.kind, traffic.candidates[0].weight) == ("none", 0.25)
    many = channel(50.0, 10.0)
    copied = np.isin(many.samples.rank, (5, 6))
    many.samples.values["runq_wait_ms"][copied] = np.tile(
        many.samples.values["runq_wait_ms"][many.samples.rank == 5], 2
    )
    assert deviation_finding([many], RANKS, at) is None


@pytest.mark.parametrize(("level", "before"), [(50.0, 50.0), (15.0, 10.0), (10.0, 50.0)])
def test_baseline_or_peer_level_is_no_deviation(level: float, before: float) -> None:
    assert deviation_finding([channel(level, before)], RANKS, 900 * SECOND) is None


def test_stopped_process_without_further_samples() -> None:
    samples = _stopped(kernel({2: 100}, measured=False))
    later = AT + 600 * SECOND
    finding = stopped_process_finding(samples, RANKS, later)
    assert finding is not None
    assert (finding.kind, finding.is_permanent, finding.observed_at) == ("hang", True, AT)
    fresh = stopped_process_finding(samples, RANKS, AT)
    assert fresh is not None
    assert fresh.kind == "none"  # it also counts against a rank of a job that makes progress
    begun_again = (samples.rank != 2) | (samples.time < AT - 100 * SECOND)
    assert stopped_process_finding(samples._where(begun_again), RANKS, later) is None


def test_blocked_rank_makes_kernel_probe_idle() -> None:
    stopped = stopped_process_finding(_stopped(kernel({2: 100}, measured=False)), RANKS, AT)
    briefly = sleep_finding(kernel({5: 190}), RANKS, AT)
    assert stopped is not None
    assert briefly is not None
    probe = kernel_probe([briefly, stopped])
    assert probe is not None
    assert (probe.state, probe.since, probe.confirmed_at) == ("idle", 100 * SECOND, 220 * SECOND)
    assert kernel_probe([briefly]) is None  # the sleep may end
