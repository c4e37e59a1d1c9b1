"""Metrics of repair cases, for the textfile collector of node_exporter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forewarn.pipelines.metrics.declarations import REPAIR_AGE, REPAIR_CASES, REPEAT_OFFENDERS
from forewarn.pipelines.metrics.job_textfile import job_values, write_job

__all__ = ["write_repair_metrics"]


def write_repair_metrics(folder: Path | None, report: Mapping[str, Any]) -> None:
    """Write the metrics of a report of all machines; None writes nothing."""
    values = job_values("repairs")
    cases = [row for row in report["cases"] if row["returned_at"] is None]
    for stage in REPAIR_CASES.labels["stage"]:
        ages = [row["stage_age_seconds"] for row in cases if row["stage"] == stage]
        values.set(REPAIR_CASES, len(ages), stage)
        values.set(REPAIR_AGE, max(ages, default=0.0), stage)
    offenders = Counter(row["kind"] for row in report["offenders"])
    for kind in REPEAT_OFFENDERS.labels["kind"]:
        values.set(REPEAT_OFFENDERS, offenders[kind], kind)
    write_job(folder, "repairs", values)
