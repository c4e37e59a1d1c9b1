"""Tasks of any cadence, slow metrics, and groups of any size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forewarn.features.array_types import Float64Array
from forewarn.features.detection.sampling import median_cadence
from forewarn.pipelines.cli.main import main

Put = Callable[..., None]
Commands = Callable[..., Any]

CONFIG = """
interval = "{interval}"
continuity = "{continuity}"
activity = "none"
metrics = [{{name = "load", low = 0.0, high = 100.0}}]
"""
RHYTHM = 60.0 + 10.0 * np.sin(np.arange(600) / 9.0)


def load(seed: int, machines: int, ticks: int) -> Float64Array:
    """Return percentages around a common periodic course."""
    generator = np.random.default_rng([41, seed])
    rhythm = RHYTHM[:ticks]
    own = generator.normal(0.0, 1.0, (machines, 1))
    return np.asarray(rhythm + own + generator.normal(0.0, 1.5, (machines, ticks)))


def faulty(seed: int, machines: int, ticks: int) -> Float64Array:
    values = load(seed, machines, ticks)
    values[2, ticks // 2 :] -= 30.0
    return values


def as_it_is(values: Float64Array) -> Float64Array:
    return values


def each(ticks: int) -> Callable[[Float64Array], Float64Array]:
    """Keep one sample per number of ticks, at another offset for each machine."""

    def thinned(values: Float64Array) -> Float64Array:
        sent = np.full(values.shape, np.nan)
        for machine in range(len(values)):
            first = (7 * machine) % ticks
            sent[machine, first::ticks] = values[machine, first::ticks]
        return sent

    return thinned


def each_in_whole_percents(values: Float64Array) -> Float64Array:
    return np.round(each(60)(values))


def on_or_off(values: Float64Array) -> Float64Array:
    """Return a metric with two values; a normal machine is on most of the time."""
    return np.where(values - RHYTHM[: values.shape[1]] > -1.0, 100.0, 0.0)


@pytest.fixture
def judged(put_samples: Put, detect: Commands, tmp_path: Path) -> Callable[..., Any]:
    """Return `judged(seen, ...)`: fit to twelve tasks, judge a faulty and a healthy one."""

    def called(
        seen: Callable[[Float64Array], Float64Array] = as_it_is,
        *,
        machines: int = 6,
        ticks: int = 600,
        seconds: float = 1.0,
        interval: str = "1s",
        continuity: str = "4min",
        more: dict[str, Float64Array] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        for number in range(12):
            columns = {"load": seen(load(number, machines, ticks))}
            put_samples(tmp_path / "train", f"t{number}", columns, seconds=seconds)
        pulls = {
            "faulty": seen(faulty(90, machines, ticks)),
            "healthy": seen(load(91, machines, ticks)),
            **(more or {}),
        }
        for name, values in pulls.items():
            put_samples(tmp_path / "pulls", name, {"load": values}, seconds=seconds)
        config = CONFIG.format(interval=interval, continuity=continuity)
        lines, fit, _ = detect(tmp_path / "train", tmp_path / "pulls", config)
        return lines, fit

    return called


def assert_right(lines: dict[str, Any], fit: dict[str, Any]) -> None:
    assert (lines["faulty"]["machine"], lines["faulty"]["blind"]) == ("n02", [])
    assert (lines["healthy"]["machine"], lines["healthy"]["blind"]) == (None, [])
    assert (fit["alarms"], fit["blind"]) == (0, 0.0)


@pytest.mark.parametrize(
    ("interval", "seconds", "continuity"),
    [("1s", 1.0, "2min"), ("1min", 60.0, "30min"), ("5min", 300.0, "150min")],
)
def test_cadences_of_seconds_and_minutes(
    judged: Callable[..., Any], interval: str, seconds: float, continuity: str
) -> None:
    ticks = 400 if interval == "1s" else 160
    lines, fit = judged(ticks=ticks, interval=interval, seconds=seconds, continuity=continuity)
    assert_right(lines, fit)


@pytest.mark.parametrize("cadence", [15, 60])
def test_slow_metric_is_filled(judged: Callable[..., Any], cadence: int) -> None:
    lines, fit = judged(each(cadence))
    assert_right(lines, fit)


def test_slow_percent_metric_has_data(
    judged: Callable[..., Any],
) -> None:
    lines, fit = judged(each_in_whole_percents)
    assert_right(lines, fit)


def test_silent_machines_have_no_data(
    judged: Callable[..., Any],
) -> None:
    silent = each(15)(load(92, 6, 600))
    silent[3, 300:] = np.nan
    lone = load(93, 6, 600)
    lone[4] = each(15)(lone)[4]
    lines, _ = judged(each(15), more={"silent": silent, "lone": lone})
    assert (lines["silent"]["machine"], lines["silent"]["blind"]) == (None, ["n03"])
    assert (lines["lone"]["machine"], lines["lone"]["blind"]) == (None, ["n04"])


def test_too_slow_metric_is_ignored_with_note(
    put_samples: Put, detect: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single sample of two minutes would decide half of a continuity."""
    for number in range(12):
        columns = {"load": load(number, 6, 600), "seldom": each(120)(load(number, 6, 600))}
        put_samples(tmp_path / "train", f"t{number}", columns)
    put_samples(tmp_path / "pulls", "faulty", {"load": faulty(90, 6, 600)})
    put_samples(tmp_path / "pulls", "healthy", columns)
    config = CONFIG.format(interval="1s", continuity="4min")
    both = config.replace("metrics = [", 'metrics = [{name = "seldom"}, ')
    lines, fit, said = detect(tmp_path / "train", tmp_path / "pulls", both)
    assert_right(lines, fit)
    assert "`seldom` is sampled every 2 min: not often enough for `detection.continuity`" in said
    (tmp_path / "alone.toml").write_text("[detection]\n" + config.replace("load", "seldom"))
    options = ["--config", str(tmp_path / "alone.toml"), "--model", str(tmp_path / "none")]
    assert main(["detect", "fit", "--metrics", str(tmp_path / "train"), *options]) == 2
    assert (
        "`seldom` is sampled every 2 min: not often enough. Needed: every 1 min"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "none").exists()


def test_two_valued_metric_shows_permanent_offset(judged: Callable[..., Any]) -> None:
    lines, fit = judged(on_or_off)
    assert_right(lines, fit)


@pytest.mark.parametrize("machines", [4, 8, 12])
def test_small_tasks(judged: Callable[..., Any], machines: int) -> None:
    lines, fit = judged(machines=machines, ticks=400, continuity="2min")
    assert_right(lines, fit)


@pytest.mark.parametrize("size", [2, 3])
def test_groups_of_two_and_three(
    put_samples: Put, detect: Commands, tmp_path: Path, size: int
) -> None:
    """Each stage has its own level; groups that no healthy task had are compared by changes."""
    groups = [f"stage-{i // size}" for i in range(4 * size)]
    levels = np.repeat([0.0, 8.0, 16.0, 30.0], size)[:, None]
    for number in range(12):
        values = load(number, 4 * size, 400) + levels
        put_samples(tmp_path / "train", f"t{number}", {"load": values}, groups=groups)
    fault, strange = faulty(90, 4 * size, 400) + levels, load(91, 4 * size, 400) + levels
    put_samples(tmp_path / "pulls", "faulty", {"load": fault}, groups=groups)
    put_samples(tmp_path / "pulls", "healthy", {"load": strange}, groups=groups)
    new = [f"new-{group}" for group in groups]
    put_samples(tmp_path / "pulls", "strange", {"load": strange}, groups=new)
    put_samples(tmp_path / "pulls", "new", {"load": fault}, groups=new)
    config = CONFIG.format(interval="1s", continuity="2min")
    lines, fit, _ = detect(tmp_path / "train", tmp_path / "pulls", config)
    assert_right(lines, fit)
    assert lines["new"]["machine"] == lines["faulty"]["machine"]
    assert lines["faulty"]["too_small"] == lines["strange"]["too_small"] == []
    assert lines["strange"]["machine"] is None


def test_irregular_gaps_are_lost_samples() -> None:
    generator = np.random.default_rng(5)
    grid = np.where(generator.random((6, 2000)) < 0.2, 1.0, np.nan).astype(np.float32)
    assert median_cadence(grid) == 1
    on_and_off = np.full((6, 2000), np.nan, dtype=np.float32)
    on_and_off[:, np.arange(2000) % 100 < 20] = 1.0
    assert median_cadence(on_and_off) == 1
