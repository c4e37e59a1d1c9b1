"""Diagnoses that the loop starts: of the jobs in which a detector found a machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.loop.diagnosis_process import (
    DiagnosisJob,
    is_diagnosing,
    start_diagnosis,
)
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.sources.event_findings import has_events
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.file_names import safe_file_name
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.response.state.finding import Finding, FindingKind

__all__ = ["diagnose_verdicts"]

_TASK: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")  # stays in the folder of jobs


def diagnose_verdicts(site: ResponseSite, findings: Iterable[Finding], now: Nanoseconds) -> None:
    """Start the diagnosis of the first job that has a verdict since its last diagnosis.

    The result goes to `site.own_diagnoses`. One diagnosis runs at a time, of the same job at most
    every `diagnosis_timeout`. A folder that does not exist is no error: most tasks are in none.

    Parameters
    ----------
    site : ResponseSite
    findings : iterable of Finding
        Findings of this round.
    now : int
        Nanoseconds since 1970 UTC.
    """
    if not site.table.job_folder:
        return
    due = list(_due(site, findings, now))
    if not due:
        return
    try:
        site.own_diagnoses.mkdir(exist_ok=True)
        if not is_diagnosing(site.own_diagnoses):
            start_diagnosis(due[0])
    except OSError as error:
        note(f"no diagnosis is started: {error}")


def _due(
    site: ResponseSite, findings: Iterable[Finding], now: Nanoseconds
) -> Iterator[DiagnosisJob]:
    verdicts = [f for f in findings if f.kind is FindingKind.VERDICT and f.valid(now)]
    for verdict in sorted(verdicts, key=lambda finding: finding.at):
        task = verdict.job or ""
        folder = site.folder / site.table.job_folder.replace("{task}", task)
        result = site.own_diagnoses / f"{safe_file_name(task)}.json"
        last = result.stat().st_mtime_ns if result.exists() else 0
        is_due = verdict.at > last and now - last >= site.table.diagnosis_timeout
        if _TASK.fullmatch(task) and is_due and folder.is_dir():
            timeout = site.table.diagnosis_timeout / SECOND
            yield DiagnosisJob(str(folder), str(result), timeout, tuple(_options(site)))


def _options(site: ResponseSite) -> Iterator[str]:
    """Yield the options for the at-risk lists, as a prior, and for the events of the hosts."""
    if matching_paths(site.lists, "date=*/at_risk.parquet"):
        yield from ("--at-risk", str(site.lists))
    if has_events(site.records):
        yield from ("--events", str(site.records))
