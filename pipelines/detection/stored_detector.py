"""Opens the folder of a detector and reports what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from forewarn.models.detection.detector_file import DetectorFileError, StoredDetector, load_detector
from forewarn.pipelines.storage.files.regular_files import require_all_regular

__all__ = ["open_detector"]


def open_detector(folder: Path) -> StoredDetector:
    """Read a detector written by `forewarn detect fit`.

    Raises
    ------
    DetectorFileError, IrregularFileError
        If it cannot be used.
    """
    require_all_regular(folder)
    try:
        stored = load_detector(folder)
    except (EOFError, RecursionError) as error:
        why = str(error)[:100]
        raise DetectorFileError(f"{folder}: cannot be used as a detector ({why}).") from None
    if stored.interval <= 0:
        raise DetectorFileError(
            f"{folder}: cannot be used as a detector: interval is {stored.interval}, expected a "
            "number above 0."
        )
    return stored
