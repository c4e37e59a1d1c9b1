from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from forewarn.evaluation.prediction.metrics.backtest_metrics import DayMetrics
from forewarn.evaluation.prediction.metrics.calibration_metrics import ProbabilityGroup
from forewarn.pipelines.backtest.backtest_plots import (
    MethodLine,
    daily_list_figure,
    precision_figure,
    reliability_figure,
    training_lengths_figure,
)
from forewarn.pipelines.rendering.svg_figures import COLOURS, inline_svg

STARTS = ["2025-01-17T00:00:00Z", "2025-01-20T00:00:00Z", "2025-01-23T00:00:00Z"]
BINS = [
    ProbabilityGroup(0.001, 0.0, count=9000, positives=0),
    ProbabilityGroup(0.01, 0.012, count=1000, positives=12),
    ProbabilityGroup(0.2, 0.19, count=100, positives=19),
]
DAYS = [DayMetrics("2025-01-18", listed=3, hits=1), DayMetrics("2025-01-19", listed=3, hits=0)]


def precision() -> Figure:
    lines = [
        MethodLine("Parallel", STARTS, [0.8, None, 0.7]),
        MethodLine("Random <i> $x$ 模", STARTS, [0.1, 0.2, 0.1], kind="baseline"),
        MethodLine("Parallel, trained once", STARTS[:2], [0.6, 0.5], kind="fixed"),
    ]
    return precision_figure(lines, chance=1 / 9)


FIGURES: dict[str, Callable[[], Figure]] = {
    "precision": precision,
    "reliability": lambda: reliability_figure(BINS),
    "daily": lambda: daily_list_figure(DAYS),
    "lengths": lambda: training_lengths_figure(STARTS, [15, None, 9]),
    "no-precision": lambda: precision_figure([]),
    "no-reliability": lambda: reliability_figure([]),
    "no-days": lambda: daily_list_figure([]),
    "no-lengths": lambda: training_lengths_figure([], []),
}


def svg(figure: Figure, title: str = "T", description: str = "D") -> str:
    return str(inline_svg(figure, title=title, description=description))


@pytest.mark.parametrize("name", FIGURES)
def test_plot_is_valid_and_deterministic(name: str) -> None:
    once, again = svg(FIGURES[name]()), svg(FIGURES[name]())
    assert once == again
    assert ET.fromstring(once).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("name", FIGURES)
def test_plot_is_self_contained(name: str) -> None:
    text = svg(FIGURES[name]())
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\"'\s]*", text)) == names
    assert "<style" not in text
    assert "<metadata" not in text


def test_site_style_has_no_effect() -> None:
    plain = svg(precision())
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": False}):
        assert svg(precision()) == plain


def test_references_stay_within_plot() -> None:
    text = svg(precision())
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text)
    assert used
    assert {a or b for a, b in used} == set(ids)
    assert not set(ids) & set(re.findall(r'\bid="([^"]*)"', svg(precision(), title="other")))


def test_page_can_change_colours() -> None:
    text = svg(precision())
    assert f"var(--c1, {COLOURS['c1']})" in text
    assert set(re.findall(r"#[0-9a-f]{6}", text)) <= set(COLOURS.values())
    bare = re.sub(r"var\([^)]*\)", "", text)
    assert not re.search(r"(fill|stroke): #", bare)


def test_titles_and_labels_are_escaped() -> None:
    text = svg(precision(), title="<script>", description='"&')
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "Random &lt;i&gt; $x$ 模" in text


def test_missing_window_value_is_gap() -> None:
    (line,) = precision_figure([MethodLine("A", STARTS, [0.8, None, 0.7])]).axes[0].lines
    heights: list[Any] = np.asarray(line.get_ydata()).tolist()
    assert heights[0] == 0.8
    assert heights[1] != heights[1]  # NaN
    assert heights[2] == 0.7


def test_lines_align_by_window() -> None:
    lines = [MethodLine("A", STARTS, [0.1, 0.2, 0.3]), MethodLine("B", STARTS[2:], [0.9])]
    late = precision_figure(lines).axes[0].lines[1]
    assert np.asarray(late.get_ydata()).tolist()[2] == 0.9


def test_reliability_plot_marks_groups_without_failure() -> None:
    axes = reliability_figure(BINS).axes[0]
    diagonal, seen, empty = axes.lines
    assert np.asarray(diagonal.get_xdata()).tolist() == np.asarray(diagonal.get_ydata()).tolist()
    assert np.asarray(seen.get_xdata()).tolist() == [0.01, 0.2]
    assert np.asarray(seen.get_ydata()).tolist() == [0.012, 0.19]
    assert np.asarray(empty.get_xdata()).tolist() == [0.001]
    assert [text.get_text() for text in axes.texts] == ["12", "19"]


def test_reliability_labels_do_not_overlap() -> None:
    predicted = [0.0001, 0.002, 0.01, 0.017, 0.03, 0.05, 0.14]
    observed = [0.0003, 0.004, 0.012, 0.035, 0.065, 0.036, 0.09]
    groups = zip(predicted, observed, strict=True)
    figure = reliability_figure([ProbabilityGroup(x, y, 1000, 100) for x, y in groups])
    axes = figure.axes[0]
    figure.canvas.draw()
    for labels in (axes.texts, axes.get_xticklabels(), axes.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels]
        assert len(boxes) > 3
        pairs = itertools.combinations(boxes, 2)
        assert not any(one.overlaps(other) for one, other in pairs)


def test_daily_plot_shows_listed_and_hits() -> None:
    bars = daily_list_figure(DAYS).axes[0].patches
    assert [bar.get_height() for bar in bars] == [3, 3, 1, 0]  # type: ignore[attr-defined]
