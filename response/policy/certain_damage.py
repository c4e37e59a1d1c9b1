"""Certain damage: evidence that a GPU is broken."""

from __future__ import annotations

from typing import Final

from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.response.policy.policy_rule import xid_code
from forewarn.response.state.finding import Finding, FindingKind, Provenance

__all__ = ["CERTAIN_XIDS", "RECOVERY_CHANGED", "is_certain", "is_certain_cause"]

CERTAIN_XIDS: Final = frozenset({48, 64, 79, 95, 140})
"""Uncorrectable memory errors, a failed row remapping, a GPU that fell off the bus."""

RECOVERY_CHANGED: Final = 154
"""Certain damage if the driver requests a recovery action."""

_CAUSES: Final = frozenset({"lost", "needs_reset"})
_CERTAIN_CAUSES: Final = _CAUSES | {f"xid {code}" for code in CERTAIN_XIDS}


def is_certain(finding: Finding) -> bool:
    """Tell whether a finding is evidence of certain damage, which is at least drained.

    A finding of a shared token is not: any host may have sent it.

    Examples
    --------
    >>> from forewarn.features.time_units import Nanoseconds
    >>> at, until = Nanoseconds(0), Nanoseconds(1)
    >>> is_certain(Finding("records", "1", FindingKind.XID, "xid 79", "node-1", at, until))
    True
    """
    if finding.vouched is Provenance.SHARED:
        return False
    code = xid_code(finding)
    if code == RECOVERY_CHANGED:
        return finding.evidence.get("action") not in (None, "", "none")
    if code is not None:
        return code in CERTAIN_XIDS
    if finding.kind is FindingKind.CHECK:
        return finding.evidence.get("check") == "digest"
    if finding.cause.split(" ")[0] == GPU_ERROR:
        return finding.evidence.get("severity") == "critical"
    return finding.cause in _CAUSES and finding.evidence.get("action") != "none"


def is_certain_cause(cause: str) -> bool:
    """Tell whether the cause of an action by itself means certain damage.

    A cause that needs evidence, such as Xid 154, counts as reversible.
    """
    return cause in _CERTAIN_CAUSES
