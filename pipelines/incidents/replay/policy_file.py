"""Policy files: the default of the package and the overlays of a site."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.config.toml_tables import (
    SettingsError,
    describe_validation_error,
    read_toml,
)
from forewarn.pipelines.incidents.replay.policy_tables import PolicyTable, RuleTable, XidTable
from forewarn.pipelines.incidents.replay.replaced_keys import refuse_replaced_keys
from forewarn.response.policy.certain_damage import CERTAIN_XIDS, RECOVERY_CHANGED
from forewarn.response.policy.fault_level import FaultLevel
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.policy.policy import Policy
from forewarn.response.policy.policy_rule import Rule, XidRule
from forewarn.response.policy.site_xids import apply_site_xids
from forewarn.response.state.finding import FindingKind, Severity
from forewarn.response.state.step import DrainMode, Step

if TYPE_CHECKING:
    from forewarn.pipelines.config.settings import Settings

__all__ = ["load_policy", "policy_of_site"]

# Keys of a code or kind that are not part of its rule.
_NON_RULE_KEYS = ("name", "action", "follows", "cancels", "fatal")
_LEVEL_KEYS = ("severity", "step", "mode")  # of a rule that names the level
Values = Mapping[str, Any]


def load_policy(
    overlays: Sequence[Path] = (),
    *,
    failures: Collection[int] = (),
    reported: Collection[int] | None = None,
) -> Policy:
    """Return the default policy with overlays applied in order.

    Parameters
    ----------
    overlays : sequence of Path
    failures : collection of int
        Xids after which a GPU counts as failed at this site: raised to at least severity error.
    reported : collection of int, optional
        Xids that may lead to a step; all others lead to `tell` only. None: all may.

    Raises
    ------
    SettingsError
        If a file is unreadable, or has an unknown key or an invalid value.
    """
    resource = files("forewarn.pipelines.incidents.replay") / "policy.toml"
    values: Values = tomllib.loads(resource.read_text(encoding="utf-8"))
    name = "the default policy"
    for path in overlays:
        name, overlay = str(path), read_toml(path)
        refuse_replaced_keys(overlay, name)
        _validate(overlay, name)
        values = _merge(values, overlay)
    policy = _policy(values, name)
    return apply_site_xids(policy, failures=failures, reported=reported)


def policy_of_site(overlays: Sequence[Path], settings: Settings) -> Policy:
    """Return the policy with the Xids of a configuration applied.

    `report_xids` is applied only if the configuration sets it.

    Raises
    ------
    SettingsError
        As in `load_policy`.
    """
    sets_codes = "report_xids" in settings.collection.model_fields_set
    return load_policy(
        overlays,
        failures=settings.failures.xids,
        reported=settings.collection.report_xids if sets_codes else None,
    )


def _validate(values: Values, name: str) -> PolicyTable:
    try:
        return PolicyTable.model_validate(values)
    except ValidationError as error:
        text = describe_validation_error(error).replace(".[key]`", "`")
        text = text.replace("the example configuration", "the default policy")
        raise SettingsError(f"{name}: {text}.") from None


def _merge(base: Values, overlay: Values) -> dict[str, Any]:
    """Merge tables; a value of the overlay replaces that of the base."""
    result = dict(base)
    for key, value in overlay.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = _merge(before, value)
        result[key] = value
    return result


def _policy(values: Values, name: str) -> Policy:
    """Return the policy of merged tables."""
    table = _validate(values, name)
    policy = Policy(
        standards={
            severity: table.steps[severity].standard(name, f"steps.{severity}")
            for severity in Severity
        },
        kinds={
            kind: _rule(values["kinds"][kind], values, name, f"kinds.{kind}")
            for kind in FindingKind
        },
        xids={code: _xid_rule(code, xid, values, name) for code, xid in sorted(table.xids.items())},
        recoveries={
            action: _rule(own, values, name, f"recoveries.{action}")
            for action, own in values.get("recoveries", {}).items()
        },
        levels={level: table.levels[level].rule(name, f"levels.{level}") for level in FaultLevel},
        ladder=LadderRules(**table.ladder.model_dump()),
        together=Nanoseconds(table.inhibition.together or 0),
        returned=table.frequency.next_step.limit(name, "frequency.next_step"),
        manual=table.frequency.isolate_manual.limit(name, "frequency.isolate_manual"),
    )
    _check_order(policy, name)
    _check_bounds(policy, name)
    _check_certain_damage(policy, name)
    return policy


def _rule(own: Values, values: Values, name: str, key: str) -> Rule:
    """Return the rule of a kind or code; its own keys override those of its action."""
    action, actions = own.get("action"), values.get("actions", {})
    if action is not None and action not in actions:
        known = ", ".join(sorted(actions))
        raise SettingsError(f"{name}: key `{key}.action`: found {action!r}, expected {known}.")
    group = {} if action is None else actions[action]
    rule_keys = {part: value for part, value in own.items() if part not in _NON_RULE_KEYS}
    merged: dict[str, Any] = {}
    for layer in (group, rule_keys):
        merged = _merge(merged, _of_level(layer, values) | layer)
    return RuleTable.model_validate(merged).rule(name, key)


def _of_level(rule: Values, values: Values) -> dict[str, Any]:
    """Return severity, step and mode of the level that a rule names."""
    level = values.get("levels", {}).get(rule.get("level"), {})
    return {part: level[part] for part in _LEVEL_KEYS if part in level}


def _xid_rule(code: int, xid: XidTable, values: Values, name: str) -> XidRule:
    """Return the rule of a listed code.

    From the rule of unlisted codes it inherits only the action, if it names none.
    """
    own = {"action": values["kinds"]["xid"].get("action"), **values["xids"][str(code)]}
    follows = "any" if xid.follows == "any" else frozenset(xid.follows or ())
    return XidRule(
        name=xid.name or "",
        action=own["action"] or "",
        rule=_rule(own, values, name, f"xids.{code}"),
        follows=follows,  # type: ignore[arg-type]  # its only text is "any"
        cancels=frozenset(xid.cancels or ()),
        fatal=_rule({"action": xid.fatal}, values, name, f"xids.{code}.fatal")
        if xid.fatal
        else None,
    )


def _check_order(policy: Policy, name: str) -> None:
    """Raise if a higher severity has a milder step than a lower one."""
    for lower, higher in zip(Severity, list(Severity)[1:], strict=False):
        first, second = policy.standards[lower], policy.standards[higher]
        modes = [list(DrainMode).index(s.mode) if s.mode else 0 for s in (first, second)]
        if (first.step.rank, modes[0]) > (second.step.rank, modes[1]):
            steps = [_step_text(standard.step, standard.mode) for standard in (first, second)]
            raise SettingsError(
                f"{name}: `steps.{higher}` is {steps[1]}, expected nothing milder than "
                f"`steps.{lower}`, which is {steps[0]}."
            )


def _step_text(step: Step, mode: DrainMode | None) -> str:
    return f"{step} in mode {mode}" if mode else f"{step}"


def _check_bounds(policy: Policy, name: str) -> None:
    """Raise if a prediction could end jobs, or missing data could isolate a machine."""
    prediction, blind = policy.kinds[FindingKind.AT_RISK], policy.kinds[FindingKind.BLIND]
    if prediction.mode not in (None, DrainMode.FINISH):
        raise SettingsError(
            f"{name}: key `kinds.at_risk.mode`: found '{prediction.mode}', expected 'finish': a "
            "prediction must not end jobs."
        )
    for kind, rule, limit in (("at_risk", prediction, Step.DRAIN), ("blind", blind, Step.AVOID)):
        for key, step in (("step", rule.step), ("at_most", rule.at_most)):
            if step.rank > limit.rank and not (key == "at_most" and step is Step.REPLACE):
                raise SettingsError(
                    f"{name}: key `kinds.{kind}.{key}`: found '{step}', expected at most '{limit}'."
                )


def _check_certain_damage(policy: Policy, name: str) -> None:
    """Raise if a rule answers evidence of certain damage with less than a drain.

    For Xid 154 and for checks the evidence decides, therefore their rules may be milder.
    """
    rules = {
        f"xids.{code}": policy.bounded(policy.xids[code].rule, FindingKind.XID)
        for code in sorted({*CERTAIN_XIDS, RECOVERY_CHANGED} & policy.xids.keys())
    }
    for action, rule in policy.recoveries.items():
        if action != "none":
            rules[f"recoveries.{action}"] = policy.bounded(rule, FindingKind.FAILURE)
    for kind in (FindingKind.FAILURE, FindingKind.CHECK):
        rules[f"kinds.{kind}"] = policy.bounded(policy.kinds[kind], kind)
    by_evidence = (f"xids.{RECOVERY_CHANGED}", f"kinds.{FindingKind.CHECK}")
    for key, rule in rules.items():
        steps = {"at_most": rule.at_most}
        if key not in by_evidence:
            steps |= {"step": rule.step} | ({"alone": rule.alone} if rule.confirmed_by else {})
        for part, step in steps.items():
            if not step.isolates:
                raise SettingsError(
                    f"{name}: key `{key}.{part}`: found '{step}', expected at least 'drain', "
                    "because it is evidence of certain damage."
                )
