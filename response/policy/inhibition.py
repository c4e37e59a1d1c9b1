"""Echoes: Xids that only follow another one, or that a graver one explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.response.policy.policy_rule import Rule, XidRule, xid_code
from forewarn.response.state.finding import Finding

__all__ = ["drop_inhibited"]


def drop_inhibited(
    findings: Sequence[Finding],
    around: Sequence[Finding],
    *,
    xids: Mapping[int, XidRule],
    rule: Callable[[Finding], Rule],
    together: Nanoseconds,
) -> list[Finding]:
    """Return the findings that no other one explains.

    Only what is at least as grave explains anything, and no echo does: so one more finding never
    makes a step milder, and two codes that follow each other do not vanish both.

    Parameters
    ----------
    findings : sequence of Finding
        In any order.
    around : sequence of Finding
        What may explain them, themselves among it.
    xids : mapping of int to XidRule
    rule : callable
        Says how grave a finding is.
    together : int
        Nanoseconds between codes that are one event.
    """

    def order(finding: Finding) -> tuple[int, int, bool, int, str, str]:
        follows = bool(_follows(finding, xids))
        severity, step = _severity_ranks(rule(finding))
        return (-severity, -step, follows, finding.at, finding.source, finding.id)

    rules = [xids.get(xid_code(finding) or 0) for finding in around]
    cancelled = {code for xid in rules if xid is not None for code in xid.cancels}
    sounding: list[Finding] = []
    for finding in sorted({f.key: f for f in around}.values(), key=order):
        may_be_explained = _follows(finding, xids) or xid_code(finding) in cancelled
        explained = may_be_explained and any(
            _inhibits(other, finding, xids, together)
            and _at_least_as_severe(rule(other), rule(finding))
            for other in sounding
        )
        if not explained:
            sounding.append(finding)
    names = {finding.key for finding in sounding}
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
    """Tell whether a finding is an echo of another one, or cancelled by it."""
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
