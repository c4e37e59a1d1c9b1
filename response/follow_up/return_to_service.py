"""Return to service after an external drain, which makes earlier findings obsolete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from forewarn.features.time_units import Nanoseconds
from forewarn.response.follow_up.external_drain import SCHEDULER_SOURCE
from forewarn.response.follow_up.outcome_assessment import ServiceSpan
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.machine import ServiceState

__all__ = ["is_external_drain", "returned_to_service_at"]

_DRAIN_STATES = frozenset({ServiceState.DRAINING.value, ServiceState.DRAINED.value})


def is_external_drain(finding: Finding) -> bool:
    """Tell whether a finding is an external drain; a machine that went down is none.

    Only the scheduler's own report counts: a reported drain could otherwise hide earlier findings.
    """
    is_read = (finding.source, finding.kind) == (SCHEDULER_SOURCE, FindingKind.EXTERNAL_DRAIN)
    return is_read and str(finding.evidence.get("state")) in _DRAIN_STATES


def returned_to_service_at(
    drains: Iterable[Finding], service: Sequence[ServiceSpan]
) -> Nanoseconds | None:
    """Return when a machine returned from its last external drain; None if no such drain is over.

    Somebody inspected the machine meanwhile: findings from before its return need fresh evidence.

    Parameters
    ----------
    drains : iterable of Finding
        External drains of the machine.
    service : sequence of ServiceSpan
        Observed states of the machine, oldest first.
    """
    returns = [
        after.start
        for before, after in pairwise(service)
        if after.in_service and not before.in_service
    ]
    ends = [
        min((moment for moment in returns if moment > drain.at), default=None) for drain in drains
    ]
    return max((end for end in ends if end is not None), default=None)
