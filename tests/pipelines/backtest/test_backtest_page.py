from __future__ import annotations

import functools
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from forewarn.pipelines.backtest.backtest_page import render_report
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.runtime.progress import JobCosts, StageCost

# name: (precision@K, list precision, recall), as on a hard simulated fleet
LEVELS = {
    "parallel": (0.71, 0.34, 0.41),
    "blend": (0.69, 0.33, 0.44),
    "cascade": (0.66, 0.30, 0.40),
    "gbdt": (0.67, 0.31, 0.43),
    "cnn": (0.58, 0.22, 0.33),
    "mlp": (0.61, 0.25, 0.36),
    "cascade_first": (0.55, 0.20, 0.31),
    "window_gbdt": (0.46, 0.13, 0.24),
    "logistic": (0.37, 0.09, 0.19),
    "rules": (0.35, 0.11, 0.16),
    "last_value": (0.21, 0.04, 0.08),
    "random": (0.112, 0.003, 0.004),
}
STRATEGY_LOSS = {"variable": 1.0, "sliding": 0.96, "fixed": 0.72}
STARTS = pd.date_range("2025-01-17", periods=12, freq="3D", tz="UTC")
FAILURES = 118
PEAK = 2_900_000_000


def method(name: str, strategy: str) -> dict[str, Any]:
    rng = np.random.default_rng(len(name) * 7 + len(strategy))
    level = LEVELS[name][0] * STRATEGY_LOSS[strategy]
    fall = 1.0 if strategy != "fixed" else np.linspace(1.25, 0.75, len(STARTS))
    per_window = np.clip(level * fall + rng.normal(0, 0.07, len(STARTS)), 0, 1)
    ensemble = name in ("parallel", "cascade")
    windows = [
        {
            "start": start.isoformat().replace("+00:00", "Z"),
            "precision_at_k": None if ensemble and i == 6 else float(value),
            "recall_at_k": float(value) * 0.17,
            "flagged": 14,
            "positives": int(60 + 9 * i),
            "train_length_days": [15, 15, 12, 9, 9, 12, 15, 15, 15, 12, 15, 15][i],
        }
        for i, (start, value) in enumerate(zip(STARTS, per_window, strict=True))
    ]
    return {
        "precision_at_k": level,
        "precision_at_k_interval": [level - 0.06, level + 0.06],
        "recall_at_k": level * 0.17,
        "accuracy": None if ensemble else 0.9,
        "average_precision": None if ensemble else level * 0.8,
        "average_precision_interval": None if ensemble else [level * 0.72, level * 0.88],
        "flagged": 101 if ensemble else 168,
        "windows_without_flags": 1 if ensemble else 0,
        "precision_by_day": [level * 1.05, level, level * 0.93],
        "precision_variance": 0.0123,
        "windows": windows,
    }


def daily(name: str, strategy: str) -> dict[str, Any]:
    rng = np.random.default_rng(len(name))
    level = LEVELS[name][1] * STRATEGY_LOSS[strategy]
    caught = round(FAILURES * LEVELS[name][2] * STRATEGY_LOSS[strategy])
    days = [
        {"date": f"{day:%Y-%m-%d}", "listed": 3, "hits": int(rng.binomial(3, level))}
        for day in pd.date_range("2025-01-18", periods=36)
    ]
    return {
        "list_precision": level,
        "list_precision_interval": [level * 0.78, level * 1.22],
        "failures_caught": caught,
        "failures": FAILURES,
        "failures_caught_share": caught / FAILURES,
        "lead_time_hours": {"p10": 2.4, "p50": 11.25},
        "alerts": 97,
        "alerts_per_failure_caught": 97 / max(caught, 1),
        "average_precision": level * 0.9,
        "average_precision_interval": [level * 0.7, level * 1.1],
        "days": days,
    }


def calibration() -> dict[str, Any]:
    predicted = np.array([0.0004, 0.001, 0.0025, 0.006, 0.015, 0.04, 0.1, 0.24, 0.5])
    observed = predicted**0.95 * np.array([0, 1.1, 0.8, 1.2, 0.9, 1.05, 0.9, 0.95, 0.9])
    counts = np.array([400000, 210000, 90000, 30000, 12000, 5000, 1900, 700, 240])
    bins = [
        {"predicted": float(p), "observed": float(o), "count": int(n), "positives": round(o * n)}
        for p, o, n in zip(predicted, observed, counts, strict=True)
    ]
    return {
        "variable": {"slope": 0.93, "slope_interval": [0.7, 1.2], "intercept": -0.05, "bins": bins},
        "fixed": {"slope": 0.61},
    }


def as_report(given: dict[str, Any]) -> BacktestReport:
    """Return the report given by a mapping; missing metrics are None or 0."""
    return TypeAdapter(BacktestReport).validate_python({"configured": "variable"} | given)


def full_report() -> BacktestReport:
    return as_report(report())


def report() -> dict[str, Any]:
    keys = [(name, strategy) for name in LEVELS for strategy in STRATEGY_LOSS]
    return {
        "methods": {f"{name}_{strategy}": method(name, strategy) for name, strategy in keys},
        "fleet": {f"{name}_{strategy}": daily(name, strategy) for name, strategy in keys},
        "calibration": calibration(),
        "prevalence": 0.0031,
        "share": 0.003,
        "k": 0.02,
        "horizon_hours": 24,
        "records": 8_640_000,
        "instances": 792_345,
        "positives": 2456,
        "gpus": 1000,
        "notes": [
            "412 duplicate rows were dropped.",
            "1 retraining was skipped: 3 positives known.",
        ],
        "costs": JobCosts(
            [StageCost("read", 4.2, 3.1, 1_400_000_000), StageCost("train", 540.0, 900.0, PEAK)],
            seconds=702.0,
            peak_rss_bytes=PEAK,
        ),
    }


VOID = {"meta", "br", "rect", "circle", "line"}


class Reader(HTMLParser):
    """Parser that checks that tags are balanced, and keeps text and ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"] or ""] if "id" in found else []
        assert tag != "th" or found.get("scope")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag
        self.text += " " if tag in ("td", "th", "b") else ""

    def handle_data(self, data: str) -> None:
        if not {"style", "svg"} & set(self.open):
            self.text += data


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", Reader(page).text)


@functools.cache
def full_page() -> str:
    return render_report(full_report())


def test_daily_list_is_first() -> None:
    text = text_of(full_page())
    lead = text.index("Of 100 GPUs on the daily list, 34 failed within a day (interval 27 to 41).")
    assert lead < text.index("The daily list, at true prevalence")
    assert text.index("The daily list, at") < text.index("one positive to eight negatives")
    assert "48 of 118 failures were listed beforehand; the median lead time was 11.2 h" in text
    assert "A random list would have 0.3 of 100 on average." in text


def test_paper_protocol_is_explained() -> None:
    text = text_of(full_page())
    assert "a random score already reaches 0.111; in the fleet, one instance in 323" in text
    assert "K is 2 % of the instances of a test window" in text


def test_tables_contain_report_values() -> None:
    text = text_of(full_page())
    assert "Parallel 34 27 to 41 48 of 118 41 % 11.2 2.4 2.0 0.306 0.238 to 0.374" in text
    assert "Parallel 0.710 0.650 to 0.770 0.121 — — 101 1" in text
    assert "GBDT 0.670 0.610 to 0.730 0.114 0.536 0.482 to 0.590 0.900 168 0" in text
    assert "Parallel 24 19 to 30 33 25 to 40 34 27 to 41 0.511" in text  # fixed, sliding, variable
    assert "Parallel 0.745 0.710 0.660 0.012" in text  # by day since training
    assert "2025-01-17 15 60" in text
    assert "9 days in 2 windows, 12 days in 3 windows, 15 days in 7 windows" in text
    assert "train 9.0 min 2.70 GiB" in text
    assert "412 duplicate rows were dropped." in text


def test_baselines_are_below_models() -> None:
    page = full_page()
    for section in ("fleet", "protocol"):
        part = page[page.index(f'<h2 id="{section}"') :]
        models, baselines = part[: part.index("</table>")].split('<tbody class="baselines">')
        assert "Random" not in models
        assert "Random" in baselines
        assert "Parallel" not in baselines


def test_calibration_is_shown() -> None:
    text = text_of(full_page())
    assert "Slope 0.93 (0.70 to 1.20; 1 is perfect, 0.8 to 1.25 is good): high and" in text
    assert "Slopes of the other strategies: fixed: 0.61" in text
    without = report() | {"calibration": {"variable": {"slope": None, "bins": []}}}
    assert "No slope could be fitted" in text_of(render_report(as_report(without)))


def test_plots_have_descriptions_and_unique_ids() -> None:
    page = full_page()
    found = Reader(page)
    assert page.count('<svg class="picture" role="img" aria-label="') == 4
    assert len(found.ids) == len(set(found.ids))


def test_page_is_self_contained() -> None:
    page = full_page()
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\"'\s]*", page)) == names
    assert not {"script", "link", "img", "iframe", "a"} & set(Reader(page).tags)


def test_page_is_deterministic() -> None:
    assert render_report(full_report()) == full_page()


def test_hostile_text_is_escaped() -> None:
    hostile = "<script>alert(1)</script>\u202e"
    given = report()
    given["notes"] = [hostile]
    given["methods"][f"{hostile}_variable"] = method("gbdt", "variable") | {"precision_at_k": 0.99}
    given["fleet"][f"{hostile}_variable"] = daily("gbdt", "variable") | {"list_precision": 0.99}
    page = render_report(as_report(given))
    assert "<script" not in page
    assert "\u202e" not in page
    assert page.count("&lt;script&gt;") > 3


def test_unknown_values_are_dashes() -> None:
    given = report()
    given["methods"] = {name: {} for name in given["methods"]}
    given["fleet"] = {name: {} for name in given["fleet"]}
    text = text_of(render_report(as_report(given | {"calibration": {}, "prevalence": None})))
    assert "no daily list at true prevalence to report on" in text
    assert "Parallel — 0 of 0 — % — — — —" in text
    assert not re.search(r"\b(nan|None|NaN)\b", text)


def test_single_strategy_has_no_comparison() -> None:
    given = report() | {"configured": "sliding"}
    for section in ("methods", "fleet"):
        given[section] = {k: v for k, v in given[section].items() if k.endswith("_sliding")}
    text = text_of(render_report(as_report(given)))
    assert "Retraining strategies" not in text
    assert "Strategy sliding." in text
    assert "trained once" not in text
