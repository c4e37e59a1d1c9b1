from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.grafted_machines import graft


def table(offset: float, ticks: int = 120) -> pd.DataFrame:
    rows = [
        pd.DataFrame({"timestamp": range(ticks), "machine": f"m{i}", "load": offset + i})
        for i in range(4)
    ]
    return pd.concat(rows, ignore_index=True)


@pytest.mark.parametrize("seed", range(10))
def test_graft_changes_one_span_of_one_machine(seed: int) -> None:
    before, other = table(0.0), table(100.0)
    after, machine, begin = graft(before, other, np.random.default_rng(seed))
    changed = np.flatnonzero(after["load"] != before["load"])
    assert set(after["machine"].iloc[changed]) == {machine}
    assert int(after["timestamp"].iloc[changed[0]]) == begin
    assert 20 <= len(changed) == changed[-1] - changed[0] + 1 < 60
    assert len(set(after["load"].iloc[changed])) == 1
    assert before.equals(table(0.0))
