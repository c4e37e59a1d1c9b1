"""Pack the folder of a job into a small archive, so that tests do not need torch.

    .venv/bin/python -m tests.gloo_jobs.capture JOB ARCHIVE.tar.xz

`JOB` is a folder of `tests.gloo_jobs.comparison_table --keep`. The archive contains the last
operations of each dump and the last lines of each log, with paths of the host replaced.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
from pathlib import Path

OPERATIONS = 32  # per rank: 16 steps
LINES = 80
PATHS = (
    (re.compile(rb"/[^\s\"',;:]*/site-packages/"), b"/opt/torch/site-packages/"),
    (
        re.compile(rb"/[^\s\"',;:]*/(?=worker\.py|torchrun\b|logs/|python3\.\d|\d+\.sock)"),
        b"/srv/job/",
    ),
    (re.compile(rb"/[^\s\"',;:]*/(?=lib/python3\.\d|threading\.py|queue\.py)"), b"/usr/"),
)


def trimmed(file: Path) -> bytes:
    """Return the shortened content of a file."""
    data = file.read_bytes()
    if file.parent.name == "flight":
        dump = json.loads(data)
        dump["entries"] = dump["entries"][-OPERATIONS:]
        return json.dumps(dump, separators=(",", ":")).encode()
    if file.suffix == ".log":
        data = b"".join(data.splitlines(keepends=True)[-LINES:])
    if file.suffix in (".log", ".json"):
        for pattern, replacement in PATHS:
            data = pattern.sub(replacement, data)
    return data


def main() -> None:
    """Write the archive."""
    job, archive = map(Path, sys.argv[1:])
    with tarfile.open(archive, "w:xz", preset=9) as target:
        for file in sorted(path for path in job.rglob("*") if path.is_file()):
            name = re.sub(r"/none_[a-z0-9_]+/", "/run/", file.relative_to(job).as_posix())
            data = trimmed(file)
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            target.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main()
