"""The configured continuity is the span that a deviation needs, whatever the window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.detection.test_detector import detector, task

from forewarn.features.array_types import Float32Array
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.pipelines.config.settings import DetectionTable

CADENCES = (1, 5, 30)  # seconds between samples
WINDOWS = (2, 8, 16, 32, 60)
BEGIN = 500


def series(seed: int, noise: float) -> dict[str, Float32Array]:
    generator = np.random.default_rng(seed)
    return {
        name: generator.normal(0.3, noise, (6, 1200)).astype(np.float32) for name in ("one", "two")
    }


def is_named(rules: DetectionRules, spans: list[tuple[int, int]], height: float = 0.5) -> bool:
    """Tell whether machine 2 is named if it deviates in these spans of metric `one`."""
    samples = series(0, 0.004)
    for begin, end in spans:
        samples["one"][2, begin:end] += np.float32(height)
    verdict, _ = detector(rules).find(task(samples))
    return [finding.machine for finding in verdict.findings] == [2]


def shortest_named(rules: DetectionRules, height: float) -> int:
    """Return the number of samples of the shortest deviation that is named."""
    low, high = 0, 3 * rules.continuity + rules.window
    while high - low > 1:
        middle = (low + high) // 2
        if is_named(rules, [(BEGIN, BEGIN + middle)], height):
            high = middle
        else:
            low = middle
    return high


@pytest.mark.parametrize("seconds", CADENCES)
@pytest.mark.parametrize("window", WINDOWS)
def test_shortest_named_deviation_is_the_continuity(window: int, seconds: int) -> None:
    table = DetectionTable.model_validate({"window": window, "interval": f"{seconds}s"})
    for height in (0.15, 0.5):
        assert abs(shortest_named(table.rules, height) - 240 // seconds) <= 1


def test_continuity_needs_three_samples() -> None:
    with pytest.raises(
        ValueError, match=r"`continuity` is 2 times `interval`; expected at least 3"
    ):
        DetectionTable.model_validate({"interval": "2min"})


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(WINDOWS), st.integers(20, 200), st.integers(1, 110))
def test_two_jitters_are_no_continuity(window: int, first: int, gap: int) -> None:
    second = 200
    rules = DetectionRules(window, 240, 60)
    spans = [(BEGIN, BEGIN + first), (BEGIN + first + gap, BEGIN + first + gap + second)]
    long_gap = gap > 24 + window  # a gap of half a window may be hidden
    reaches = first + gap + second >= 240
    if long_gap or not reaches:
        assert not is_named(rules, spans)
    elif gap <= 22 and first + gap + second > 241 + window:
        assert is_named(rules, spans)


@pytest.mark.parametrize(("seconds", "minutes"), [(1, 4), (60, 30), (300, 120)])
def test_short_excursion_does_not_spoil_the_first_baseline(seconds: int, minutes: int) -> None:
    settings = {"interval": f"{seconds}s", "continuity": f"{minutes}min"}
    rules = DetectionTable.model_validate(settings).rules
    for begin in range(rules.window, rules.window + 2 * rules.block, max(rules.block // 3, 1)):
        samples = series(2, 0.004)
        samples["one"][2] += np.float32(0.1)  # as that machine always is
        samples["one"][2, begin : begin + rules.continuity // 8] -= np.float32(0.3)
        verdict, _ = detector(rules, level=1.0).find(task(samples))
        assert verdict.findings == ()


@pytest.mark.parametrize("window", WINDOWS)
def test_reported_start_is_the_first_deviating_sample(window: int) -> None:
    samples = series(1, 0.004)
    samples["one"][2, BEGIN : BEGIN + 400] += np.float32(0.5)
    verdict, _ = detector(DetectionRules(window, 240, 60)).find(task(samples))
    (finding,) = verdict.findings
    assert abs(finding.since - BEGIN) <= 1
    assert abs(finding.at - (BEGIN + 239)) <= 1


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(WINDOWS), st.integers(0, 10**6))
def test_noise_before_a_large_deviation_does_not_extend_it(window: int, seed: int) -> None:
    """Single samples scatter by more than the threshold of a window."""
    samples = series(seed, 0.02)
    samples["one"][2, BEGIN : BEGIN + 236] += np.float32(0.4)
    rules = DetectionRules(window, 240, 60)
    assert not detector(rules).find(task(samples))[0].findings
    samples["one"][2, BEGIN + 236 : BEGIN + 242] += np.float32(0.4)
    (finding,) = detector(rules).find(task(samples))[0].findings
    assert abs(finding.since - BEGIN) <= 1


@pytest.mark.parametrize("window", WINDOWS)
def test_jitter_has_its_own_length(window: int) -> None:
    samples = series(2, 0.004)
    samples["one"][2, BEGIN : BEGIN + 150] += np.float32(0.5)
    verdict, _ = detector(DetectionRules(window, 240, 60)).find(task(samples))
    assert not verdict.findings
    (jitter,) = verdict.jitters
    assert abs(jitter.since - BEGIN) <= 1
    assert abs(jitter.until - (BEGIN + 149)) <= 1


@pytest.mark.parametrize("lost", [0.2, 0.3])
def test_missing_samples_do_not_count(lost: float) -> None:
    samples = series(3, 0.004)
    samples["one"][2, BEGIN : BEGIN + 245] += np.float32(0.5)
    holes = np.random.default_rng(4).random(1200) < lost
    samples["one"][2, holes] = np.nan
    verdict, _ = detector(DetectionRules(2, 240, 60)).find(task(samples))
    assert [finding.machine for finding in verdict.findings] == [2]
