"""Metrics of jobs that end, as files for the textfile collector of node_exporter."""

from __future__ import annotations

import time
from pathlib import Path

from prometheus_client import write_to_textfile

from forewarn.pipelines.metrics.declarations import JOB_SUCCESS_TIME, SOURCES
from forewarn.pipelines.metrics.metric_values import MetricValues
from forewarn.pipelines.runtime.progress import note

__all__ = ["job_values", "write_job", "write_textfile"]


def job_values(job: str) -> MetricValues:
    """Return the metrics of a job, without values."""
    return MetricValues(SOURCES[job])


def write_job(folder: Path | None, job: str, values: MetricValues) -> None:
    """Write the metrics of a job that has ended without an error.

    Parameters
    ----------
    folder : Path or None
        Folder that node_exporter reads; None writes nothing.
    job : str
        Name of the command.
    values : MetricValues
    """
    if folder is not None:
        values.set(JOB_SUCCESS_TIME, time.time(), job)
        write_textfile(folder, job, values)


def write_textfile(folder: Path, name: str, values: MetricValues) -> None:
    """Replace `forewarn_NAME.prom` atomically; an error is noted, because the work is done."""
    try:
        write_to_textfile(str(folder / f"forewarn_{name}.prom"), values)
    except OSError as error:
        note(f"{folder}: the metrics of `{name}` were not written: {error.strerror}")
