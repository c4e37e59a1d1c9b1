"""An approval whose server is killed in the middle: done once, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("killed_server.py")
STRIDE = "9"  # of some 40 moments; 1 tests all of them


def test_approval_of_a_killed_server_is_done_once_or_not_at_all(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(PROGRAM.parents[3])}
    command = [sys.executable, str(PROGRAM), str(tmp_path), STRIDE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    crashes = [json.loads(line) for line in done.stdout.splitlines()]
    for crash in crashes:
        # Approvals and notes on who approved and why: both, or none; and the page tells which.
        assert crash["after"] in ([0, 0], [1, 1]), crash
        assert crash["offered"] == crash["changed"] == (crash["after"] == [0, 0]), crash
        assert crash["end"] == [1, 1], crash
    assert {tuple(crash["after"]) for crash in crashes} == {(0, 0), (1, 1)}
