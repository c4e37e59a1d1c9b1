"""What a watch has learned of a site, kept in its state folder."""

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
    """Read what a watch has learned with a detector; nothing if it was another one."""
    path = folder / _FILE
    if not path.exists():
        return ThresholdAdaptation()
    try:
        if not path.is_file():  # opening a FIFO would wait for ever
            raise ValueError("no regular file")
        held = json.loads(path.read_text("utf-8"))
        if held["detector"] != _digest(stored):
            note(f"{path}: learned with another detector, it begins anew")
            return ThresholdAdaptation()
        return ThresholdAdaptation(**held["learned"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        note(f"{path}: cannot be used ({str(error)[:80]}), it begins anew")
        return ThresholdAdaptation()


def save_adaptation(folder: Path, stored: StoredDetector, learned: ThresholdAdaptation) -> None:
    """Write it as a whole."""
    held = {"detector": _digest(stored), "learned": dataclasses.asdict(learned)}
    with replacing(folder / _FILE) as path:
        path.write_text(json.dumps(held) + "\n", encoding="utf-8")


def _digest(stored: StoredDetector) -> str:
    """Return a digest of the thresholds: what was learned are shares of them."""
    thresholds = [
        (model.name, None if model.threshold is None else dataclasses.asdict(model.threshold))
        for model in stored.detector.metrics
    ]
    return hashlib.sha256(json.dumps(sorted(thresholds)).encode()).hexdigest()
