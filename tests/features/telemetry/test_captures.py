from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_every_capture_is_read_completely(shared_data: Path) -> None:
    script = Path(__file__).with_name("captures.py")
    command = [sys.executable, str(script), str(shared_data)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = {line[:60].strip(): [int(n) for n in line[60:].split()] for line in lines[1:]}
    kinds = {kind: [name for name in rows if kind in name] for kind in ("#", ".xml", ".log")}
    assert {kind: len(names) for kind, names in kinds.items()} == {"#": 20, ".xml": 12, ".log": 5}
    assert all(rows[name][0] == 1 and rows[name][1] >= 7 for name in kinds["#"] + kinds[".xml"])
    assert sum(rows[name][2] for name in kinds[".log"]) == 22
    assert all(row[3] == 0 for row in rows.values())
