"""Reads and writes a detector as a folder of JSON and npz, without TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.detection.sampling import Sampling
from forewarn.features.errors import InputError
from forewarn.models.detection.denoiser import LstmVae
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.threshold import Threshold
from forewarn.models.finite_json import finite_json

__all__ = ["DetectorFacts", "DetectorFileError", "StoredDetector", "load_detector", "save_detector"]

_JSON, _NPZ = "detector.json", "denoisers.npz"
_FORMAT = 3
_PARTS = (
    *("encoder_kernel", "encoder_recurrent", "encoder_bias", "mean_kernel", "mean_bias"),
    *("decoder_kernel", "decoder_recurrent", "decoder_bias", "output_kernel", "output_bias"),
)


class DetectorFileError(InputError):
    """The folder holds no usable detector."""


@dataclasses.dataclass(frozen=True, slots=True)
class DetectorFacts:
    """What a detector was fitted to, how its metrics were ordered, and its fit report.

    Attributes
    ----------
    tasks, incidents : int
    reconstruction_error, importance : dict of float
        By metric.
    ranked_by : str
    false_alarms : float
        Requested rate, per task and day.
    fit : dict
        The fit report, as `detect fit --json` prints it.
    """

    tasks: int = 0
    incidents: int = 0
    reconstruction_error: dict[str, float] = dataclasses.field(default_factory=dict)
    ranked_by: str = "configuration"
    importance: dict[str, float] = dataclasses.field(default_factory=dict)
    false_alarms: float = 0.0
    fit: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def left_out(self) -> set[str]:
        """Tasks that were excluded as suspected faulty."""
        return {suspect["task"] for suspect in self.fit.get("left_out", ())}


@dataclasses.dataclass(frozen=True, slots=True)
class StoredDetector:
    """A detector with its sampling interval and the facts about its fit.

    Attributes
    ----------
    detector : Detector
    interval : int
        Nanoseconds between two samples.
    facts : DetectorFacts
    """

    detector: Detector
    interval: int
    facts: DetectorFacts = dataclasses.field(default_factory=DetectorFacts)

    @property
    def sampling(self) -> Sampling:
        """Return how to read its metrics: as in the tasks it was fitted to."""
        counters = (
            limits.name
            for model in self.detector.metrics
            for limits in model.limits
            if limits.counter
        )
        return Sampling(self.detector.rules.max_sample_ticks, frozenset(counters))


def save_detector(stored: StoredDetector, folder: Path) -> None:
    """Write `detector.json` and `denoisers.npz` into an existing folder."""
    detector = stored.detector
    arrays: dict[str, Any] = {
        f"{model.name}/{part}": values
        for model in detector.metrics
        if isinstance(model.denoiser, LstmVae)
        for part, values in model.denoiser.weights.items()
    }
    with (folder / _NPZ).open("wb") as file:
        np.savez(file, **arrays)
    text = json.dumps(
        {
            "format": _FORMAT,
            "interval": stored.interval,
            "rules": dataclasses.asdict(detector.rules),
            "activity": detector.activity,
            "observe_only": detector.observe_only,
            "joint": _threshold_as_json(detector.joint),
            "joint_names": detector.joint_names,
            "metrics": [_metric_as_json(model) for model in detector.metrics],
            "facts": dataclasses.asdict(stored.facts),
        },
        indent=1,
        allow_nan=False,
    )
    (folder / _JSON).write_text(text + "\n", encoding="utf-8")


def _metric_as_json(model: MetricModel) -> dict[str, Any]:
    (limits,) = model.limits
    return {
        "limits": dataclasses.asdict(limits),
        "usual": dataclasses.asdict(model.healthy),
        "threshold": _threshold_as_json(model.threshold),
    }


def _threshold_as_json(threshold: Threshold | None) -> dict[str, Any] | None:
    return None if threshold is None else dataclasses.asdict(threshold)


def load_detector(folder: Path) -> StoredDetector:
    """Read what `save_detector` wrote; nothing in the files is executed.

    Raises
    ------
    DetectorFileError
        If a file is missing or invalid, for example because a number is not finite.
    """
    try:
        described = finite_json((folder / _JSON).read_text(encoding="utf-8"))
        with (folder / _NPZ).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _read(described, {name: arrays[name] for name in arrays.files})
    except FileNotFoundError as error:
        raise DetectorFileError(
            f"{folder}: {Path(error.filename or _JSON).name} is missing; expected a detector "
            "written by `forewarn detect fit`."
        ) from None
    except (ValueError, KeyError, TypeError, OSError, BadZipFile) as error:
        raise DetectorFileError(
            f"{folder / _JSON}: cannot be used ({type(error).__name__}: {str(error)[:100]}), "
            "expected a detector written by `forewarn detect fit`."
        ) from None


def _read(described: dict[str, Any], arrays: dict[str, Any]) -> StoredDetector:
    if described["format"] != _FORMAT:
        raise ValueError(f"format {described['format']}, expected {_FORMAT}")
    rules = DetectionRules(**described["rules"])
    models = []
    for metric in described["metrics"]:
        limits = MetricLimits(**metric["limits"])
        threshold = metric["threshold"] and Threshold(**metric["threshold"])
        denoiser = _denoiser(limits.name, rules.window, arrays) if rules.mode == "minder" else None
        models.append(MetricModel((limits,), denoiser, HealthySpread(**metric["usual"]), threshold))
    joint = described["joint"] and Threshold(**described["joint"])
    detector = Detector(
        rules,
        tuple(models),
        described["activity"],
        described["observe_only"],
        joint,
        described["joint_names"],
    )
    facts = DetectorFacts(**described["facts"])
    return StoredDetector(detector, int(described["interval"]), facts)


def _denoiser(metric: str, window: int, arrays: dict[str, Any]) -> LstmVae:
    parts = {part: np.asarray(arrays[f"{metric}/{part}"], dtype=np.float32) for part in _PARTS}
    return LstmVae(window, parts)
