"""Given back: a machine that others had out of service, and whatever was known of it before."""

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
    """Tell whether somebody else drained a machine; one that went down did so by itself.

    The scheduler alone knows that: a drain that somebody reports would hide what was known before.
    """
    is_read = (finding.source, finding.kind) == (SCHEDULER_SOURCE, FindingKind.EXTERNAL_DRAIN)
    return is_read and str(finding.evidence.get("state")) in _DRAIN_STATES


def returned_to_service_at(
    drains: Iterable[Finding], service: Sequence[ServiceSpan]
) -> Nanoseconds | None:
    """Return when a machine came back from the last drain by somebody else; None if none is over.

    Whoever drained it has looked at it: what was known before its return needs fresh evidence.

    Parameters
    ----------
    drains : iterable of Finding
        Those of the machine that somebody else made.
    service : sequence of Service
        How the machine was seen, oldest first.
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
