"""Keys of earlier policy files, and what to write instead."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from forewarn.pipelines.config.toml_tables import SettingsError
from forewarn.response.policy.fault_level import FaultLevel
from forewarn.response.state.step import Step

__all__ = ["refuse_replaced_keys"]

_RULE_TABLES: Final = ("actions", "kinds", "xids", "recoveries")
_LEVELS: Final[Mapping[object, FaultLevel]] = {  # by the step that the old key named
    Step.TELL: FaultLevel.IGNORE,
    Step.AVOID: FaultLevel.DEGRADED,
    Step.RESET: FaultLevel.GPU_RESET,
}
_LIMITS: Final = {
    "together": "[inhibition] together = {}",
    "again": "[frequency] next_step = {{ within = {0}, release = {0} }}",
    "most": "[frequency] isolate_manual = {{ times = {} }}",
    "within": "[frequency] isolate_manual = {{ within = {} }}",
}


def refuse_replaced_keys(values: Mapping[str, Any], name: str) -> None:
    """Raise if a policy has keys that were replaced.

    Raises
    ------
    SettingsError
        Names the first such key, and what to write instead.
    """
    for key, instead in _replaced(values):
        raise SettingsError(f"{name}: key `{key}` was replaced. Write `{instead}` instead.")


def _replaced(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in _table(values.get("escalation")).items():
        number = value + 1 if key == "most" and isinstance(value, int) else value
        if key in _LIMITS:
            yield f"escalation.{key}", _LIMITS[key].format(json.dumps(number, default=str))
    for group in _RULE_TABLES:
        for rule, keys in _table(values.get(group)).items():
            for old in ("often", "lasting"):
                if old in _table(keys):
                    yield f"{group}.{rule}.{old}", _instead(old, _table(keys[old]))


def _instead(old: str, table: Mapping[str, Any]) -> str:
    """Return the new table with the values of the old one."""
    level = {}
    if "step" in table:
        level = {"level": str(_LEVELS.get(table["step"], FaultLevel.NO_NEW_JOBS))}
    if old == "often":
        within = {"release": table["within"]} if "within" in table else {}
        parts = {key: table[key] for key in ("times", "within") if key in table}
        return _inline("frequency", parts | level | within)
    span = {"fault_after": table["span"]} if "span" in table else {}
    return _inline("duration", span | {"recover_after": "1h"} | level)


def _inline(key: str, parts: Mapping[str, Any]) -> str:
    words = ", ".join(f"{part} = {json.dumps(value, default=str)}" for part, value in parts.items())
    return f"{key} = {{ {words} }}"


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
