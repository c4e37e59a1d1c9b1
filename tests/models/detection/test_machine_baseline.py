from __future__ import annotations

import numpy as np

from forewarn.models.detection.baseline_scoring import score_against_baseline
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.machine_baseline import BaselineParams, MachineBaseline
from forewarn.models.detection.peer_deviation import peer_deviations
from forewarn.models.detection.windows import Windows

TERMS = BaselineParams(block=10, lag=5)
USUAL = HealthySpread(deviation=0.02, offset=0.5, spread=0.1)
Floats = np.ndarray


def quiet(n: int = 8, windows: int = 150, seed: int = 0) -> Floats:
    noise = np.random.default_rng(seed).normal(0.5, 0.02, (windows, 1, n))
    return noise.astype(np.float32)


def scores(
    values: Floats,
    baseline: MachineBaseline | None = None,
    start: int = 0,
    usual: HealthySpread = USUAL,
) -> tuple[Floats, MachineBaseline]:
    n = values.shape[2]
    found = peer_deviations(
        Windows.from_values(values), np.isfinite(values[:, 0]), np.zeros(n, int)
    )
    numbers = np.arange(len(values)) + start
    known = (baseline or MachineBaseline.empty()).for_machines([str(i) for i in range(n)])
    return score_against_baseline(found, found, numbers, np.zeros(n, int), TERMS, usual, known)


def test_permanent_offset_is_tolerated() -> None:
    values = quiet()
    values[:, :, 3] += 0.3
    assert np.nanmedian(scores(values)[0][:, 3]) < 2
    strict, _ = scores(values, usual=HealthySpread(0.02, offset=0.0, spread=0.0))
    assert np.nanmedian(strict[:, 3]) > 5


def test_new_offset_deviates() -> None:
    values = quiet()
    values[80:, :, 3] += 0.3
    found, _ = scores(values)
    assert np.nanmedian(found[:80, 3]) < 2
    assert found[80:, 3].min() > 4
    assert np.nanmax(np.delete(found, 3, axis=1)) < 5


def test_offset_beyond_tolerance_deviates() -> None:
    values = quiet()
    values[:, :, 3] += 0.9
    assert np.nanmin(scores(values)[0][:, 3]) > 3


def test_early_jitter_does_not_spoil_baseline() -> None:
    """Two thirds of the initial baseline are disturbed; then the machine is normal again."""
    values = quiet()
    values[:18, :, 3] += 0.3
    assert np.nanmax(scores(values)[0][30:, 3]) < 5


def test_earlier_call_provides_baseline() -> None:
    before = quiet(seed=1)
    before[:, :, 3] += 0.3
    _, baseline = scores(before)
    after = quiet(seed=2)
    after[:, :, 3] += 0.3
    after[:, :, 5] += 0.3  # since its first sample: without a baseline it would be tolerated
    found, _ = scores(after, baseline, start=150)
    assert np.nanmedian(found[:, 3]) < 2
    assert np.nanmedian(found[:, 5]) > 4
    assert np.nanmedian(scores(after)[0][:, 5]) < 2


def test_deviating_blocks_stay_out_of_baseline() -> None:
    values = quiet()
    values[60:, :, 3] += 0.3
    _, baseline = scores(values)
    assert np.isnan(baseline.offset[3, 6:]).all()
    assert np.isfinite(baseline.offset[3, :6]).all()
    assert np.isfinite(np.delete(baseline.offset, 3, axis=0)).all()


def test_overlapping_calls_match_one_call() -> None:
    values = quiet(windows=200)
    _, whole = scores(values)
    _, first = scores(values[:120])
    _, second = scores(values[60:], first, start=60)
    assert np.array_equal(second.blocks, whole.blocks)
    assert np.allclose(second.offset, whole.offset, equal_nan=True)


def test_baseline_follows_machine_set() -> None:
    _, baseline = scores(quiet())
    moved = baseline.for_machines(["1", "0", "new"])
    assert np.array_equal(moved.offset[0], baseline.offset[1])
    assert np.array_equal(moved.offset[1], baseline.offset[0])
    assert np.isnan(moved.offset[2]).all()
    assert moved.known.tolist() == [True, True, False]
