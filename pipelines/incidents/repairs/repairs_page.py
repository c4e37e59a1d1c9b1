"""The page of repair cases: where machines wait, the longest first, and repeat offenders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from forewarn.pipelines.incidents.repairs.repair_report import span_text
from forewarn.pipelines.rendering.templates import plural, render_page
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.response.repair.repair_case import RepairStage

__all__ = ["render_repairs_page", "write_repairs_page"]

_MAX_CASES: Final = 500
_STAGES: Final = [stage.value for stage in RepairStage if stage is not RepairStage.RETURNED]


def write_repairs_page(report: Mapping[str, Any], path: Path) -> None:
    """Write the page of a report atomically."""
    text = render_repairs_page(report)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_repairs_page(report: Mapping[str, Any]) -> str:
    """Return a self-contained page.

    Parameters
    ----------
    report : mapping
        Of `repair_report`.
    """
    ordered = sorted(
        report["cases"], key=lambda row: (row["returned_at"] is not None, -row["age_seconds"])
    )
    waits = {
        row["stage"]: max(
            other["stage_age_seconds"] for other in ordered if other["stage"] == row["stage"]
        )
        for row in ordered
        if row["returned_at"] is None
    }
    context = {
        "report": report,
        "headline": f"{plural(report['open'], 'machine')} in repair",
        "sentences": _sentences(report, waits),
        "tiles": [(number, stage) for stage, number in report["by_stage"].items()],
        "stages": _STAGES,
        "means": [_span(report["mean_stage_seconds"].get(stage)) for stage in _STAGES],
        "rows": [_row(row) for row in ordered[:_MAX_CASES]],
        "separations": report["separations"][-_MAX_CASES:][::-1],
    }
    return render_page("incidents/repairs/repairs_page.html", context)


def _sentences(report: Mapping[str, Any], waits: Mapping[str, float]) -> list[str]:
    if not report["open"] and not report["ended"]:
        return ["The ledger knows no repair."]
    sentences = []
    if waits:
        stage = max(waits, key=lambda name: waits[name])
        sentences.append(f"The longest wait is after “{stage}”, for {_span(waits[stage])}.")
    if report["ended"]:
        sentences.append(
            f"Of {plural(report['ended'], 'ended case')}, {report['complete']} have drain, "
            "evidence, ticket and acceptance on record."
        )
    if report["offenders"]:
        sentences.append(
            f"{plural(len(report['offenders']), 'repeat offender')} must not return without a "
            "board swap or a named approver."
        )
    return sentences


def _span(seconds: float | None) -> str:
    return "—" if seconds is None else span_text(seconds)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "age": _span(row["age_seconds"]),
        "cells": [_span(row["stage_seconds"].get(stage)) for stage in _STAGES],
        "gpus": ", ".join(row["gpu_serials"]),
    }
