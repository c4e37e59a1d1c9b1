"""Independent evidence: what a finding has read, and what another one adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.response.state.finding import Finding, FindingKind

__all__ = ["evidence_read", "independent_evidence", "rests_on_metrics"]

# The list is computed from metrics: what rests on it alone, rests on them.
_MEASURED: Final = frozenset({EvidenceKind.METRICS, EvidenceKind.LIST})
_EVIDENCE: Final[Mapping[FindingKind, frozenset[EvidenceKind]]] = {
    FindingKind.AT_RISK: _MEASURED,
    FindingKind.VERDICT: frozenset({EvidenceKind.METRICS}),
    FindingKind.XID: frozenset({EvidenceKind.KERNEL_LOG}),
    FindingKind.FAILURE: frozenset({EvidenceKind.CHECK}),
    FindingKind.CHECK: frozenset({EvidenceKind.CHECK}),
}


def evidence_read(finding: Finding) -> frozenset[EvidenceKind]:
    """Return the kinds of evidence that a finding rests on; empty if unknown.

    A diagnosis states them as `evidence_from`; for other kinds they are fixed.

    Examples
    --------
    >>> from forewarn.features.time_units import Nanoseconds
    >>> at, until = Nanoseconds(0), Nanoseconds(1)
    >>> xid = Finding("records", "1", FindingKind.XID, "xid 79", "node-1", at, until)
    >>> sorted(evidence_read(xid))
    [<EvidenceKind.KERNEL_LOG: 'kernel_log'>]
    """
    if finding.kind is not FindingKind.DIAGNOSIS:
        return _EVIDENCE.get(finding.kind, frozenset())
    stated = finding.evidence.get("evidence_from")
    if not isinstance(stated, list | tuple) or not set(map(str, stated)) <= set(EvidenceKind):
        return frozenset()
    read = frozenset(EvidenceKind(str(kind)) for kind in stated)
    return read | _MEASURED if EvidenceKind.LIST in read and read <= _MEASURED else read


def independent_evidence(other: Finding, finding: Finding) -> frozenset[EvidenceKind]:
    """Return the kinds of evidence by which another finding confirms a finding.

    These are the kinds that only the other one has read. A prediction confirms nothing, and neither
    does a finding of the same source and kind: no analysis confirms itself. If it is unknown what a
    finding has read, nothing is known to be independent of it.

    Parameters
    ----------
    other : Finding
        The finding that may confirm.
    finding : Finding
        The finding to be confirmed.
    """
    read = evidence_read(finding)
    if not read or other.predicts or (other.source, other.kind) == (finding.source, finding.kind):
        return frozenset()
    return evidence_read(other) - read - {EvidenceKind.LIST}


def rests_on_metrics(finding: Finding) -> bool:
    """Tell whether a verdict or diagnosis is known to rest on nothing but metrics and the list.

    A diagnosis that does not state its evidence counts as such.
    """
    is_analysis = finding.kind in (FindingKind.VERDICT, FindingKind.DIAGNOSIS)
    return is_analysis and evidence_read(finding) <= _MEASURED
