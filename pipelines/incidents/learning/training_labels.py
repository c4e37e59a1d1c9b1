"""Training labels from incidents and outages, as failures and out-of-service spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import select

from forewarn.features.records.failures import NEVER
from forewarn.features.records.out_of_service import OutOfServiceSpan, merge_spans
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.learning.gpu_locations import GpuLocations
from forewarn.pipelines.incidents.learning.out_of_service_spans import read_absences
from forewarn.pipelines.incidents.ledger.finding_rows import read_findings
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import findings
from forewarn.pipelines.incidents.schedulers.slurm.slurm_history import (
    DrainFailure,
    NodeOutage,
    find_failures,
)
from forewarn.pipelines.incidents.sources.past_failures import merge_failures
from forewarn.response.follow_up.external_drain import SCHEDULER_SOURCE, match_failure_pattern
from forewarn.response.replay.fleet_history import PastFailure

__all__ = ["SerialResolver", "TrainingLabels", "labels_from_ledger", "labels_from_outages"]

_MAX_CAUSE_LENGTH = 200  # characters
_RESOLVE_RETRY_SPAN = 2 * DAY  # the records of a failure may arrive until then


@dataclass(frozen=True, slots=True)
class TrainingLabels:
    """Failures and out-of-service spans for retraining.

    Attributes
    ----------
    failures : list of PastFailure
        Failures of known GPUs.
    absences : list of OutOfServiceSpan
        Spans in which the absence of a failure does not prove health.
    without_gpu : list of DrainFailure
        Failures of an unknown GPU of a machine. No GPU is labelled as failed, because most of the
        machine's GPUs are healthy; all of them have unknown labels while the machine was out of
        service.
    """

    failures: list[PastFailure] = field(default_factory=list)
    absences: list[OutOfServiceSpan] = field(default_factory=list)
    without_gpu: list[DrainFailure] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SerialResolver:
    """Resolver of the GPU that failed.

    Attributes
    ----------
    locations : GpuLocations
    now : int
        Nanoseconds since 1970 UTC.
    known : mapping of (str, int) to str, or None
        Serials of failures resolved before, by machine and time. Unresolved failures are retried
        for two days. None if none was tried yet.
    """

    locations: GpuLocations
    now: Nanoseconds
    known: Mapping[tuple[str, int], str] | None = None

    def serial(
        self, machine: str, at: Nanoseconds, slot: int | None = None, pci: str = ""
    ) -> str | None:
        """Return the serial of a GPU that failed at a time, or None if it is unknown."""
        if self.known is not None:
            serial = self.known.get((machine, at))
            if serial is not None or at < self.now - _RESOLVE_RETRY_SPAN:
                return serial
        return self.locations.serial(machine, at, slot=slot, pci=pci)


def labels_from_ledger(
    ledger: Ledger, patterns: Sequence[str], resolver: SerialResolver
) -> TrainingLabels:
    """Return the training labels from the outcomes, actions and external drains of a ledger.

    Parameters
    ----------
    ledger : Ledger
    patterns : sequence of str
        Reasons of external drains that indicate a failure.
    resolver : SerialResolver
    """
    absences = read_absences(ledger)
    away: dict[str, list[OutOfServiceSpan]] = defaultdict(list)
    for absence in absences:
        away[absence.machine].append(absence)
    labels = _label_outages(_external_drains(ledger, away), patterns, resolver)
    for item in ledger.confirmed_failures():
        back = _returned_at(away[item.machine], item.failed_at, item.known_at)
        serial = item.gpu_serial or resolver.serial(item.machine, item.failed_at)
        if serial is None:
            absences.append(OutOfServiceSpan(item.machine, None, item.failed_at, back))
        else:
            repaired = None if back == NEVER else back
            times = (item.failed_at, item.known_at, repaired)
            labels.failures.append(PastFailure(item.machine, serial, *times, _cause(item.why)))
    failures = merge_failures(labels.failures)
    return replace(labels, failures=failures, absences=merge_spans(absences))


def labels_from_outages(
    outages: Iterable[NodeOutage], patterns: Sequence[str], resolver: SerialResolver
) -> TrainingLabels:
    """Return the training labels from outages in a scheduler's history.

    An outage that has not ended counts until now; the response loop observes its end.
    """
    ended = [outage if outage.end else replace(outage, end=resolver.now) for outage in outages]
    labels = _label_outages(ended, patterns, resolver)
    spans = [OutOfServiceSpan(o.machine, None, o.begin, o.end or resolver.now) for o in ended]
    failures = merge_failures(labels.failures)
    return replace(labels, failures=failures, absences=merge_spans(spans))


def _label_outages(
    outages: Iterable[NodeOutage], patterns: Sequence[str], resolver: SerialResolver
) -> TrainingLabels:
    """Return the failures that the reasons of outages indicate."""

    def cause_of(reason: str) -> str | None:
        return None if match_failure_pattern(reason, patterns) is None else _cause(reason)

    labels = TrainingLabels()
    for drain in find_failures(outages, cause_of):
        serial = resolver.serial(drain.machine, drain.failed_at, drain.gpu, drain.pci)
        if serial is None:
            labels.without_gpu.append(drain)
        else:
            times = (drain.failed_at, drain.known_at, drain.repaired_at)
            labels.failures.append(PastFailure(drain.machine, serial, *times, drain.cause))
    return labels


def _external_drains(
    ledger: Ledger, away: Mapping[str, Sequence[OutOfServiceSpan]]
) -> Iterator[NodeOutage]:
    """Yield the external drains, each once although a long one is reported every day."""
    query = select(findings).where(findings.c.source == SCHEDULER_SOURCE).order_by(findings.c.id)
    with ledger.database.reading() as connection:
        rows = connection.execute(query).all()
        drains = [drain for _, drain in read_findings(connection, rows)]
    evidence_of = {(drain.machine, drain.at): drain.evidence for drain in drains}
    for (machine, at), evidence in evidence_of.items():
        back = _returned_at(away.get(machine, []), at, at)
        end = None if back == NEVER else back
        words = (str(evidence.get("reason", "")),)
        yield NodeOutage(machine, at, end, words, str(evidence.get("by", "")))


def _returned_at(
    away: Sequence[OutOfServiceSpan], failed: Nanoseconds, known: Nanoseconds
) -> Nanoseconds:
    """Return when a machine was returned to service after a failure.

    If it was never out of service, the time at which the failure became known counts.
    """
    for absence in away:
        if absence.end > failed and absence.start <= known:
            return absence.end
    return max(failed, known)


def _cause(words: str) -> str:
    return " ".join(words.split())[:_MAX_CAUSE_LENGTH]
