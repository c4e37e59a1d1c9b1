"""The findings of a backtest, in plain sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.calibration_metrics import CalibrationMetrics
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.pipelines.backtest.backtest_report import BacktestReport, ExcludedInstances
from forewarn.pipelines.backtest.report_results import (
    Estimate,
    Figures,
    Result,
    best_result,
    estimate,
    rank_results,
)
from forewarn.pipelines.rendering.templates import (
    amount,
    count,
    moment,
    per_hundred,
    plural,
)

__all__ = [
    "calibration_text",
    "excluded_text",
    "fleet_summary",
    "protocol_verdicts",
    "strategy_text",
    "verdicts",
]

Writer = Callable[[Estimate], str]
_GOOD_SLOPE = (0.8, 1.25)
_INFORMATIVE_SLOPE = 0.5, 2.0  # an interval beyond says little of the slope
_STRATEGY = {
    "variable": "trained anew each time, on the span that was best of late",
    "steady": "trained anew each time, on a span that changes only on evidence",
    "sliding": "trained anew each time, on the longest span",
    "fixed": "trained once",
}

_STEPS = (
    ("sliding", "fixed", "Training anew"),
    ("variable", "sliding", "Choosing the span each time"),
    ("steady", "sliding", "Choosing it over several windows"),
)


def fleet_summary(
    report: BacktestReport, results: Sequence[Result[FleetMetrics]], lead: str
) -> list[str]:
    """Say what the daily list would have been worth, the most important sentence first.

    Parameters
    ----------
    report : Report
    results : sequence of Result
        Its ``fleet`` section, by list precision.
    lead : str
        The strategy that leads the report.
    """
    top = best_result(rank_results(results, lead), "ensemble", "model")
    if top is None:
        return ["The backtest has no daily list at true prevalence to report on."]
    lines = [_listed(top, report), _caught(top.figures), _by_chance(report, results, lead)]
    n_methods = sum(1 for result in rank_results(results, lead) if result.method.kind != "baseline")
    how = _STRATEGY.get(lead, "")
    chosen = f"These are the figures of {top.method.label}" + (f", {how}" if how else "")
    if n_methods > 1:
        chosen += f": the best of {n_methods} methods, and choosing it afterwards flatters it"
    return [line for line in (*lines, f"{chosen}.") if line]


def _listed(result: Result[FleetMetrics], report: BacktestReport) -> str:
    """Say how many of the listed GPUs failed."""
    share, within = per_hundred(result.estimate.value), _within(report)
    text = f"Of 100 GPUs on the daily list, {share} failed within {within}"
    return f"{text}{_between(result.estimate)}."


def _between(figure: Estimate) -> str:
    """Write an interval of a share, in hundredths, where there is one."""
    if figure.low is None or figure.high is None:
        return ""
    return f" (interval {per_hundred(figure.low)} to {per_hundred(figure.high)})"


def _within(report: BacktestReport) -> str:
    """Write the horizon."""
    hours = report.horizon_hours
    return "a day" if hours == 24.0 else f"{hours:g} h"


def _caught(figures: FleetMetrics) -> str:
    """Say how many failures were on the list beforehand, and how early."""
    failures = figures.failures
    were = "was" if failures == 1 else "were"
    text = f"{count(figures.failures_caught)} of {plural(failures, 'failure')} {were} on it"
    text += " beforehand"
    median, early = figures.lead_time_hours.p50, figures.lead_time_hours.p10
    if median is not None:
        text += f"; the median warning was {median:.1f} h"
        text += "" if early is None else f", and 9 in 10 came at least {early:.1f} h ahead"
    return f"{text}."


def _by_chance(report: BacktestReport, results: Sequence[Result[FleetMetrics]], lead: str) -> str:
    """Say what a random list reaches."""
    drawn = [result for result in rank_results(results, lead) if result.method.name == "random"]
    if drawn and drawn[0].estimate.value is not None:
        return f"A list drawn at random had {per_hundred(drawn[0].estimate.value)} of 100."
    if report.prevalence is None:
        return ""
    return f"A list drawn at random would have about {per_hundred(report.prevalence)} of 100."


def excluded_text(left: ExcludedInstances) -> str:
    """Say which instances and daily lists are not judged since the records end; empty if none."""
    days = left.days
    if not left.instances:
        return ""
    text = (
        f"Left out: {plural(left.instances, 'instance')} ({count(left.positives)} of them with a "
        f"failure known) that end from {moment(left.since)} on. The records end at "
        f"{moment(left.last_record)}, less than the horizon after them: by then failures "
        "are known, but not who stays healthy."
    )
    if not days:
        return text
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{text} So {plural(len(days), 'daily list')} ({span}) {_is(days)} not judged."


def _is(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def verdicts(results: Sequence[Result[FleetMetrics]], lead: str) -> list[str]:
    """Compare the methods of the daily list: models with baselines, ensembles with models."""
    return _comparisons(rank_results(results, lead), _share)


def protocol_verdicts(results: Sequence[Result[Figures]], lead: str) -> list[str]:
    """Compare the methods on one protocol; on the 1:8 test set an ensemble may flag fewer."""
    of_lead = rank_results(results, lead)
    return _comparisons(of_lead, _decimal) + _shorter_lists(of_lead)


def _shorter_lists(results: Sequence[Result[Any]]) -> list[str]:
    """Name the ensembles whose precision is of fewer instances than that of a single model."""
    flagged = {
        result.method: figures.flagged
        for result in results
        if isinstance(figures := result.figures, PaperMetrics)
    }
    single = best_result(results, "model")
    most = 0 if single is None else flagged.get(single.method, 0)
    fewer = [
        f"{method.label} ({count(number)})"
        for method, number in flagged.items()
        if method.kind == "ensemble" and number < most
    ]
    if not fewer:
        return []
    flag = "flags" if len(fewer) == 1 else "flag"
    return [
        f"{_and(fewer)} {flag} fewer instances than a single model ({count(most)}): a precision of "
        "a shorter list, to be read with its recall."
    ]


def _share(figure: Estimate) -> str:
    """Write a share as so many of a hundred, with its interval."""
    return f"{per_hundred(figure.value)} of 100{_between(figure)}"


def _decimal(figure: Estimate) -> str:
    """Write a figure with three digits, with its interval."""
    if figure.low is None or figure.high is None:
        return amount(figure.value)
    return f"{amount(figure.value)} ({amount(figure.low)} to {amount(figure.high)})"


def _comparisons(results: Sequence[Result[Figures]], write: Writer) -> list[str]:
    """Write the comparisons that every reader asks for."""
    top, baseline = best_result(results, "ensemble", "model"), best_result(results, "baseline")
    single = best_result(results, "model")
    lines = []
    if top is not None:
        lines.append(f"Best: {top.method.label}, {write(top.estimate)}.")
    if single is not None and single is not top:
        lines.append(f"Best single model: {single.method.label}, {write(single.estimate)}.")
    if top is not None and baseline is not None:
        lines.append(_against_baseline(top, baseline, write))
    if single is not None:
        ensembles = [result for result in results if result.method.kind == "ensemble"]
        comparison = _grouped(
            (result.method.label, result.estimate, single.estimate) for result in ensembles
        )
        if comparison:
            lines.append(f"Against the best single model ({single.method.label}), {comparison}.")
    return lines


def _against_baseline(top: Result[Figures], baseline: Result[Figures], write: Writer) -> str:
    """Say whether the models are worth more than something trivial."""
    verdict = top.estimate.against(baseline.estimate)
    text = f"Best baseline: {baseline.method.label}, {write(baseline.estimate)}. "
    text += f"Against it, {top.method.label} is {verdict}"
    if verdict in ("worse", "not distinguishable"):
        text += ": this data does not show that the models are worth their cost"
    return f"{text}."


def _grouped(pairs: Iterable[tuple[str, Estimate, Estimate]]) -> str:
    """Say for whom a figure is better than another, for whom worse, and for whom neither."""
    groups: dict[str, list[str]] = {}
    for label, figure, other in pairs:
        groups.setdefault(figure.against(other), []).append(label)
    if len(groups) == 1 and sum(map(len, groups.values())) > 2:
        verdict, who = next(iter(groups.items()))
        return f"all {len(who)} are {verdict}"
    return "; ".join(
        f"{_and(who)} {'is' if len(who) == 1 else 'are'} {verdict}"
        for verdict, who in groups.items()
    )


def strategy_text(results: Sequence[Result[Figures]]) -> list[str]:
    """Say whether training anew, and choosing the span, were worth it, and for which methods."""
    figures = {
        (result.method.label, result.method.strategy): result.estimate
        for result in results
        if result.method.kind != "baseline" and result.estimate.value is not None
    }
    labels = list(dict.fromkeys(label for label, _ in figures))
    lines = []
    for new, old, meaning in _STEPS:
        comparison = _grouped(
            (label, figures[label, new], figures[label, old])
            for label in labels
            if (label, new) in figures and (label, old) in figures
        )
        if comparison:
            lines.append(f"{meaning} ({new} against {old}): {comparison}.")
    return lines


def _and(names: Sequence[str]) -> str:
    """Join names as a sentence does."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def calibration_text(figures: CalibrationMetrics) -> str:
    """Say whether a probability of the list can be taken at its word."""
    slope = estimate(figures, "slope")
    if slope.value is None:
        return "No slope could be fitted: too few positives, or no out-of-time scores."
    low, high = _GOOD_SLOPE
    text = (
        f"Slope {slope.value:.2f} ({_slope_between(slope)}1 is perfect, {low} to {high} is good): "
    )
    if slope.low is None or slope.high is None:
        return text + "too few machines failed to tell how far it holds."
    if low <= slope.value <= high:
        if _INFORMATIVE_SLOPE[0] <= slope.low and slope.high <= _INFORMATIVE_SLOPE[1]:
            return text + "differences between probabilities can be taken at their word."
        return text + "whether the probabilities can be taken at their word cannot be told."
    wrong, promise = ("extreme", "much") if slope.value < low else ("timid", "little")
    if slope.low <= high and low <= slope.high:
        return text + f"whether the probabilities are too {wrong} cannot be told."
    return text + f"the probabilities are too {wrong}; high ones promise too {promise}."


def _slope_between(slope: Estimate) -> str:
    """Write the interval of a slope, if it has one."""
    known = [amount(end, 2) for end in (slope.low, slope.high) if end is not None]
    return f"{' to '.join(known)}; " if len(known) == 2 else ""
