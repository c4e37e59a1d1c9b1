"""Results of a backtest by test window and by day since training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics, WindowMetrics
from forewarn.pipelines.backtest.backtest_plots import (
    MethodLine,
    precision_figure,
    training_lengths_figure,
)
from forewarn.pipelines.backtest.report_results import Result, best_result, rank_results
from forewarn.pipelines.rendering.svg_figures import inline_svg
from forewarn.pipelines.rendering.templates import amount, plural

__all__ = ["OverTime", "WindowRow", "days_since_training", "over_time", "test_windows"]

_MAX_ENSEMBLES = 2  # in the plot; more than five lines are hard to distinguish


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One test window: start, training span and the precision of every line."""

    start: pd.Timestamp
    trained_days: float | None
    positives: float | None
    precision: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class OverTime:
    """Precision per test window, as a plot and as a table."""

    svg: Markup
    labels: tuple[str, ...]
    rows: tuple[WindowRow, ...]
    spans: str  # chosen training lengths, as text
    spans_svg: Markup  # as a plot; empty without a choice


def test_windows(figures: PaperMetrics) -> dict[pd.Timestamp, WindowMetrics]:
    """Return the test windows of a method by start, in order of time."""
    windows = {pd.Timestamp(window.start): window for window in figures.windows}
    return {start: windows[start] for start in sorted(windows)}


def over_time(
    results: Sequence[Result[PaperMetrics]], lead: str, *, chance: float
) -> OverTime | None:
    """Return the precision of the most important methods over the test windows.

    Parameters
    ----------
    results : sequence of Result
        The ``methods`` section, by precision@K.
    lead : str
        The strategy that leads the report. The first method is also shown with the strategy
        ``fixed``, for comparison.
    chance : float
        Precision of a random score.

    Returns
    -------
    OverTime or None
        None if no method has a test window.
    """
    chosen = _plotted_methods(rank_results(results, lead))
    if not chosen or not any(result.figures.windows for result in chosen):
        return None
    series = [_series(result) for result in chosen]
    once = [result for result in results if result.method.strategy == "fixed" and lead != "fixed"]
    series += [
        _series(result, once=True) for result in once if result.method.name == chosen[0].method.name
    ]
    rows = _rows(chosen[0].figures, series)
    spans = _spans([row.trained_days for row in rows])
    return OverTime(
        svg=_picture(series, rows, chance),
        labels=tuple(result.label for result in series),
        rows=rows,
        spans=spans,
        spans_svg=_spans_picture(rows, spans) if lead in ("variable", "steady") else Markup(),
    )


def _plotted_methods(rows: Sequence[Result[PaperMetrics]]) -> list[Result[PaperMetrics]]:
    """Return the best ensembles, the best single model and the best non-random baseline."""
    known = [
        result
        for result in rows
        if result.estimate.value is not None and result.method.name != "random"
    ]
    ensembles = [result for result in known if result.method.kind == "ensemble"][:_MAX_ENSEMBLES]
    singles = [best_result(known, "model"), best_result(known, "baseline")]
    models = [*ensembles, *(result for result in singles if result is not None)]
    return sorted(models, key=lambda result: result.method.kind == "baseline")


def _series(result: Result[PaperMetrics], *, once: bool = False) -> MethodLine:
    """Return a line of the plot."""
    windows = test_windows(result.figures)
    label = f"{result.method.label}, trained once" if once else result.method.label
    values = [window.precision_at_k for window in windows.values()]
    kind = result.method.kind
    return MethodLine(
        label, list(windows), values, "fixed" if once else "model" if kind != "baseline" else kind
    )


def _rows(first: PaperMetrics, series: Sequence[MethodLine]) -> tuple[WindowRow, ...]:
    """Align the series by test window; spans and positives are those of the first method."""
    windows = test_windows(first)
    figures = [dict(zip(line.starts, line.figures, strict=True)) for line in series]
    starts = sorted({start for line in series for start in line.starts})
    return tuple(
        WindowRow(
            start=start,
            trained_days=windows[start].train_length_days if start in windows else None,
            positives=windows[start].positives if start in windows else None,
            precision=tuple(line.get(start) for line in figures),
        )
        for start in starts
    )


def _picture(series: Sequence[MethodLine], rows: Sequence[WindowRow], chance: float) -> Markup:
    """Plot the lines, with a text alternative."""
    phrases = []
    for line in series:
        known = [value for value in line.figures if value is not None]
        if known:
            span = f"between {amount(min(known), 2)} and {amount(max(known), 2)}"
            phrases.append(f"{line.label} lies {span}")
    return inline_svg(
        precision_figure(series, chance=chance),
        title=f"Precision at K over {plural(len(rows), 'test window')}",
        description=f"Line chart. {'; '.join(phrases)}. The table below holds the same values.",
    )


def _spans(days: Sequence[float | None]) -> str:
    """Return how often each training length was chosen, as text."""
    counts = Counter(span for span in days if span is not None)
    phrases = [f"{span:g} days in {plural(n, 'window')}" for span, n in sorted(counts.items())]
    return ", ".join(phrases)


def _spans_picture(rows: Sequence[WindowRow], spans: str) -> Markup:
    """Plot the training length of every test window if it ever changed."""
    days = [row.trained_days for row in rows]
    if len(set(days)) < 2:
        return Markup()
    return inline_svg(
        training_lengths_figure([row.start for row in rows], days),
        title="Training length chosen for each test window",
        description=f"Bar chart: {spans}.",
    )


def days_since_training(results: Sequence[Result[PaperMetrics]], lead: str) -> dict[str, Any]:
    """Return the precision by day since the last training.

    Returns
    -------
    dict
        ``n_days``, and ``rows`` of (Result, values, variance); empty if no method has values.
    """
    rows = []
    for result in rank_results(results, lead):
        days = list(result.figures.precision_by_day)
        if days and result.method.name != "random":
            rows.append((result, days, result.figures.precision_variance))
    n_days = max((len(days) for _, days, _ in rows), default=0)
    padded = [(result, days + [None] * (n_days - len(days)), var) for result, days, var in rows]
    return {"n_days": n_days, "rows": padded} if rows else {}
