"""Terminal output of a backtest: a table of all methods, or a few sentences."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.backtest.report_results import (
    STRATEGY_ORDER,
    Method,
    Result,
    rank_results,
    read_results,
)
from forewarn.pipelines.rendering.templates import amount, count, per_hundred, plural

__all__ = ["backtest_summary", "lead_sentences", "short_table"]

_RANKING = "blend"  # ranks the list in production
_MAX_ROWS = 8
_LABELS = {"blend": "forewarn (blend)"}


def _share(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.1%}"


def _score(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.3f}"


def _interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f"[{bounds[0]:.2f}, {bounds[1]:.2f}]"


def _row(name: str, paper: PaperMetrics, fleet: FleetMetrics) -> str:
    lead = fleet.lead_time_hours.p50
    return (
        f"{name:<24} {_share(fleet.list_precision)} "
        f"{_interval(fleet.list_precision_interval):<13} "
        f"{count(fleet.failures_caught):>3} of {fleet.failures:<3} "
        f"{'    -' if lead is None else f'{lead:5.1f}'}  "
        f"{_score(fleet.average_precision)}   "
        f"{_score(paper.precision_at_k)} {_interval(paper.precision_at_k_interval)}"
    )


def backtest_summary(report: BacktestReport) -> str:
    """Return the table of all methods, the configured strategy first.

    Daily lists are on the left, the paper's protocol is on the right.
    """
    strategies = dict.fromkeys((report.configured, *STRATEGY_ORDER))
    head = (
        f"{'':24} daily list at true prevalence                    paper's 1:8 test set\n"
        f"{'method':<24} precision           caught   lead h  avg.pr.  precision@K"
    )
    rows = [
        _row(name, report.methods[name], report.fleet[name])
        for strategy in strategies
        for name in report.methods
        if name.endswith(f"_{strategy}")
    ]
    return "\n".join([head, *rows])


def lead_sentences(report: BacktestReport, without_sign: int) -> list[str]:
    """Return sentences about the daily list of a simulated fleet, by the configured strategy.

    Parameters
    ----------
    report : BacktestReport
    without_sign : int
        Failures without any prior symptom, known only in a simulation.
    """
    results = rank_results(
        read_results(report.fleet, "list_precision", report.differences.get("list_precision")),
        report.configured,
    )
    by_name = {result.method.name: result for result in results}
    figures = by_name[_RANKING].figures
    others = _found_by_others(by_name)
    notice = figures.lead_time_hours.p50
    early = "" if notice is None else f", half of those at least {notice:.0f} h ahead"
    lines = [
        f"Of {plural(figures.failures, 'failure')}, {count(without_sign)} came without a sign "
        f"(known only in a simulation) and {count(figures.failures - without_sign)} after signs.",
        f"Daily lists of {_listed(figures)} of {count(report.gpus)} GPUs named "
        f"{count(figures.failures_caught)} of them before they failed{early}"
        + (f"; {' and '.join(others)}." if others else "."),
        f"Of 100 GPUs on a list, {_between(figures)} failed within a day; of 100 random GPUs, "
        f"{per_hundred(_by_chance(report))}.",
        _against_rules(by_name),
    ]
    return [line for line in lines if line]


def _found_by_others(by_name: Mapping[str, Result[FleetMetrics]]) -> list[str]:
    """Return how many failures lists of the same length by rules and by chance find."""
    words = {"rules": "fixed rules find {}", "random": "chance finds {}"}
    return [
        text.format(amount(by_name[name].figures.failures_caught, 0 if name == "rules" else 1))
        for name, text in words.items()
        if name in by_name
    ]


def _by_chance(report: BacktestReport) -> float | None:
    """Return the expected precision of a random list."""
    random = report.fleet.get(f"random_{report.configured}")
    return report.prevalence if random is None else random.list_precision


def _against_rules(by_name: Mapping[str, Result[FleetMetrics]]) -> str:
    """Compare the list with the built-in rules, which need no training."""
    if "rules" not in by_name:
        return ""
    difference = by_name[_RANKING].against(by_name["rules"])
    if difference is None or difference.interval is None:
        return ""
    more, low, high = (
        amount(100.0 * value, 1) for value in (difference.difference, *difference.interval)
    )
    return (
        f"Compared with fixed rules, which need no training, this is {difference.verdict} "
        f"(difference {more}, interval {low} to {high})."
    )


def _between(figures: FleetMetrics) -> str:
    bounds = figures.list_precision_interval
    text = per_hundred(figures.list_precision)
    return (
        text if bounds is None else f"{text} ({per_hundred(bounds[0])} to {per_hundred(bounds[1])})"
    )


def _listed(figures: FleetMetrics) -> str:
    sizes = sorted({day.listed for day in figures.days})
    return " to ".join(dict.fromkeys((count(sizes[0]), count(sizes[-1])))) if sizes else "none"


def short_table(report: BacktestReport) -> str:
    """Return a table of the methods by the configured strategy, best first, at most eight rows."""
    results = rank_results(read_results(report.fleet, "list_precision"), report.configured)
    rows = [result for result in results if _is_shown(result.method, report)][:_MAX_ROWS]
    head = (
        f"{'the list ranked by':<26}{'failed, of 100 listed':<24}{'caught':<12}"
        f"{'hours ahead':<13}average precision"
    )
    return "\n".join([head, *map(_short_row, rows)])


def _is_shown(method: Method, report: BacktestReport) -> bool:
    """Return False for ensembles of one model, which duplicate that model."""
    names = {Method.from_key(key).name for key in report.fleet}
    single = len({"cnn", "mlp", "gbdt", "lstm"} & names) == 1
    if method.name == "cascade_first":
        return False
    return method.name not in ("parallel", "cascade") if single else True


def _short_row(result: Result[FleetMetrics]) -> str:
    figures = result.figures
    label = _LABELS.get(result.method.name, result.method.label)
    caught = f"{count(figures.failures_caught)} of {count(figures.failures)}"
    ahead = amount(figures.lead_time_hours.p50, 0)
    return (
        f"{label:<26}{_between(figures):<24}{caught:<12}{ahead:<13}"
        f"{amount(figures.average_precision)}"
    )
