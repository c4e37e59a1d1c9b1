"""Metrics of `retrain`, `ingest` and `compact` from their results."""

from __future__ import annotations

from forewarn.features.time_units import SECOND
from forewarn.pipelines.metrics.declarations import (
    COMPACTED_DATES,
    INGESTED_EVENTS,
    INGESTED_FAILURES,
    INGESTED_READINGS,
    RETRAIN_PROMOTED,
    RETRAIN_TIME,
)
from forewarn.pipelines.metrics.job_textfile import job_values
from forewarn.pipelines.metrics.metric_values import MetricValues

__all__ = ["compact_metrics", "ingest_metrics", "retrain_metrics"]


def retrain_metrics(at: int, *, promoted: bool) -> MetricValues:
    """Return the metrics of a retraining as of `at`, in nanoseconds since 1970 UTC."""
    values = job_values("retrain")
    values.set(RETRAIN_TIME, at / SECOND)
    values.set(RETRAIN_PROMOTED, promoted)
    return values


def ingest_metrics(readings: int, events: int, failures: int) -> MetricValues:
    """Return the metrics of an ingestion: new readings and events, known failures."""
    values = job_values("ingest")
    values.set(INGESTED_READINGS, readings)
    values.set(INGESTED_EVENTS, events)
    values.set(INGESTED_FAILURES, failures)
    return values


def compact_metrics(dates: int) -> MetricValues:
    """Return the metrics of a compaction of so many dates."""
    values = job_values("compact")
    values.set(COMPACTED_DATES, dates)
    return values
