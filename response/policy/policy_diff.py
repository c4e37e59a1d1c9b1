"""Differences between two policies, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND
from forewarn.response.policy.fault_level import LevelRule
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.policy.policy import Policy
from forewarn.response.policy.policy_rule import ReturnLimit, Rule, XidRule
from forewarn.response.state.finding import FindingKind
from forewarn.response.state.step import DrainMode, Step

__all__ = ["PolicyChange", "diff_policies"]

_NONE = "none"


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """One difference.

    Attributes
    ----------
    names : tuple of str
        Kinds of findings, Xids or severities that it affects.
    key : str
        Part of the rule.
    before, after : str
        As text.
    """

    names: tuple[str, ...]
    key: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """Return the difference as one line."""
        return f"{', '.join(self.names)}: {self.key}: {self.before} -> {self.after}"


def diff_policies(before: Policy, after: Policy) -> list[PolicyChange]:
    """Return the differences; the same change of several codes is one.

    Effective rules are compared: a change of a severity's step is listed for each affected code.
    """
    pairs: dict[tuple[str, str, str], list[str]] = {}
    texts, names = _texts(before), _names(before) | _names(after)
    later = _texts(after)
    for name in {**texts, **later}:
        first, second = texts.get(name, {}), later.get(name, {})
        for key in {**first, **second}:
            words = first.get(key, _NONE), second.get(key, _NONE)
            if words[0] != words[1]:
                pairs.setdefault((key, *words), []).append(name)
    return [
        PolicyChange(tuple(_labels(affected, names)), key, first, second)
        for (key, first, second), affected in pairs.items()
    ]


def _labels(affected: list[str], names: Mapping[str, str]) -> list[str]:
    """Add the meaning to a single code; of several codes list the numbers."""
    if len(affected) > 1:
        return affected
    meaning = names.get(affected[0], "")
    return [f"{affected[0]} ({meaning})" if meaning else affected[0]]


def _names(policy: Policy) -> dict[str, str]:
    return {f"xid {code}": xid.name for code, xid in policy.xids.items()}


def _texts(policy: Policy) -> dict[str, dict[str, str]]:
    """Return the text of each part of a policy, by name and key."""
    texts = {
        f"severity {severity}": {"step": _step(standard.step, standard.mode)}
        for severity, standard in policy.standards.items()
    }
    for kind, rule in policy.kinds.items():
        name = "xid without a rule of its own" if kind is FindingKind.XID else str(kind)
        texts[name] = dict(_rule_texts(policy.bounded(rule, kind)))
    for code, xid in policy.xids.items():
        rule = policy.bounded(xid.rule, FindingKind.XID)
        texts[f"xid {code}"] = {**dict(_rule_texts(rule)), **dict(_inhibition_texts(xid))}
        if xid.fatal is not None:
            fatal = policy.bounded(xid.fatal, FindingKind.XID)
            texts[f"xid {code}, called fatal by the driver"] = dict(_rule_texts(fatal))
    for action, rule in policy.recoveries.items():
        rule = policy.bounded(rule, FindingKind.FAILURE)
        texts[f"recovery {action}, requested by the driver"] = dict(_rule_texts(rule))
    for level, level_rule in policy.levels.items():
        texts[f"level {level}"] = dict(_level_texts(level_rule))
    texts["ladder"] = dict(_ladder_texts(policy.ladder))
    texts["inhibition"] = {"codes are one event within": _span(policy.together)}
    texts["frequency"] = {
        "the next harder step is taken": _return_text(policy.returned),
        "a person decides": _return_text(policy.manual),
    }
    return texts


def _rule_texts(rule: Rule) -> Iterator[tuple[str, str]]:
    reported = "as reported, or " if rule.reported else ""
    yield "severity", f"{reported}{rule.severity}"
    yield "step", _step(rule.step, rule.mode)
    yield "acted on for", _span(rule.max_age)
    if rule.at_most is not Step.REPLACE:
        yield "at most", str(rule.at_most)
    if rule.confirmed_by:
        yield "confirmed by", " or ".join(sorted(rule.confirmed_by))
        yield "unconfirmed at most", str(rule.alone)
    if rule.duration:
        lasting = rule.duration
        over = f"over after {_span(lasting.recover_after)}"
        yield "duration", f"{lasting.level} from {_span(lasting.fault_after)} on, {over}"
    if rule.frequency:
        often = rule.frequency
        until = "a person releases it" if often.release is None else f"{_span(often.release)} later"
        times = f"{often.times} times in {_span(often.within)}"
        yield "frequency", f"{often.level} from {times} on, until {until}"
    if rule.likely:
        yield "likely", f"{rule.likely.step} from a probability of {rule.likely.probability:g} on"


def _return_text(limit: ReturnLimit) -> str:
    until = "" if limit.release is None else f", until it was absent for {_span(limit.release)}"
    return f"from {limit.times} times in {_span(limit.within)} on{until}"


def _level_texts(rule: LevelRule) -> Iterator[tuple[str, str]]:
    yield "severity", str(rule.severity)
    yield "step", _step(rule.step, rule.mode)
    yield "blocked for", str(rule.scope)
    yield "job begins with", "what the evidence asks for" if rule.rung is None else str(rule.rung)


def _ladder_texts(rules: LadderRules) -> Iterator[tuple[str, str]]:
    yield "retries for unknown causes", str(rules.retries)
    yield "at most", f"{rules.most} in {_span(rules.within)}"
    for rung, limit in rules.limits.items():
        yield f"time limit of {rung}", _span(limit)


def _inhibition_texts(xid: XidRule) -> Iterator[tuple[str, str]]:
    if xid.follows:
        yield "follows", "any other code" if xid.follows == "any" else _codes(xid.follows)
    if xid.cancels:
        yield "cancels", _codes(xid.cancels)


def _codes(codes: Iterable[int | str]) -> str:
    return ", ".join(str(code) for code in sorted(codes, key=int))


def _step(step: Step, mode: DrainMode | None) -> str:
    return f"{step} in mode {mode}" if mode else str(step)


def _span(nanoseconds: int) -> str:
    return format_duration(nanoseconds / SECOND)
