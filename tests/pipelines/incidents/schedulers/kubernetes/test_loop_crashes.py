"""Crash test of the loop with a real API server: killed between any two steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipelines.incidents.crash_test_loop import crash_results
from tests.pipelines.incidents.schedulers.kubernetes.conftest import Cluster

pytestmark = pytest.mark.long


def test_cluster_matches_ledger_after_crashes(tmp_path: Path, kubernetes: Cluster) -> None:
    *killed, complete = crash_results(
        tmp_path,
        f"sqlite:///{tmp_path}/ledger.db",
        "1",
        f'[respond.kubernetes]\nkubeconfig = "{kubernetes.kubeconfig}"',
        driver="kubernetes",
        pool='selector = "pool=train"',
    )
    # Before and after the condition and the mark of a drain, and of its end.
    assert len(killed) >= 8
    assert set(complete["states"]) == {"node-00001 restart"}
    for crash in [*killed, complete]:
        assert crash["consistent"], crash
        assert crash["states"] == complete["states"], crash
        assert crash["out"] == []
    assert kubernetes.taints("node-00001") == []
    assert kubernetes.condition("node-00001") == ("False", "action 1 has ended")
