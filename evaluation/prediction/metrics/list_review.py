"""Review of past at-risk lists: hits, misses, lead times and false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from forewarn.evaluation.bootstrap import bootstrap_weights, percentile_interval
from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.features.records.out_of_service import OutOfServiceSpan
from forewarn.features.time_units import SECONDS_PER_HOUR

__all__ = ["ReviewedLists", "match_failures", "poisson_interval", "review_metrics"]

_NORMAL_95 = 1.6448536269514722  # 95 % quantile of the standard normal distribution


@dataclass(frozen=True, slots=True)
class ReviewedLists:
    """Rows of past lists with their outcomes, and the failures in the period they cover.

    Attributes
    ----------
    rows : DataFrame
        Rows whose horizon is over, with `fails_at`, `hours_to_failure` (inf: no failure until
        `valid_until`) and `hit`.
    failures : DataFrame
        `gpu_serial`, `failed_at` and `caught`: whether a flagged row preceded it. Failures within
        the horizon of a row that is not over are left out.
    not_over : int
        Rows whose horizon is not over.
    unknown : int
        Excluded rows: their GPU was out of service within the horizon and did not fail.
    """

    rows: pd.DataFrame
    failures: pd.DataFrame
    not_over: int
    unknown: int = 0


def match_failures(
    lists: pd.DataFrame,
    failures: pd.DataFrame,
    until: pd.Timestamp,
    absences: Sequence[OutOfServiceSpan] = (),
) -> ReviewedLists:
    """Match lists with the failures known up to `until`.

    Parameters
    ----------
    lists : DataFrame
        `gpu_serial`, `window_end`, `valid_until`, `flagged`, of all days.
    failures : DataFrame
        `gpu_serial`, `failed_at`.
    until : Timestamp
        Rows with a later `valid_until` are left out.
    absences : sequence of Absence
        Rows whose horizon overlaps an absence of their GPU are left out unless the GPU failed: a
        machine out of service cannot be a false alarm.
    """
    over = lists["valid_until"] <= until
    rows = lists[over].reset_index(drop=True)
    foreseen = _next_failure(rows, failures)
    hours = ((foreseen - rows["window_end"]).dt.total_seconds() / SECONDS_PER_HOUR).fillna(np.inf)
    rows = rows.assign(fails_at=foreseen, hours_to_failure=hours, hit=foreseen.notna())
    unknown = _was_out_of_service(rows, absences) & ~rows["hit"].to_numpy(bool)
    rows, n_unknown = rows[~unknown].reset_index(drop=True), int(unknown.sum())
    if not len(rows):
        none = failures.iloc[:0].assign(caught=[])
        return ReviewedLists(rows, none, int((~over).sum()), n_unknown)
    covered = failures["failed_at"].gt(rows["window_end"].min()) & failures["failed_at"].le(
        rows["valid_until"].max()
    )
    covered &= ~_in_open_horizon(lists[~over], failures)
    covered_failures = failures[covered].drop_duplicates(["gpu_serial", "failed_at"])
    covered_failures = covered_failures.sort_values(["failed_at", "gpu_serial"]).reset_index(
        drop=True
    )
    caught = covered_failures.assign(caught=_caught(rows, covered_failures))
    return ReviewedLists(rows, caught, int((~over).sum()), n_unknown)


def _was_out_of_service(
    rows: pd.DataFrame, absences: Sequence[OutOfServiceSpan]
) -> npt.NDArray[np.bool_]:
    """Return which GPUs, or their machines, were out of service during the horizon."""
    absent = np.zeros(len(rows), dtype=bool)
    if not absences:
        return absent
    start, end = (
        rows[name].dt.as_unit("ns").astype("int64").to_numpy()
        for name in ("window_end", "valid_until")
    )
    rows_of = {
        name: rows.groupby(name).indices
        for name in ("gpu_serial", "machine_id")
        if name in rows.columns
    }
    for absence in absences:
        name = "machine_id" if absence.gpu_serial is None else "gpu_serial"
        subject = absence.gpu_serial or absence.machine
        at = rows_of.get(name, {}).get(subject, np.zeros(0, dtype=np.int64))
        absent[at] |= (start[at] < absence.end) & (end[at] >= absence.start)
    return absent


def _in_open_horizon(rows: pd.DataFrame, failures: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which failures lie in the horizon of a row that is not over."""
    since = rows.groupby("gpu_serial")["window_end"].min().to_dict()
    pairs = zip(failures["gpu_serial"], failures["failed_at"], strict=True)
    return np.array([gpu in since and failed > since[gpu] for gpu, failed in pairs], dtype=bool)


def _next_failure(rows: pd.DataFrame, failures: pd.DataFrame) -> pd.Series[pd.Timestamp]:
    """Return the first failure of each row's GPU within the horizon; null if there is none."""
    left = rows[["gpu_serial", "window_end", "valid_until"]].assign(row=np.arange(len(rows)))
    left["window_end"] = left["window_end"].dt.as_unit("ns")
    right = failures[["gpu_serial", "failed_at"]].sort_values("failed_at")
    right["failed_at"] = right["failed_at"].dt.as_unit("ns")
    joined = pd.merge_asof(
        left.sort_values("window_end"),
        right,
        left_on="window_end",
        right_on="failed_at",
        by="gpu_serial",
        direction="forward",
        allow_exact_matches=False,
    ).sort_values("row", ignore_index=True)
    return joined["failed_at"].where(joined["failed_at"] <= joined["valid_until"])


def _caught(rows: pd.DataFrame, failures: pd.DataFrame) -> npt.NDArray[np.bool_]:
    flagged = rows[rows["flagged"] & rows["hit"]]
    keys = set(zip(flagged["gpu_serial"], flagged["fails_at"], strict=True))
    pairs = zip(failures["gpu_serial"], failures["failed_at"], strict=True)
    return np.array([key in keys for key in pairs], dtype=bool)


def review_metrics(
    reviewed: ReviewedLists, *, seed: int = 0, costs: ActionCosts | None = None
) -> dict[str, Any]:
    """Return precision, recall, lead times and calibration of the flagged rows, with intervals.

    The baseline is a random list, whose precision is the share of all rows that precede a failure.
    With costs, GPU-hours are counted as well: an alert costs its action once, and the first alert
    before a failure saves.
    """
    rows = reviewed.rows
    flagged = rows[rows["flagged"]]
    hits = int(flagged["hit"].sum())
    caught, total = int(reviewed.failures["caught"].sum()), len(reviewed.failures)
    leads = flagged.loc[flagged["hit"], "hours_to_failure"].to_numpy(float)
    probability = pd.to_numeric(flagged.get("probability", pd.Series(dtype=float)))
    return {
        "rows": len(rows),
        "rows_not_over_yet": reviewed.not_over,
        "rows_unknown": reviewed.unknown,
        "flagged": len(flagged),
        "hits": hits,
        "false_alarms": len(flagged) - hits,
        "precision": hits / len(flagged) if len(flagged) else None,
        "precision_interval": _precision_interval(flagged, seed),
        "random_precision": float(rows["hit"].mean()) if len(rows) else None,
        "expected_hits": float(probability.sum()) if probability.notna().any() else None,
        "failures": total,
        "caught": caught,
        "missed": total - caught,
        "recall": caught / total if total else None,
        "lead_time_hours": {
            "p10": float(np.quantile(leads, 0.1)) if len(leads) else None,
            "p50": float(np.quantile(leads, 0.5)) if len(leads) else None,
        },
        **_gpu_hours(flagged, costs),
    }


def _gpu_hours(flagged: pd.DataFrame, costs: ActionCosts | None) -> dict[str, Any]:
    """Return the costs and savings of the actions on the lists; empty without costs."""
    if costs is None:
        return {}
    rows = flagged.sort_values(["window_end", "gpu_serial"], kind="stable")
    prices = dict(costs.actions)
    until: dict[str, pd.Timestamp] = {}
    caught: set[tuple[str, pd.Timestamp]] = set()
    spent, alerts = 0.0, 0
    for row in rows.to_dict("records"):
        serial = str(row["gpu_serial"])
        if serial in until and row["window_end"] < until[serial]:
            continue
        until[serial] = row["valid_until"]
        alerts += 1
        spent += prices.get(str(row.get("action")), costs.most_expensive)
        if row["hit"]:
            caught.add((serial, row["fails_at"]))
    saved = costs.savings * len(caught)
    return {
        "alerts": alerts,
        "gpu_hours_saved": saved,
        "gpu_hours_spent": spent,
        "gpu_hours_net": saved - spent,
    }


def _precision_interval(flagged: pd.DataFrame, seed: int) -> tuple[float, float] | None:
    """Return the bootstrap interval of the precision, resampling machines."""
    if not len(flagged):
        return None
    serial = flagged["gpu_serial"].astype(object)  # a GPU without a machine is its own cluster
    name = (
        flagged["machine_id"].astype(object).fillna(serial) if "machine_id" in flagged else serial
    )
    machine = pd.factorize(name.astype(str), sort=True)[0]
    weights = bootstrap_weights(int(machine.max()) + 1, seed=seed)[:, machine]
    with np.errstate(invalid="ignore"):
        return percentile_interval(
            (weights * flagged["hit"].to_numpy()).sum(axis=1) / weights.sum(axis=1)
        )


def poisson_interval(count: int) -> tuple[float, float]:
    """Return the 90 % interval of the mean of a Poisson count, by Byar's approximation.

    It is within 0.03 of the exact interval (Breslow and Day 1987, "Statistical Methods in Cancer
    Research" II, section 2.3).

    Examples
    --------
    >>> [round(bound, 2) for bound in poisson_interval(10)], poisson_interval(0)[0]
    ([5.42, 16.96], 0.0)
    """
    above = count + 1
    upper = above * (1 - 1 / (9 * above) + _NORMAL_95 / (3 * above**0.5)) ** 3
    if count == 0:
        return 0.0, upper
    return count * (1 - 1 / (9 * count) - _NORMAL_95 / (3 * count**0.5)) ** 3, upper
