"""skops files with the same bytes for equal models.

skops names objects and arrays by their address in memory, and its archive holds the time of day.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

_SCHEMA = "schema.json"
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)


def reproducible(archive: bytes) -> bytes:
    """Return the archive with objects and arrays numbered by appearance, and without the time."""
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        schema, names = json.loads(source.read(_SCHEMA)), dict[str, str]()
        _renumber(schema, dict[int, int](), names)
        files = {new: source.read(old) for old, new in names.items()}
    files[_SCHEMA] = json.dumps(schema, sort_keys=True).encode()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as target:
        for name in sorted(files):
            target.writestr(zipfile.ZipInfo(name, _FIRST_TIME), files[name], zipfile.ZIP_DEFLATED)
    return written.getvalue()


def _renumber(node: Any, numbers: dict[int, int], names: dict[str, str]) -> None:
    """Replace `__id__` and the names of files in a schema, in place."""
    if isinstance(node, list):
        for item in node:
            _renumber(item, numbers, names)
    if not isinstance(node, dict):
        return
    if node.get("__loader__") == "JsonNode":
        node.pop("__id__", None)  # whether two equal numbers are one object depends on the process
    elif "__id__" in node:
        node["__id__"] = numbers.setdefault(node["__id__"], len(numbers))
    if isinstance(node.get("file"), str):
        old = node["file"]
        node["file"] = names.setdefault(old, f"{len(names)}.{old.rpartition('.')[2]}")
    for key in sorted(node):
        _renumber(node[key], numbers, names)
