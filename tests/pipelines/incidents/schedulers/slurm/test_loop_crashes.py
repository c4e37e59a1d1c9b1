"""The loop by its own command, killed between any two steps, over a real Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.pipelines.incidents.crash_test_loop import crash_results


def test_killed_before_and_after_each_change_a_real_slurm_agrees_with_the_ledger(
    tmp_path: Path, slurm: Any
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    *killed, complete = crash_results(tmp_path, url, "2", f'slurm_conf = "{slurm.conf}"')
    assert (
        len(killed) >= 2
    )  # of a drain and of its end; by hand with a stride of 1, also after each
    assert set(complete["lives"]) == {"node-00001 restart"}
    for death in [*killed, complete]:
        assert death["agreed"], death
        assert death["lives"] == complete["lives"], death
        assert death["out"] == []
