"""Metrics of a list and of a review, for Prometheus."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from forewarn.evaluation.prediction.metrics.list_review import ReviewedLists, poisson_interval
from forewarn.features.time_units import SECOND
from forewarn.models.prediction.reliability import LabelledProbabilities, calibration_slope
from forewarn.pipelines.at_risk.at_risk_list import AtRiskList
from forewarn.pipelines.metrics.declarations import (
    FLEET_GPUS,
    LIST_EXPECTED_FAILURES,
    LIST_FLAGGED,
    LIST_MODEL_TIME,
    LIST_RECORD_TIME,
    LIST_TIME,
    REVIEW_EXPECTED,
    REVIEW_FLAGGED,
    REVIEW_INTERCEPT,
    REVIEW_LOWER,
    REVIEW_OBSERVED,
    REVIEW_PRECISION,
    REVIEW_RECALL,
    REVIEW_SLOPE,
    REVIEW_UPPER,
)
from forewarn.pipelines.metrics.job_textfile import job_values, write_job
from forewarn.pipelines.metrics.metric_values import MetricValues
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment

__all__ = ["REVIEW_SPAN", "list_metrics", "recent_review_metrics", "write_list_metrics"]

REVIEW_SPAN: Final = timedelta(days=30)
"""Lists that the metrics of a review cover, before the newest whose horizon is over."""


def write_list_metrics(folder: Path | None, made: AtRiskList, lists: Path) -> None:
    """Write the metrics of a list, unless `lists` holds one of a later day."""
    day = format_iso(made.at)[:10]
    if not any(path.name.removeprefix("date=") > day for path in lists.glob("date=*")):
        write_job(folder, "score", list_metrics(made))


def list_metrics(made: AtRiskList) -> MetricValues:
    """Return the metrics of a list."""
    values, table = job_values("score"), made.table
    values.set(LIST_TIME, made.at / SECOND)
    values.set(LIST_FLAGGED, int(table["flagged"].sum()))
    if len(table):
        values.set(LIST_RECORD_TIME, table["window_end"].max().timestamp())
    if trained := re.match(r"\d{4}-\d{2}-\d{2}(?=-)", made.model_version):
        values.set(LIST_MODEL_TIME, parse_moment(trained[0]) / SECOND)
    if table["probability"].notna().any():
        values.set(LIST_EXPECTED_FAILURES, table["probability"].sum())
    values.replace(FLEET_GPUS, _fleet_counts(made))
    return values


def _fleet_counts(made: AtRiskList) -> dict[tuple[str, ...], int]:
    """Count the GPUs by state; a GPU whose slot has another one now is no part of the fleet."""
    left = made.unscored
    if "replaced" in left:
        left = left[~left["replaced"].astype(bool)]
    failed = left["failed_since"].notna() if "failed_since" in left else left["reason"].isna()
    blind = (left["reason"] == "stale") & ~failed
    counts = {
        "all": len(made.table) + len(left),
        "scored": len(made.table),
        "blind": int(blind.sum()),
        "failed_without_end": int(failed.sum()),
        "unscored": int((~blind & ~failed).sum()),
    }
    return {(state,): count for state, count in counts.items()}


def recent_review_metrics(reviewed: ReviewedLists) -> MetricValues:
    """Return the metrics of the last 30 days of a review."""
    values, rows, failures = job_values("review"), reviewed.rows, reviewed.failures
    since = rows["window_end"].max() - REVIEW_SPAN
    rows = rows[rows["window_end"] > since]
    flagged = rows[rows["flagged"].astype(bool)]
    recent = failures[failures["failed_at"] > since]
    observed = int(flagged["hit"].sum())
    values.set(REVIEW_FLAGGED, len(flagged))
    values.set(REVIEW_OBSERVED, observed)
    if len(flagged):
        values.set(REVIEW_PRECISION, observed / len(flagged))
    if len(recent):
        values.set(REVIEW_RECALL, float(recent["caught"].mean()))
    _set_calibration(values, observed, flagged)
    _set_slope(values, rows)
    return values


def _set_slope(values: MetricValues, rows: pd.DataFrame) -> None:
    """Set slope and intercept of the probabilities of all rows, unless all outcomes are equal."""
    probability = pd.to_numeric(rows.get("probability", pd.Series(dtype=float)))
    known = rows[probability.notna()] if len(probability) else rows.iloc[:0]
    labels = known["hit"].to_numpy(np.int8)
    probabilities = probability.dropna().to_numpy(np.float64)
    if len({*labels.tolist()}) < 2 or len(np.unique(probabilities)) < 2:
        return
    machine = np.zeros(len(labels), np.int64)
    slope, intercept = calibration_slope([LabelledProbabilities(probabilities, labels, machine)])
    values.set(REVIEW_SLOPE, slope)
    values.set(REVIEW_INTERCEPT, intercept)


def _set_calibration(values: MetricValues, observed: int, flagged: pd.DataFrame) -> None:
    """Set the expected failures, and the observed ones relative to them."""
    probability = pd.to_numeric(flagged.get("probability", pd.Series(dtype=float)))
    expected = float(probability.sum())
    if not expected > 0.0:  # rules give no probabilities
        return
    lower, upper = poisson_interval(observed)
    values.set(REVIEW_EXPECTED, expected)
    values.set(REVIEW_LOWER, lower / expected)
    values.set(REVIEW_UPPER, upper / expected)
