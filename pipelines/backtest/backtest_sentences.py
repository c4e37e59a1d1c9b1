"""Findings of a backtest as sentences."""

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
    rank_results,
    read_estimate,
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
_GOOD = (0.8, 1.25)  # of slope and ratio
_INFORMATIVE_SLOPE = 0.5, 2.0  # wider intervals are uninformative
_STRATEGY = {
    "expanding": "retrained each time on all earlier records",
    "variable": "retrained each time on the span that was best on the last finished window",
    "steady": "retrained each time on a span that changes only with evidence",
    "sliding": "retrained each time on the longest span",
    "fixed": "trained once",
}

_STEPS = (
    ("sliding", "fixed", "Retraining"),
    ("variable", "sliding", "Choosing the span each time"),
    ("steady", "sliding", "Choosing the span over several windows"),
)


def fleet_summary(
    report: BacktestReport, results: Sequence[Result[FleetMetrics]], lead: str
) -> list[str]:
    """Return a summary of the daily list, the most important sentence first.

    Parameters
    ----------
    report : BacktestReport
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
    chosen = f"These are the results of {top.method.label}" + (f", {how}" if how else "")
    if n_methods > 1:
        chosen += f": the best of {n_methods} methods; choosing it afterwards is optimistic"
    return [line for line in (*lines, f"{chosen}.") if line]


def _listed(result: Result[FleetMetrics], report: BacktestReport) -> str:
    """Return how many of the listed GPUs failed."""
    share, within = per_hundred(result.estimate.value), _within(report)
    text = f"Of 100 GPUs on the daily list, {share} failed within {within}"
    return f"{text}{_between(result.estimate)}."


def _between(figure: Estimate) -> str:
    """Format an interval of a share in percent; empty without an interval."""
    if figure.low is None or figure.high is None:
        return ""
    return f" (interval {per_hundred(figure.low)} to {per_hundred(figure.high)})"


def _within(report: BacktestReport) -> str:
    """Format the horizon."""
    hours = report.horizon_hours
    return "a day" if hours == 24.0 else f"{hours:g} h"


def _caught(figures: FleetMetrics) -> str:
    """Return how many failures were listed beforehand, and how early."""
    failures = figures.failures
    were = "was" if failures == 1 else "were"
    caught = f"{count(figures.failures_caught)} of {plural(failures, 'failure')}"
    text = f"{caught} {were} listed beforehand"
    median, early = figures.lead_time_hours.p50, figures.lead_time_hours.p10
    if median is not None:
        text += f"; the median lead time was {median:.1f} h"
        text += "" if early is None else f", and 9 in 10 were at least {early:.1f} h"
    return f"{text}."


def _by_chance(report: BacktestReport, results: Sequence[Result[FleetMetrics]], lead: str) -> str:
    """Return the expected precision of a random list."""
    ranked = rank_results(results, lead)
    random = [result.estimate.value for result in ranked if result.method.name == "random"]
    expected = random[0] if random and random[0] is not None else report.prevalence
    if expected is None:
        return ""
    return f"A random list would have {per_hundred(expected)} of 100 on average."


def excluded_text(left: ExcludedInstances) -> str:
    """Return which instances and lists are excluded at the end of the records; empty if none."""
    days = left.days
    if not left.instances:
        return ""
    text = (
        f"Excluded: {plural(left.instances, 'instance')} ({count(left.positives)} of them with a "
        f"known failure) that end from {moment(left.since)} on. The records end at "
        f"{moment(left.last_record)}, within their horizon, so only failures are known and not "
        "which GPUs stay healthy."
    )
    if not days:
        return text
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{text} {plural(len(days), 'daily list')} ({span}) {_is(days)} therefore not evaluated."


def _is(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def verdicts(results: Sequence[Result[FleetMetrics]], lead: str) -> list[str]:
    """Compare the methods of the daily list: models with baselines, ensembles with models."""
    return _comparisons(rank_results(results, lead), _share)


def protocol_verdicts(results: Sequence[Result[Figures]], lead: str) -> list[str]:
    """Compare the methods on the 1:8 test set, where an ensemble may flag fewer instances."""
    of_lead = rank_results(results, lead)
    return _comparisons(of_lead, _decimal) + _shorter_lists(of_lead)


def _shorter_lists(results: Sequence[Result[Any]]) -> list[str]:
    """List the ensembles that flag fewer instances than the best single model."""
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
        f"{_and(fewer)} {flag} fewer instances than a single model ({count(most)}): compare the "
        "precision of shorter lists together with their recall."
    ]


def _share(figure: Estimate) -> str:
    """Format a share in percent with its interval."""
    return f"{per_hundred(figure.value)} of 100{_between(figure)}"


def _decimal(figure: Estimate) -> str:
    """Format a metric with three digits and its interval."""
    if figure.low is None or figure.high is None:
        return amount(figure.value)
    return f"{amount(figure.value)} ({amount(figure.low)} to {amount(figure.high)})"


def _comparisons(results: Sequence[Result[Figures]], write: Writer) -> list[str]:
    """Return the standard comparisons of methods."""
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
        comparison = _grouped((result, single) for result in ensembles)
        if comparison:
            lines.append(f"Against the best single model ({single.method.label}), {comparison}.")
    return lines


def _against_baseline(top: Result[Figures], baseline: Result[Figures], write: Writer) -> str:
    """Return whether the best model is better than the best baseline."""
    verdict = _verdict(top, baseline)
    text = f"Best baseline: {baseline.method.label}, {write(baseline.estimate)}. "
    text += f"Compared with it, {top.method.label} is {verdict}"
    if verdict in ("worse", "not distinguishable"):
        text += ": these data do not show a benefit of the models"
    return f"{text}."


def _verdict(result: Result[Figures], other: Result[Figures]) -> str:
    """Return whether a method is better than another one, by their paired difference."""
    difference = result.against(other)
    return "not comparable" if difference is None else difference.verdict


def _grouped(pairs: Iterable[tuple[Result[Figures], Result[Figures]]]) -> str:
    """Group methods by the result of a comparison."""
    groups: dict[str, list[str]] = {}
    for result, other in pairs:
        groups.setdefault(_verdict(result, other), []).append(result.method.label)
    if len(groups) == 1 and sum(map(len, groups.values())) > 2:
        verdict, names = next(iter(groups.items()))
        return f"all {len(names)} are {verdict}"
    return "; ".join(
        f"{_and(names)} {'is' if len(names) == 1 else 'are'} {verdict}"
        for verdict, names in groups.items()
    )


def strategy_text(results: Sequence[Result[Figures]]) -> list[str]:
    """Return for which methods retraining and choosing the span improve the metric."""
    known = {
        (result.method.label, result.method.strategy): result
        for result in results
        if result.method.kind != "baseline" and result.estimate.value is not None
    }
    labels = list(dict.fromkeys(label for label, _ in known))
    lines = []
    for new, old, meaning in _STEPS:
        comparison = _grouped(
            (known[label, new], known[label, old])
            for label in labels
            if (label, new) in known and (label, old) in known
        )
        if comparison:
            lines.append(f"{meaning} ({new} against {old}): {comparison}.")
    return lines


def _and(names: Sequence[str]) -> str:
    """Join names with commas and "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def calibration_text(figures: CalibrationMetrics) -> str:
    """Return whether the probabilities of the list are calibrated, in level and in spread."""
    return " ".join(filter(None, (_level_text(figures), _slope_text(figures))))


def _level_text(figures: CalibrationMetrics) -> str:
    """Return whether as many instances failed as the probabilities say; empty if unknown."""
    ratio, n = read_estimate(figures, "ratio"), sum(group.count for group in figures.bins)
    if ratio.value is None or not n:
        return ""
    observed = sum(group.positives for group in figures.bins)
    text = (
        f"{count(observed / ratio.value)} of {count(n)} instances were expected to fail and "
        f"{count(observed)} did, {ratio.value:.2f} times as many"
    )
    if ratio.low is None or ratio.high is None:
        return f"{text}; too few machines failed to give an interval."
    text += f" ({amount(ratio.low, 2)} to {amount(ratio.high, 2)}): "
    if ratio.low > 1.0 or ratio.high < 1.0:
        slightly = "slightly " if _GOOD[0] <= ratio.value <= _GOOD[1] else ""
        return f"{text}the probabilities are {slightly}too {'low' if ratio.low > 1.0 else 'high'}."
    precise = _GOOD[0] <= ratio.low and ratio.high <= _GOOD[1]
    return text + ("their level is right." if precise else "a right level is possible.")


def _slope_text(figures: CalibrationMetrics) -> str:
    """Return whether high and low probabilities differ by the right amount."""
    slope = read_estimate(figures, "slope")
    if slope.value is None:
        return "No slope could be fitted: too few positives, or no out-of-time scores."
    low, high = _GOOD
    text = (
        f"Slope {slope.value:.2f} ({_slope_between(slope)}1 is perfect, {low} to {high} is good): "
    )
    if slope.low is None or slope.high is None:
        return text + "too few machines failed to give an interval."
    if low <= slope.value <= high:
        if _INFORMATIVE_SLOPE[0] <= slope.low and slope.high <= _INFORMATIVE_SLOPE[1]:
            return text + "high and low probabilities differ by the right amount."
        return text + "the interval is too wide to tell whether the spread is right."
    wrong, side = ("over", "high") if slope.value < low else ("under", "low")
    if slope.low <= high and low <= slope.high:
        return text + f"the interval is too wide to tell whether they are {wrong}confident."
    return text + f"the probabilities are {wrong}confident; high ones are too {side}."


def _slope_between(slope: Estimate) -> str:
    """Format the interval of a slope; empty without one."""
    known = [amount(end, 2) for end in (slope.low, slope.high) if end is not None]
    return f"{' to '.join(known)}; " if len(known) == 2 else ""
