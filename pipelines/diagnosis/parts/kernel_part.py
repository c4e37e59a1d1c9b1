"""Part `kernel/`: samples of the ranks' processes from the kernel or eBPF tools."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.hang.blocked_ranks import (
    busy_without_completion,
    sleep_finding,
    stopped_process_finding,
)
from forewarn.models.diagnosis.probes.kernel_probe import kernel_probe
from forewarn.models.diagnosis.slow.rank_deviation import PeerChannel, deviation_finding
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.diagnosis.parts.metrics_part import metrics_until, traffic_channels
from forewarn.pipelines.diagnosis.parts.rank_sample_tables import SampledPart, read_samples

__all__ = ["KernelPart", "read_kernel"]

_NUMBERS = ("d_seconds", "runq_wait_ms", "syscalls", "cuda_call_ms", "verbs_completions")

# Quantities that are similar among peers, with the smallest relevant difference.
_PEER_CHANNELS = {
    "runq_wait_ms": ("run-queue wait in ms", 10.0),
    "syscalls": ("system calls per interval", 100.0),
    "cuda_call_ms": ("time in CUDA calls in ms", 10.0),
}


@dataclass(frozen=True, slots=True)
class KernelPart(SampledPart):
    """Samples of the processes of all ranks."""

    def blocked(self, snapshot: JobSnapshot) -> tuple[JobFinding, ...]:
        """Return the ranks in uninterruptible sleep or stopped."""
        samples = self.samples.between(0, snapshot.at)
        findings = (
            sleep_finding(samples, snapshot.ranks, snapshot.at),
            stopped_process_finding(samples, snapshot.ranks, snapshot.at),
        )
        return tuple(finding for finding in findings if finding is not None)

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return ranks that are asleep, stopped, busy without completions, or deviating."""
        samples, metrics = self.samples.between(0, snapshot.at), metrics_until(snapshot)
        if not len(samples.rank):
            return PartResult(blind=("kernel: no sample before the verdict",))
        channels = [
            PeerChannel(samples, name, "kernel", says, least)
            for name, (says, least) in _PEER_CHANNELS.items()
        ]
        blocked = self.blocked(snapshot)
        findings = (
            *blocked,
            busy_without_completion(samples, metrics, snapshot.ranks, snapshot.at),
            deviation_finding([*channels, *traffic_channels(metrics)], snapshot.ranks, snapshot.at),
        )
        seen = tuple(finding for finding in findings if finding is not None)
        return PartResult(kernel_probe(blocked), seen)


def read_kernel(folder: JobFolder, _: Ranks) -> KernelPart | None:
    """Read the kernel samples of a job, or return None if there are none.

    Raises
    ------
    JobFolderError, RecordsError
        If a table cannot be used.
    """
    path = folder.part("kernel")
    samples = None if path is None else read_samples(path, _NUMBERS, state="state")
    return None if samples is None or not len(samples.rank) else KernelPart(samples)
