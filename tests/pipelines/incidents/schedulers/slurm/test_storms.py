"""Tests with two storms on a real Slurm; `tests/storms.py` runs a hundred."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.storms import WRONG, run_storms

pytestmark = pytest.mark.long


def test_storms_cause_no_wrong_action(slurm: Any, tmp_path: Path) -> None:
    counts = run_storms(slurm, storms=2, steps=10, seed=2, folder=tmp_path)
    assert {name: counts[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert counts["drains"] > 0
