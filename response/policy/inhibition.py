"""Inhibition: Xids that only follow another Xid, or that a more severe one explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.response.policy.policy_rule import Rule, XidRule, xid_code
from forewarn.response.state.finding import Finding

__all__ = ["drop_inhibited"]


def drop_inhibited(
    findings: Sequence[Finding],
    context: Sequence[Finding],
    *,
    xids: Mapping[int, XidRule],
    rule: Callable[[Finding], Rule],
    together: Nanoseconds,
) -> list[Finding]:
    """Return the findings that no other finding inhibits.

    Only findings of at least the same severity inhibit, and inhibited findings do not. So an
    additional finding never leads to a weaker step, and two codes that follow each other do not
    both vanish.

    Parameters
    ----------
    findings : sequence of Finding
        In any order.
    context : sequence of Finding
        Findings that may inhibit them, including themselves.
    xids : mapping of int to XidRule
    rule : callable
        Returns the rule of a finding.
    together : int
        Nanoseconds between codes that belong to one event.
    """

    def order(finding: Finding) -> tuple[int, int, bool, int, str, str]:
        follows = bool(_follows(finding, xids))
        severity, step = _severity_ranks(rule(finding))
        return (-severity, -step, follows, finding.at, finding.source, finding.id)

    rules = [xids.get(xid_code(finding) or 0) for finding in context]
    cancelled = {code for xid in rules if xid is not None for code in xid.cancels}
    uninhibited: list[Finding] = []
    for finding in sorted({f.key: f for f in context}.values(), key=order):
        may_be_inhibited = _follows(finding, xids) or xid_code(finding) in cancelled
        is_inhibited = may_be_inhibited and any(
            _inhibits(other, finding, xids, together)
            and _at_least_as_severe(rule(other), rule(finding))
            for other in uninhibited
        )
        if not is_inhibited:
            uninhibited.append(finding)
    names = {finding.key for finding in uninhibited}
    return [finding for finding in findings if finding.key in names]


def _severity_ranks(rule: Rule) -> tuple[int, int]:
    return rule.severity.rank, rule.step.rank


def _at_least_as_severe(rule: Rule, other: Rule) -> bool:
    pairs = zip(_severity_ranks(rule), _severity_ranks(other), strict=True)
    return all(rank >= other_rank for rank, other_rank in pairs)


def _follows(finding: Finding, xids: Mapping[int, XidRule]) -> frozenset[int] | str:
    code = xid_code(finding)
    return frozenset() if code is None or code not in xids else xids[code].follows


def _inhibits(
    other: Finding, finding: Finding, xids: Mapping[int, XidRule], together: Nanoseconds
) -> bool:
    """Tell whether another finding inhibits a finding: it follows or is cancelled by it."""
    code, leader = xid_code(finding), xid_code(other)
    if code is None or leader is None or code == leader or other.machine != finding.machine:
        return False
    if not other.supports(finding):
        return False
    first, last = other.first or other.at, other.last or other.at
    follows = _follows(finding, xids)
    if follows == "any" or leader in follows:
        return first <= finding.at <= last + together
    cancels = xids[leader].cancels if leader in xids else frozenset()
    return code in cancels and first - together <= finding.at <= last + together
