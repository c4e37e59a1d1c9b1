"""Crash test of the loop with a real Slurm: killed between any two steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.incidents.crash_test_loop import crash_results

pytestmark = pytest.mark.long


def test_slurm_matches_ledger_after_crashes(tmp_path: Path, slurm: Any) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    *killed, complete = crash_results(tmp_path, url, "2", f'slurm_conf = "{slurm.conf}"')
    # A drain and its end; a stride of 1 also crashes after each.
    assert len(killed) >= 2
    assert set(complete["states"]) == {"node-00001 restart"}
    for crash in [*killed, complete]:
        assert crash["consistent"], crash
        assert crash["states"] == complete["states"], crash
        assert crash["out"] == []
