"""The evidence of a repair case in one archive, as vendors ask for it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forewarn.features.errors import InputError
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.regular_files import require_regular

__all__ = ["write_bundle"]

_MAX_FILE_BYTES: Final = 1 << 30


def write_bundle(
    path: Path,
    case: Mapping[str, Any],
    incidents: Sequence[Mapping[str, Any]],
    files: Sequence[Path],
) -> None:
    """Write `case.json`, `incidents.json` and the given files into a .tar.gz, atomically.

    Parameters
    ----------
    path : Path
        Archive to write.
    case : mapping
        Of `repair_report`.
    incidents : sequence of mapping
        With findings and their evidence: Xids, serials, what was measured.
    files : sequence of Path
        Such as nvidia-bug-report.log.gz and the output of `dcgmi diag -j`.

    Raises
    ------
    InputError
        If a file is no regular file, larger than 1 GiB, or two have the same name.
    """
    names = [file.name for file in files]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise InputError(f"--add: two files are named {min(doubled)!r}, expected distinct names.")
    for file in files:
        require_regular(file, InputError)
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise InputError(f"{file}: is larger than 1 GiB, expected a smaller file.")
    with (
        replacing(path) as temporary,
        gzip.open(temporary, "wb") as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for name, content in (("case.json", case), ("incidents.json", list(incidents))):
            data = (json.dumps(content, indent=1) + "\n").encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for file in files:
            entry = tarfile.TarInfo(f"files/{file.name}")
            entry.size = file.stat().st_size
            with file.open("rb") as content_file:
                archive.addfile(entry, content_file)
