"""Agreement of probes on a stall: necessary for a hang, and cheaper than a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.models.diagnosis.hang.hang_detection import detect_hang
from forewarn.models.diagnosis.probes.collective_probe import collective_probe
from forewarn.models.diagnosis.probes.kernel_probe import kernel_probe
from forewarn.models.diagnosis.probes.metrics_probe import metrics_probe
from forewarn.models.diagnosis.probes.stack_probe import stack_probe
from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.pipelines.diagnosis.loaded_job import LoadedJob
from forewarn.pipelines.diagnosis.parts.flight_part import FlightPart
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot
from forewarn.pipelines.diagnosis.parts.kernel_part import KernelPart
from forewarn.pipelines.diagnosis.parts.metrics_part import MetricsPart, metrics_until
from forewarn.pipelines.diagnosis.parts.stacks_part import StacksPart

__all__ = ["probes_agree"]


def probes_agree(reading: LoadedJob, at: int) -> bool:
    """Return whether two probes of a job agree on a stall, regardless of its explanation.

    Parameters
    ----------
    reading : LoadedJob
        Must contain a table of ranks.
    at : int
        Nanoseconds since 1970 UTC.
    """
    return detect_hang(list(_probes(reading, at)), at) is not None


def _probes(reading: LoadedJob, at: int) -> Iterator[Probe]:
    snapshot = JobSnapshot(reading.listed, at, reading.parts)
    for part in reading.parts.values():
        if isinstance(part, FlightPart):
            yield collective_probe(part.operations.until(at), at)
        elif isinstance(part, MetricsPart):
            yield metrics_probe(metrics_until(snapshot), len(snapshot.ranks.table), at)
        elif isinstance(part, StacksPart):
            samples = [sample for sample in part.samples if sample.time <= at]
            yield stack_probe(samples, len(snapshot.ranks.table), at)
        elif isinstance(part, KernelPart):
            if (blocked := kernel_probe(part.blocked(snapshot))) is not None:
                yield blocked
        elif (probe := part.judge(snapshot).probe) is not None:
            yield probe
