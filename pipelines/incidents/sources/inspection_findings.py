"""Findings from judged inspections: one for each bad check of a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from forewarn.features.errors import InputError
from forewarn.features.telemetry.telemetry_rows import is_host_name
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.files.regular_files import require_regular
from forewarn.response.policy.policy import Policy
from forewarn.response.state.finding import Finding, FindingKind, Severity

__all__ = ["inspection_findings"]

_BAD_STATES: Final = ("failed", "defective")
_SEVERITIES: Final = {"no_new_jobs": Severity.WARNING, "drain": Severity.ERROR}
_MAX_BYTES: Final = 256 * 1024 * 1024


def inspection_findings(path: Path, policy: Policy) -> list[Finding]:
    """Return the findings of a file of `inspect judge --json`; the policy tells their validity.

    Suspects need a second run, and a check of the level `note` is none; both are left out.

    Raises
    ------
    InputError
        If the file is no such report.
    """
    require_regular(path, InputError)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("too large")
        report = json.loads(path.read_bytes())
        rows, at = report["verdicts"], Nanoseconds(parse_moment(report["at"]))
        return list(_findings(rows, at, policy))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: is no output of `forewarn inspect judge --json` ({error})."
        ) from None


def _findings(rows: list[Mapping[str, Any]], at: Nanoseconds, policy: Policy) -> Iterator[Finding]:
    for row in rows:
        severity = _SEVERITIES.get(row["level"])
        if row["state"] not in _BAD_STATES or severity is None:
            continue
        machine, check, slot = row["machine"], str(row["check"]), row["slot"]
        if not is_host_name(machine):
            raise ValueError(f"{machine[:60]!r} is no name of a machine")
        finding = Finding(
            source="inspection",
            id=f"{check}{f' {slot}' if slot else ''}",
            kind=FindingKind.CHECK,
            cause=f"check {check}",
            machine=machine,
            at=at,
            valid_until=at,
            severity=severity,
            evidence={
                "name": check,
                "detail": str(row["why"])[:300],
                "value": row["value"],
                "unit": row["unit"],
                "compared": row["compared"],
                "category": row["category"],
                **({} if slot is None else {"part": str(slot)}),
            },
        )
        yield replace(finding, valid_until=Nanoseconds(at + policy.rule(finding).max_age))
