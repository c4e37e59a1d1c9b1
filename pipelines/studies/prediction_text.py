"""Tables of the prediction study for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forewarn.pipelines.rendering.templates import plural

__all__ = ["prediction_text"]

_LABEL_WIDTH = 21


def prediction_text(study: Mapping[str, Any]) -> str:
    """Return all tables of a prediction study."""
    k, random = 100 * study["k"], study["random"]
    fleets = study["fleets"]
    failures = sum(fleet["failures"] for fleet in fleets)
    positives = sum(fleet["positives"] for fleet in fleets)
    lines = [
        f"{plural(len(fleets), 'simulated fleet')} of {study['gpus']} GPUs and {study['days']} "
        f"days, {failures} failures, {positives} positive instances",
        f"precision@K of the top {k:g} % of test sets with 1 positive to "
        f"{study['negatives_per_positive']:g} negatives: mean over windows, and "
        f"{100 * study['interval_level']:g} % interval from resampling machines; a random score "
        f"has {random:.3f}",
    ]
    every = f"retrained every {study['retrain_every_days']:g} days"
    for span, strategies in study["strategies"].items():
        lines += ["", *_table(f"{span}, {every}", strategies)]
    lines += ["", *_gains(study["strategies"]["all days"])]
    lengths = {f"{length} days": methods for length, methods in study["lengths"].items()}
    lines += ["", *_table(f"training length, {every}", lengths)]
    schedules = {f"{days} days": row for days, row in study["retraining"].items() if row}
    lines += ["", *_table("days between retrainings, longest length", schedules)]
    lines += ["", *_days(study["by_day"])]
    lines += ["", *_paper(study["paper"])]
    lines.append("hindsight: the best length of each window, an upper bound.")
    return "\n".join(lines)


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table with one row per method and one column per entry of `rows`."""
    methods = dict.fromkeys(method for figures in rows.values() for method in figures)
    lines = [
        f"{title:{max(len(title), 12)}}",
        f"{'':12}" + "".join(f"{n:>{_LABEL_WIDTH}}" for n in rows),
    ]
    for method in methods:
        cells = (_cell(figures.get(method)) for figures in rows.values())
        lines.append(f"{method:12}" + "".join(f"{cell:>{_LABEL_WIDTH}}" for cell in cells))
    return lines


def _cell(figure: Mapping[str, Any] | None) -> str:
    if figure is None or figure["precision"] is None:
        return "-"
    between = figure["interval"]
    return f"{figure['precision']:.3f}" + (
        f" [{between[0]:.2f}, {between[1]:.2f}]" if between else ""
    )


def _gains(strategies: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the differences between strategies, with paired bootstrap draws of machines."""
    compared = (
        ("sliding", "over_fixed", "sliding - fixed"),
        ("variable", "over_sliding", "variable - sliding"),
        ("steady", "over_sliding", "steady - sliding"),
        ("hindsight", "over_sliding", "hindsight - sliding"),
    )
    columns = [column for column in compared if column[0] in strategies]
    lines = ["gains, all days", f"{'':12}" + "".join(f"{name:>24}" for *_, name in columns)]
    for method in strategies["sliding"]:
        cells = []
        for strategy, key, _ in columns:
            gain = strategies[strategy].get(method, {}).get(key)
            between = gain and gain["interval"]
            text = "-" if not gain else f"{gain['difference']:+.3f}"
            cells.append(text + (f" [{between[0]:+.2f}, {between[1]:+.2f}]" if between else ""))
        lines.append(f"{method:12}" + "".join(f"{cell:>24}" for cell in cells))
    return lines


def _days(by_day: Mapping[str, list[Mapping[str, Any]]]) -> list[str]:
    """Return the precision by day since training, and its mean."""
    most = max(map(len, by_day.values()), default=0)
    head = "".join(f"{f'day {day + 1}':>{_LABEL_WIDTH}}" for day in range(most))
    lines = ["by day since training, longest length", f"{'':12}{head}{'mean':>8}"]
    for method, figures in by_day.items():
        known = [figure["precision"] for figure in figures if figure["precision"] is not None]
        mean = f"{sum(known) / len(known):>8.3f}" if known else f"{'-':>8}"
        cells = "".join(f"{_cell(figure):>{_LABEL_WIDTH}}" for figure in figures)
        lines.append(f"{method:12}{cells}{mean}")
    return lines


def _paper(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the paper's figures and these. Its fleet is real: compare signs, not sizes."""
    lines = ["the paper's figures (arXiv 2201.11853)"]
    lines.append(f"{'':36}{'method':>10}{'paper':>16}{'here':>{_LABEL_WIDTH}}")
    for figure in figures:
        label = f"{figure['figure']:36}{figure['method']:>10}{figure['paper']:>16}"
        cell = _cell({"precision": figure["here"], "interval": figure["interval"]})
        lines.append(f"{label}{cell:>{_LABEL_WIDTH}}")
    return lines
