"""Stores the threshold adaptation of a site in the state folder of a watch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from forewarn.models.detection.detector_file import StoredDetector
from forewarn.models.detection.threshold_adaptation import ThresholdAdaptation
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["load_adaptation", "save_adaptation"]

_FILE = "adaptation.json"


def load_adaptation(folder: Path, stored: StoredDetector) -> ThresholdAdaptation:
    """Read the adaptation made with a detector; empty if it was made with another one."""
    path = folder / _FILE
    if not path.exists():
        return ThresholdAdaptation()
    try:
        if not path.is_file():  # opening a FIFO would block forever
            raise ValueError("is not a regular file")
        held = json.loads(path.read_text("utf-8"))
        if held["detector"] != _digest(stored):
            note(f"{path}: belongs to another detector; the adaptation starts from scratch")
            return ThresholdAdaptation()
        return ThresholdAdaptation(**held["learned"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        note(f"{path}: cannot be used ({str(error)[:80]}); the adaptation starts from scratch")
        return ThresholdAdaptation()


def save_adaptation(folder: Path, stored: StoredDetector, learned: ThresholdAdaptation) -> None:
    """Write the adaptation atomically."""
    held = {"detector": _digest(stored), "learned": dataclasses.asdict(learned)}
    with replacing(folder / _FILE) as path:
        path.write_text(json.dumps(held) + "\n", encoding="utf-8")


def _digest(stored: StoredDetector) -> str:
    """Return a digest of the thresholds, because the adaptation is relative to them."""
    thresholds = [
        (model.name, None if model.threshold is None else dataclasses.asdict(model.threshold))
        for model in stored.detector.metrics
    ]
    return hashlib.sha256(json.dumps(sorted(thresholds)).encode()).hexdigest()
