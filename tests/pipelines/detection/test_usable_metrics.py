"""Counters are compared by their increase, as if they were rates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forewarn.features.array_types import Int64Array
from forewarn.features.detection.sampling import Sampling
from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.detection.task_metrics import open_pull

Put = Callable[..., None]
Commands = Callable[..., Any]

CONFIG = """
continuity = "60s"
activity = "none"
metrics = [{{name = "bytes", low = 0.0, high = {high}{kind}}}]
"""
GAUGE, COUNTER = ', kind = "gauge"', ', kind = "counter"'


def rates(seed: int, machines: int = 6, ticks: int = 300) -> Int64Array:
    """Return bytes per second; the first value equals the second."""
    generator = np.random.default_rng([31, seed])
    rhythm = 1e9 * (1.0 + 0.2 * np.sin(np.arange(ticks) / 7.0))
    drawn = rhythm * (1.0 + 0.03 * generator.standard_normal((machines, ticks)))
    drawn[:, 0] = drawn[:, 1]
    return drawn.astype(np.int64)


def counted(rate: Int64Array, start: int = 10**15) -> Int64Array:
    total = np.cumsum(rate, axis=1) - rate[:, :1]
    return np.asarray(total + start + 10**11 * np.arange(len(rate))[:, None], dtype=np.int64)


def slow(seed: int) -> Int64Array:
    rate = rates(seed)
    rate[2, 150:] //= 2
    return rate


@pytest.fixture
def given(tmp_path: Path, put_samples: Put) -> dict[str, Path]:
    """Write the same tasks as rates and as counters: ten healthy ones, and two to judge."""
    folders = {}
    for name, of in (("rate", lambda rate: rate), ("counter", counted)):
        for number in range(10):
            put_samples(tmp_path / name / "train", f"t{number}", {"bytes": of(rates(number))})
        put_samples(tmp_path / name / "pulls", "faulty", {"bytes": of(slow(50))})
        put_samples(tmp_path / name / "pulls", "healthy", {"bytes": of(rates(51))})
        folders[name] = tmp_path / name
    return folders


def without_seconds(lines: dict[str, Any]) -> dict[str, Any]:
    for line in lines.values():
        line.pop("seconds")
    return lines


def stored(model: Path) -> dict[str, Any]:
    (metric,) = json.loads((model / "detector.json").read_text())["metrics"]
    return dict(metric)


def test_large_counter_matches_its_rate(
    given: dict[str, Path], detect: Commands, tmp_path: Path
) -> None:
    rate, counter = given["rate"], given["counter"]
    config = CONFIG.format(high=2e9, kind=GAUGE)
    as_rate, fit, _ = detect(rate / "train", rate / "pulls", config, name="rate-model")
    config = CONFIG.format(high=2e9, kind=COUNTER)
    as_counter, again, said = detect(counter / "train", counter / "pulls", config)
    assert said == ""
    assert fit == again
    assert as_rate["faulty"]["machine"] == "n02"
    assert as_rate["healthy"]["machine"] is None
    assert as_counter["faulty"]["evidence"].pop("unit") == "per 1 s"
    assert as_rate["faulty"]["evidence"].pop("unit") is None
    assert without_seconds(as_counter) == without_seconds(as_rate)
    one, other = stored(tmp_path / "model"), stored(tmp_path / "rate-model")
    assert one["threshold"] == other["threshold"]
    assert (one["limits"]["counter"], other["limits"]["counter"]) == (True, False)


def test_undeclared_counter_is_recognised(
    given: dict[str, Path], detect: Commands, tmp_path: Path
) -> None:
    folder = given["counter"]
    declared, _, _ = detect(
        folder / "train", folder / "pulls", CONFIG.format(high=2e9, kind=COUNTER), name="declared"
    )
    config = CONFIG.format(high=2e9, kind="")
    lines, _, said = detect(folder / "train", folder / "pulls", config)
    (note,) = said.splitlines()
    assert "classified as counters, because they never decrease: `bytes` (0 to 2e+09)" in note
    assert "per 1 s" in note
    assert without_seconds(lines) == without_seconds(declared)
    assert stored(tmp_path / "model") == stored(tmp_path / "declared")


def test_counter_limits_become_increase_limits(
    given: dict[str, Path], detect: Commands, tmp_path: Path
) -> None:
    folder = given["counter"]
    config = CONFIG.format(high=1e16, kind="")
    lines, _, said = detect(folder / "train", folder / "pulls", config)
    high = stored(tmp_path / "model")["limits"]["high"]
    assert 1.1e9 < high < 1.4e9
    assert f"`bytes` (0 to {high:g})" in said
    assert lines["faulty"]["machine"] == "n02"


def test_declared_gauge_stays_gauge(
    given: dict[str, Path], detect: Commands, tmp_path: Path
) -> None:
    folder = given["counter"]
    config = CONFIG.format(high=2e9, kind=GAUGE)
    _, _, said = detect(folder / "train", folder / "pulls", config)
    assert said == ""
    assert not stored(tmp_path / "model")["limits"]["counter"]


def test_rates_and_sawtooths_are_no_counters(
    detect: Commands, put_samples: Put, tmp_path: Path
) -> None:
    names = ("rate", "heap", "memory", "constant")
    metrics = ", ".join(f'{{name = "{name}", high = 2e9}}' for name in names)
    for number in range(10):
        rate = rates(number)
        heap = counted(rate, start=0) % 50_000_000_000
        memory = np.sort(np.random.default_rng(number).integers(0, 9, rate.shape), axis=1)
        columns = {"rate": rate, "heap": heap, "memory": memory, "constant": np.full_like(rate, 7)}
        put_samples(tmp_path / "train", f"t{number}", columns)
    config = f'continuity = "60s"\nactivity = "none"\nmetrics = [{metrics}]'
    _, _, said = detect(tmp_path / "train", tmp_path / "train", config)
    assert "counter" not in said
    models = json.loads((tmp_path / "model" / "detector.json").read_text())["metrics"]
    assert [model["limits"]["counter"] for model in models] == [False] * 4


def test_counter_reset_is_no_fault(
    given: dict[str, Path], detect: Commands, put_samples: Put, tmp_path: Path
) -> None:
    for name, rate in (("calm", rates(52)), ("faulty", slow(50))):
        total = counted(rate)
        for machine, tick in ((1, 100), (2, 90), (4, 210)):
            total[machine, tick:] -= total[machine, tick]
        put_samples(tmp_path / "reset", name, {"bytes": total})
    train = given["counter"] / "train"
    config = CONFIG.format(high=2e9, kind=COUNTER)
    lines, _, _ = detect(train, tmp_path / "reset", config)
    assert (lines["calm"]["machine"], lines["calm"]["jitters"]) == (None, [])
    assert (lines["faulty"]["machine"], lines["faulty"]["blind"]) == ("n02", [])
    sampling = Sampling(counters=frozenset({"bytes"}))
    series = open_pull(tmp_path / "reset" / "task=calm", SECOND, sampling=sampling).series("bytes")
    assert series is not None
    rate = rates(52).astype(np.float32)
    for machine, tick in ((1, 100), (2, 90), (4, 210)):
        rate[machine, tick] = rate[machine, tick - 1]  # as for a lost sample
    assert (series == rate).all()


def test_late_samples_are_no_bursts(
    given: dict[str, Path], detect: Commands, put_samples: Put, tmp_path: Path
) -> None:
    """Every other sample of a machine is taken 0.4 s late and includes the increase until then."""
    rate = rates(53)
    late = np.zeros(rate.shape)
    late[3, ::2] = 0.4
    total = counted(rate) + (late * rate).astype(np.int64)
    put_samples(tmp_path / "late", "calm", {"bytes": total}, late=late)
    pull = open_pull(
        tmp_path / "late" / "task=calm", SECOND, None, Sampling(1, frozenset({"bytes"}))
    )
    series = pull.series("bytes")
    assert series is not None
    assert np.abs(series[3] / rate[3] - 1.0).max() < 0.2  # 0.7 to 1.7 without the sample times
    config = CONFIG.format(high=2e9, kind=COUNTER)
    lines, _, _ = detect(given["counter"] / "train", tmp_path / "late", config)
    assert (lines["calm"]["machine"], lines["calm"]["jitters"]) == (None, [])


def test_integers_above_2_to_53_are_read(
    given: dict[str, Path], detect: Commands, put_samples: Put, tmp_path: Path
) -> None:
    put_samples(tmp_path / "large", "faulty", {"bytes": counted(slow(50), start=2**60)})
    config = CONFIG.format(high=2e9, kind=COUNTER)
    lines, _, _ = detect(given["counter"] / "train", tmp_path / "large", config)
    assert lines["faulty"]["machine"] == "n02"


def test_verdict_states_unit_of_increase(
    given: dict[str, Path], detect: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given["counter"]
    detect(folder / "train", folder / "pulls", CONFIG.format(high=2e9, kind=COUNTER))
    options = ["--metrics", str(folder / "pulls"), "--model", str(tmp_path / "model")]
    assert main(["detect", "run", *options, "--plot", str(tmp_path / "plots")]) == 0
    words = capsys.readouterr().out.splitlines()[0]
    assert "n02 deviates on bytes" in words
    assert " per 1 s, " in words
    assert (tmp_path / "plots" / "faulty.png").stat().st_size > 10_000
    assert main(["detect", "metrics", "--model", str(tmp_path / "model"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["limits"] == "0 to 2e+09, counter"


def test_watch_over_files_uses_increases(
    given: dict[str, Path], detect: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given["counter"]
    detect(folder / "train", folder / "pulls", CONFIG.format(high=2e9, kind=COUNTER))
    options = ["--metrics", str(folder / "pulls"), "--model", str(tmp_path / "model"), "--json"]
    assert main(["detect", "watch", *options, "--once"]) == 0
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (line["machine"], line["evidence"]["unit"]) == ("n02", "per 1 s")
