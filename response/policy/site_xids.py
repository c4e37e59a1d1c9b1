"""Xids of a site's configuration, applied to a policy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from forewarn.response.policy.policy import Policy
from forewarn.response.policy.policy_rule import XidRule
from forewarn.response.state.finding import FindingKind, Severity
from forewarn.response.state.step import Step

__all__ = ["apply_site_xids"]


def apply_site_xids(
    policy: Policy, *, failures: Collection[int], reported: Collection[int] | None
) -> Policy:
    """Return a policy with the Xids of a site.

    Parameters
    ----------
    policy : Policy
    failures : collection of int
        Codes after which a GPU counts as failed: at least severity error. Their `at_most` stays, so
        an application error is still only reported.
    reported : collection of int or None
        Codes that the site reports; all others lead at most to `tell`. None: all codes.
    """
    others = policy.kinds[FindingKind.XID]
    named = {*policy.xids, *failures, *(reported or ())}
    codes = {code: policy.xids.get(code, XidRule("", "", others)) for code in sorted(named)}
    for code in failures:
        rule = codes[code].rule
        if rule.severity.rank < Severity.ERROR.rank:
            codes[code] = replace(codes[code], rule=replace(rule, severity=Severity.ERROR))
    if reported is None:
        return replace(policy, xids=codes)
    for code in codes.keys() - {*reported}:
        codes[code] = replace(codes[code], rule=replace(codes[code].rule, at_most=Step.TELL))
    kinds = {**policy.kinds, FindingKind.XID: replace(others, at_most=Step.TELL)}
    return replace(policy, xids=codes, kinds=kinds)
