"""Results of SuperBench as results of checks, judged by its own rules and baseline."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from forewarn.features.inspection.superbench import (
    Rule,
    SuperBenchError,
    parse_baseline,
    parse_results,
    parse_rules,
)
from forewarn.features.telemetry.telemetry_rows import is_host_name
from forewarn.pipelines.storage.files.regular_files import require_regular

__all__ = ["import_superbench"]

_MAX_BYTES = 1 << 28


def import_superbench(
    results: Path, rules: Path | None, baseline: Path | None, *, at: int
) -> list[dict[str, Any]]:
    """Return the rows of RESULTS of a file of results.

    A value that a rule calls bad has failed. Without rules all values are ok, to be judged later.

    Parameters
    ----------
    results : Path
        JSON lines, one machine each.
    rules : Path, optional
        YAML.
    baseline : Path, optional
        JSON object of metrics.
    at : int
        Time of the results, nanoseconds since 1970 UTC, which they do not state.

    Raises
    ------
    SuperBenchError
        If a file cannot be used, or a rule is more than a comparison with a number.
    """
    known = [] if rules is None else parse_rules(_yaml(rules), rules)
    expected = {} if baseline is None else parse_baseline(_text(baseline), baseline)
    run = uuid.uuid4().hex[:12]
    rows = []
    for machine, metric, slot, value in parse_results(_text(results), results):
        if not is_host_name(machine):
            raise SuperBenchError(
                f"{results}: `node` is {machine[:60]!r}, expected a name of a machine."
            )
        full = metric if slot is None else f"{metric}:{slot}"
        bad = _broken_rules(known, full, value, expected.get(full, expected.get(metric)))
        rows.append(
            {
                "timestamp": at,
                "machine": machine,
                "slot": slot,
                "check": metric,
                "run": run,
                "value": value,
                "unit": "1",
                "status": "failed" if bad else "ok",
                "versions": json.dumps({}),
                "set": "superbench",
                "text": ", ".join(bad) or None,
            }
        )
    return rows


def _broken_rules(
    rules: Sequence[Rule], metric: str, value: float, baseline: float | None
) -> list[str]:
    return [
        f"{rule.name} ({rule.category})" if rule.category else rule.name
        for rule in rules
        if rule.applies_to(metric) and rule.is_bad(value, baseline)
    ]


def _text(path: Path) -> str:
    require_regular(path, SuperBenchError)
    if path.stat().st_size > _MAX_BYTES:
        raise SuperBenchError(f"{path}: has over {_MAX_BYTES} bytes, expected results.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SuperBenchError(f"{path}: is not text in UTF-8.") from None


def _yaml(path: Path) -> object:
    try:
        return yaml.safe_load(_text(path))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, SuperBenchError):
            raise
        detail = str(error).splitlines()[0][:100] if str(error) else "nested too deeply"
        raise SuperBenchError(f"{path}: is not YAML ({detail}).") from None
