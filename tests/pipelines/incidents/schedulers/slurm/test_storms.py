"""A few storms on a real Slurm; a hundred of them are run by hand (tests/storms.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.storms import WRONG, run_storms


def test_no_storm_drains_a_wrong_machine_or_requeues_a_job(slurm: Any, tmp_path: Path) -> None:
    counts = run_storms(slurm, storms=2, steps=10, seed=2, folder=tmp_path)
    assert {name: counts[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert counts["drains"] > 0
