"""Results, baselines and rules of SuperBench; a rule is compared, never executed.

Source: SuperBench's documentation of data diagnosis, version 0.8.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from forewarn.features.errors import InputError

__all__ = [
    "Criterion",
    "Rule",
    "SuperBenchError",
    "parse_baseline",
    "parse_criterion",
    "parse_results",
    "parse_rules",
]

_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CRITERION = re.compile(
    rf"\s*lambda\s+(?P<name>[A-Za-z_]\w*)\s*:\s*\(?\s*(?P=name)\s*(?P<operator>[<>]=?|[=!]=)\s*"
    rf"(?P<number>{_NUMBER})\s*\)?\s*"
)
_FUNCTIONS: Final = ("value", "variance")
_RANK = re.compile(r"(.+):(\d+)")


class SuperBenchError(InputError):
    """A file of SuperBench that cannot be used."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A comparison with a number; where it holds, a value is bad."""

    operator: str
    number: float

    def holds(self, value: float) -> bool:
        """Tell whether a value is bad."""
        return _OPERATORS[self.operator](value, self.number)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes
    ----------
    name, category : str
    function : {"value", "variance"}
        Compares the value, or its relative difference from the baseline.
    criterion : Criterion
    metrics : tuple of re.Pattern
    """

    name: str
    category: str
    function: str
    criterion: Criterion
    metrics: tuple[re.Pattern[str], ...]

    def applies_to(self, metric: str) -> bool:
        """Tell whether a metric is one of the rule."""
        return any(pattern.search(metric) for pattern in self.metrics)

    def is_bad(self, value: float, baseline: float | None) -> bool | None:
        """Tell whether a value is bad; None if its baseline is missing."""
        if self.function == "value":
            return self.criterion.holds(value)
        if not baseline:
            return None
        return self.criterion.holds((value - baseline) / baseline)


def parse_criterion(text: object, where: str) -> Criterion:
    """Parse `lambda x: x > 0.05`; anything else is an error, and nothing is evaluated.

    Raises
    ------
    SuperBenchError
        If it is not a comparison of the argument with a number.

    Examples
    --------
    >>> parse_criterion("lambda x:x<-0.05", "rule0")
    Criterion(operator='<', number=-0.05)
    """
    match = _CRITERION.fullmatch(text) if isinstance(text, str) and len(text) < 200 else None
    if match is None:
        raise SuperBenchError(
            f"{where}: `criteria` is {str(text)[:80]!r}, expected a comparison with a number such "
            "as `lambda x: x > 0.05`."
        )
    return Criterion(match["operator"], float(match["number"]))


def parse_rules(content: object, source: object) -> list[Rule]:
    """Return the rules of a file of rules.

    Parameters
    ----------
    content : object
        The YAML document.
    source : object
        Name of the file, for messages.

    Raises
    ------
    SuperBenchError
        If a rule has another function, a criterion that is no comparison, or no metric.
    """
    section = content.get("superbench") if isinstance(content, Mapping) else None
    rules = section.get("rules") if isinstance(section, Mapping) else None
    if not isinstance(rules, Mapping):
        raise SuperBenchError(f"{source}: has no `superbench.rules`, expected rules of SuperBench.")
    return [_parse_rule(str(name), rule, f"{source}: rule {name}") for name, rule in rules.items()]


def _parse_rule(name: str, rule: Any, where: str) -> Rule:
    if not isinstance(rule, Mapping):
        raise SuperBenchError(f"{where}: is not a table, expected `function` and `criteria`.")
    function = rule.get("function")
    if function not in _FUNCTIONS:
        raise SuperBenchError(
            f"{where}: `function` is {str(function)[:40]!r}, expected one of "
            f"{', '.join(_FUNCTIONS)}."
        )
    metrics = rule.get("metrics")
    if not isinstance(metrics, list) or not metrics:
        raise SuperBenchError(f"{where}: `metrics` is {str(metrics)[:40]!r}, expected a list.")
    try:
        patterns = tuple(re.compile(str(metric)) for metric in metrics)
    except re.error as error:
        raise SuperBenchError(f"{where}: `metrics` has an invalid pattern ({error}).") from None
    criterion = parse_criterion(rule.get("criteria"), where)
    return Rule(name, str(rule.get("categories", "")), str(function), criterion, patterns)


def parse_baseline(text: str, source: object) -> dict[str, float]:
    """Return the baseline of each metric, from a JSON object.

    Raises
    ------
    SuperBenchError
        If it is no object of numbers.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise SuperBenchError(f"{source}: is not a JSON object, expected baselines by metric.")
    return {name: _number(value, f"{source}: `{name[:80]}`") for name, value in content.items()}


def parse_results(text: str, source: object) -> Iterator[tuple[str, str, str | None, float]]:
    """Yield machine, metric, slot and value of results, which have a JSON object a machine.

    Raises
    ------
    SuperBenchError
        If a line is no object, or names no node.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{source}: line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("node"), str):
            raise SuperBenchError(f"{where}: is not an object with `node`, expected results.")
        for metric, value in row.items():
            if metric != "node" and value is not None:
                match = _RANK.fullmatch(metric)
                name, slot = (match[1], match[2]) if match else (metric, None)
                yield row["node"], name, slot, _number(value, f"{where}: `{metric[:80]}`")


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SuperBenchError(f"{where} is {str(value)[:40]!r}, expected a number.")
    return float(value)
