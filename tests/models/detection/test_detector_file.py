from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.models.detection.denoiser import HIDDEN, LATENT, LstmVae
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.detector_file import (
    DetectorFileError,
    StoredDetector,
    load_detector,
    save_detector,
)
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.threshold import Threshold

GATES = 4 * HIDDEN
SHAPES: dict[str, tuple[int, ...]] = {
    "encoder_kernel": (1, GATES),
    "encoder_recurrent": (HIDDEN, GATES),
    "encoder_bias": (GATES,),
    "mean_kernel": (HIDDEN, LATENT),
    "mean_bias": (LATENT,),
    "decoder_kernel": (LATENT, GATES),
    "decoder_recurrent": (HIDDEN, GATES),
    "decoder_bias": (GATES,),
    "output_kernel": (HIDDEN, 1),
    "output_bias": (1,),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    weights = {name: np.full(shape, 0.1, np.float32) for name, shape in SHAPES.items()}
    metric = MetricModel(
        (MetricLimits("cpu_usage"),),
        LstmVae(8, weights),
        HealthySpread(0.125, 1.0, 1.0),
        Threshold(0.5, 0.25, 0.75, 0.1, {"node-3": -0.375}),
    )
    detector = Detector(DetectionRules(mode="minder"), (metric,))
    save_detector(StoredDetector(detector, 10**9), tmp_path)
    return tmp_path


def test_saved_detector_round_trips(folder: Path) -> None:
    (metric,) = load_detector(folder).detector.metrics
    assert metric.threshold == Threshold(0.5, 0.25, 0.75, 0.1, {"node-3": -0.375})


def test_detector_without_machine_thresholds_loads(
    folder: Path,
) -> None:
    path = folder / "detector.json"
    described = json.loads(path.read_text())
    assert described["metrics"][0]["threshold"].pop("machines") == {"node-3": -0.375}
    path.write_text(json.dumps(described))
    (metric,) = load_detector(folder).detector.metrics
    assert metric.threshold == Threshold(0.5, 0.25, 0.75, 0.1)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("saved", ["0.75", "0.125", "100.0"], ids=["margin", "usual", "limit"])
def test_non_finite_number_is_refused(folder: Path, saved: str, number: str) -> None:
    path = folder / "detector.json"
    text = path.read_text()
    assert text.count(f" {saved}") == 1
    path.write_text(text.replace(f" {saved}", f" {number}"))
    with pytest.raises(DetectorFileError, match=re.escape(f"{path}: cannot be used")) as refused:
        load_detector(folder)
    assert "finite" in str(refused.value)


@pytest.mark.parametrize("part", SHAPES)
@pytest.mark.parametrize("change", ["nan", "shape"])
def test_invalid_denoiser_weights_are_refused(folder: Path, part: str, change: str) -> None:
    path = folder / "denoisers.npz"
    with np.load(path) as arrays:
        saved = {name: arrays[name] for name in arrays.files}
    name = f"cpu_usage/{part}"
    if change == "nan":
        saved[name].flat[0] = np.nan
    else:
        saved[name] = saved[name][..., None]
    np.savez(path, **saved)
    with pytest.raises(DetectorFileError, match=f"`{part}` of a denoiser is") as refused:
        load_detector(folder)
    assert "\n" not in str(refused.value)
