"""The table of all methods that a backtest prints on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.pipelines.backtest.report_results import STRATEGIES

__all__ = ["backtest_summary"]


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
