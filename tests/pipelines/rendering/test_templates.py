from __future__ import annotations

import re
from importlib import resources
from itertools import product

import jinja2
import numpy as np
import pandas as pd
import pytest

from forewarn.pipelines.rendering.templates import (
    amount,
    chance_text,
    finite_number,
    moment,
    parse_utc,
    per_hundred,
    render_page,
    visible,
)


@pytest.mark.parametrize("value", [None, np.nan, np.inf, pd.NA, pd.NaT, "3", True, [1, 2], {}])
def test_non_finite_number_is_a_dash(value: object) -> None:
    assert finite_number(value) is None
    assert amount(value) == per_hundred(value) == chance_text(value) == "—"


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(3), 2])
def test_numpy_numbers_are_numbers(value: object) -> None:
    assert finite_number(value) == pytest.approx(float(value))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0"), (0.00099, "0.1"), (0.0949, "9.5"), (0.0999, "10"), (1.0, "100")],
)
def test_per_hundred_keeps_significant_digits(share: float, text: str) -> None:
    assert per_hundred(share) == text


@pytest.mark.parametrize(
    ("probability", "text"),
    [
        (0.0, "under 0.1 %"),
        (0.0994, "9.9 %"),
        (0.0999, "10 %"),
        (0.985, "98 %"),
        (0.99, "over 99 %"),
    ],
)
def test_chance_is_never_0_or_100_percent(probability: float, text: str) -> None:
    assert chance_text(probability) == text


def test_times_are_shown_in_utc() -> None:
    assert moment(pd.Timestamp("2025-03-02 04:50", tz="Europe/Berlin")) == "2 March 2025, 03:50 UTC"
    assert moment(np.datetime64("2025-03-02T04:50:00")) == "2 March 2025, 04:50 UTC"


@pytest.mark.parametrize("value", [None, pd.NaT, float("nan")])
def test_missing_time_is_a_dash(value: object) -> None:
    assert parse_utc(value) is None
    assert moment(value) == "—"


def test_other_text_is_unchanged() -> None:
    assert moment("soon") == "soon"


@pytest.mark.parametrize("mark", ["\u202e", "\u200b", "\x00", "\n", "\ud800", "\x1b"])
def test_invisible_characters_are_replaced(mark: str) -> None:
    shown = visible(f"SN{mark}1")
    assert shown == "SN\ufffd1"
    assert shown.encode()


def marks(text: str) -> str:
    template = "{% from 'rendering/marks.html' import bar, whisker %}" + text
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("forewarn.pipelines", ""), autoescape=True
    )
    return environment.from_string(template).render()


def test_bar_length_is_its_share() -> None:
    assert 'class="bar-fill" width="62.0%"' in marks("{{ bar(0.62) }}")
    assert "<svg" not in marks("{{ bar(none) }}")


def test_whisker_line_needs_an_interval() -> None:
    assert marks("{{ whisker(0.5, none, none, 1.0) }}").count("<line") == 1  # only the scale
    with_interval = marks("{{ whisker(0.5, 0.4, 0.6, 2.0) }}")
    assert 'x1="20.0%" x2="30.0%"' in with_interval
    assert 'cx="25.0%"' in with_interval
    assert "<svg" not in marks("{{ whisker(none, none, none, 1.0) }}{{ whisker(0, 0, 0, 0) }}")


def test_undefined_template_name_raises() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render_page("at_risk/at_risk_page.html", {})


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


def schemes() -> list[dict[str, str]]:
    style = (
        resources.files("forewarn.pipelines.rendering")
        .joinpath("page_style.css")
        .read_text("utf-8")
    )
    roots = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", root)) for root in roots]


def test_light_and_dark_schemes_match() -> None:
    light, dark = schemes()
    assert set(light) == set(dark)
    assert luminance(light["page"]) > 0.8
    assert luminance(dark["page"]) < 0.05


@pytest.mark.parametrize("scheme", schemes(), ids=["light", "dark"])
def test_text_and_lines_have_contrast(scheme: dict[str, str]) -> None:
    for name, back in product(["text", "muted", "link", "bad", "warn", "good"], ["page", "card"]):
        assert contrast(scheme[name], scheme[back]) >= 4.5, (name, back)
    for name, back in product(["c1", "c2", "c3", "c4", "bar"], ["page", "card"]):
        assert contrast(scheme[name], scheme[back]) >= 3.0, (name, back)
    assert contrast(scheme["bar"], scheme["bar-back"]) >= 3.0
