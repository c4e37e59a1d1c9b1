"""What a command says on the terminal when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.pipelines.at_risk import AtRiskList
from forewarn.pipelines.report_results import STRATEGIES
from forewarn.pipelines.terminal import plain

__all__ = ["backtest_summary", "list_summary"]


def _share(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.1%}"


def _score(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.3f}"


def _interval(bounds: list[float] | None) -> str:
    return "" if bounds is None else f"[{bounds[0]:.2f}, {bounds[1]:.2f}]"


def _row(name: str, paper: Mapping[str, Any], fleet: Mapping[str, Any]) -> str:
    lead = fleet["lead_time_hours"]["p50"]
    return (
        f"{name:<24} {_share(fleet['list_precision'])} "
        f"{_interval(fleet['list_precision_interval']):<13} "
        f"{fleet['failures_caught']:>3} of {fleet['failures']:<3} "
        f"{'    -' if lead is None else f'{lead:5.1f}'}  "
        f"{_score(fleet['average_precision'])}   "
        f"{_score(paper['precision_at_k'])} {_interval(paper['precision_at_k_interval'])}"
    )


def backtest_summary(report: Mapping[str, Any]) -> str:
    """Return the table of all methods: the daily list first, the paper's protocol last."""
    head = (
        f"{'':24} daily list at true prevalence                    paper's 1:8 test set\n"
        f"{'method':<24} precision           caught   lead h  avg.pr.  precision@K"
    )
    rows = [
        _row(name, report["methods"][name], report["fleet"][name])
        for strategy in STRATEGIES
        for name in report["methods"]
        if name.endswith(f"_{strategy}")
    ]
    return "\n".join([head, *rows])


def list_summary(made: AtRiskList) -> str:
    """Return the flagged GPUs of a list and how many were left out."""
    flagged = made.table[made.table["flagged"]]
    lines = [f"{len(flagged)} of {len(made.table)} GPUs flagged"]
    for row in flagged.head(20).to_dict("records"):
        place = f" on {row['machine_id']}" if row.get("machine_id") else ""
        probability = row["probability"]
        chance = "" if probability != probability else f" {probability:.1%}"
        lines.append(f"  {row['gpu_serial']}{place}{chance}: {row['reasons']}")
    counts = made.unscored["reason"].value_counts().sort_index()
    if len(counts):
        left = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        lines.append(f"not scored: {left}")
    return "\n".join(map(plain, lines))
