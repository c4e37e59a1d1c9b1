"""Health of forewarn itself, from the ledger and the configuration."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.sources.finding_sources import GatheredFindings
from forewarn.pipelines.storage.registry.drift_report import read_drift
from forewarn.response.decision.interlocks import Freeze, KillSwitchActivation, ResponderHealth
from forewarn.response.decision.manual_override import Override
from forewarn.response.policy.policy import Policy
from forewarn.response.state.incident import Incident

__all__ = ["read_responder_health"]


def read_responder_health(
    site: ResponseSite,
    ledger: Ledger,
    policy: Policy,
    incidents: Sequence[Incident],
    gathered: GatheredFindings,
    *,
    overrides: Sequence[Override],
    now: Nanoseconds,
) -> ResponderHealth:
    """Return the state of forewarn itself; record new versions in the ledger."""
    off = site.switch(ledger).off()
    findings = [finding for incident in incidents for finding in incident.findings]
    versions = sorted({finding.model_version for finding in findings if finding.model_version})
    lengths, drift = gathered.list_lengths, read_drift(site.records)
    return ResponderHealth(
        kill_switch=None if off is None else KillSwitchActivation(off.who, off.at, off.why),
        overrides=overrides,
        list_length=lengths[-1] if lengths else None,
        usual_length=_median_length(lengths[:-1]),
        policy_since=ledger.first_seen("policy", policy.version, now),
        models_since={name: ledger.first_seen("model", name, now) for name in versions},
        drifted=drift.drifted,
        drifted_at=drift.at,
        freezes=[Freeze(start, end, "configured") for start, end in site.table.frozen],
        # Without a folder of lists, and in the first round, no heartbeat is missing.
        last_list=gathered.last_list if site.lists.is_dir() else now,
        last_loop=ledger.last_heartbeat("loop") or now,
    )


def _median_length(lengths: Sequence[int]) -> float | None:
    """Return the median of nonempty lists: empty ones would make any list appear too long."""
    nonempty = [length for length in lengths if length]
    return statistics.median(nonempty) if nonempty else None
