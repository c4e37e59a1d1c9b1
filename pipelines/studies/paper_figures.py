"""The figures of arXiv 2201.11853, each with that of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.prediction.metrics.paper_protocol import paper_protocol, precision_draws
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable

__all__ = ["paper_figures"]

_MONTH = "first 30 days"
_APRIL: Mapping[str, Mapping[str, float]] = {
    "fixed": {"cnn": 0.463, "parallel": 0.582, "cascade": 0.501},
    "sliding": {"cnn": 0.67, "parallel": 0.8, "cascade": 0.781},
}
_THREE_MONTHS = {"hindsight": {"parallel": 0.84, "cascade": 0.769}}
_FIRST_DAYS = {"cnn": 0.663, "mlp": 0.608, "gbdt": 0.579, "lstm": 0.474}
_HINDSIGHT_GAINS = {"parallel": 0.054, "cascade": 0.026}
_FALL = "0.286 to 0.430"
_VARIANCES = {"parallel": (0.058, 0.009), "cascade": (0.051, 0.014)}


def paper_figures(
    strategies: Mapping[str, Any], days: Sequence[ScoreTable]
) -> list[dict[str, Any]]:
    """Return the paper's figures and those of the same name here, where the study has them.

    Parameters
    ----------
    strategies : mapping
        `strategies` of a prediction study.
    days : sequence of ScoreTable
        Test sets of the first, second, ... day after a training. Their machines are ordered
        categories, so that draws are paired.

    Returns
    -------
    list of dict
        `figure`, `method`, `paper`, `here` and `interval`: None where it has none.
    """
    figures = [*_precisions(strategies), *_first_days(days), *_gains(strategies)]
    figures += _variances(strategies[_MONTH])
    names = ("figure", "method", "paper", "here", "interval")
    return [dict(zip(names, figure, strict=True)) for figure in figures]


_Figure = tuple[str, str, float | str, float, Any]


def _precisions(strategies: Mapping[str, Any]) -> Iterator[_Figure]:
    for span, of_strategies in ((_MONTH, _APRIL), ("all days", _THREE_MONTHS)):
        for strategy, of_methods in of_strategies.items():
            for method, paper in of_methods.items():
                figure = strategies[span][strategy].get(method)
                if figure and figure["precision"] is not None:
                    name = f"{strategy}, {span}"
                    yield name, method, paper, figure["precision"], figure["interval"]


def _first_days(days: Sequence[ScoreTable]) -> Iterator[_Figure]:
    """Yield the mean precision of the days after a training, and how far it falls."""
    for method, paper in _FIRST_DAYS.items():
        if not days or method not in days[0].methods:
            continue
        precisions = [paper_protocol(table, method).precision_at_k for table in days]
        draws = [precision_draws(table, method) for table in days]
        if None in precisions or not all(map(len, draws)):
            continue
        known = np.array(precisions, dtype=np.float64)
        mean = percentile_interval(np.mean(draws, axis=0))
        yield f"mean of days 1 to {len(days)}", method, paper, float(known.mean()), mean
        if known[0] > 0.0:
            with np.errstate(invalid="ignore", divide="ignore"):
                fall = percentile_interval(1.0 - draws[-1] / draws[0])
            name = f"fall from day 1 to day {len(days)}"
            yield name, method, _FALL, float(1.0 - known[-1] / known[0]), fall


def _gains(strategies: Mapping[str, Any]) -> Iterator[_Figure]:
    for method, paper in _HINDSIGHT_GAINS.items():
        if gain := strategies[_MONTH]["hindsight"].get(method, {}).get("over_sliding"):
            name = "gain of hindsight, 30 days"
            yield name, method, paper, gain["difference"], gain["interval"]


def _variances(strategies: Mapping[str, Any]) -> Iterator[_Figure]:
    """Yield the variance of the precision between test windows."""
    for number, strategy in enumerate(("fixed", "sliding")):
        for method, papers in _VARIANCES.items():
            figure = strategies[strategy].get(method)
            if figure and figure["variance"] is not None:
                name = f"variance between windows, {strategy}"
                yield name, method, papers[number], figure["variance"], None
