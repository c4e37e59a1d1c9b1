from __future__ import annotations

import json

import pytest

from forewarn.evaluation.simulation.operations.month_plan import plan_month
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.studies.response_study import run_strategy

pytestmark = pytest.mark.long

START = Nanoseconds(parse_moment("2025-01-01"))


def test_strategies_drain_as_expected() -> None:
    plan = plan_month(60, 10, seed=1, start=START)
    nothing = run_strategy(plan, "do nothing", seed=1)
    drained = run_strategy(plan, "drain the list", seed=1)
    assert (nothing.drains, nothing.total.isolated) == (0, 0.0)
    assert drained.drains > 0
    assert drained.total.isolated > 0
    assert drained.total.killed <= nothing.total.killed


def test_study_uses_site_files_and_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--machines", "24", "--days", "4", "--controls", "0,1", "--seed", "3", "--json"]
    assert main(["study", "response", *arguments]) == 0
    lines = {
        line["strategy"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())
    }
    assert set(lines) == {
        *("do nothing", "drain the list", "at random"),
        *("forewarn, control 0", "forewarn, control 1"),
    }
    assert (
        lines["forewarn, control 0"]["score"]["precision"]["value"] is None
    )  # undefined without controls
    acting, alone = (lines[f"forewarn, control {share}"]["drains"] for share in (0, 1))
    assert alone <= acting


def test_invalid_shares_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["study", "response", "--controls", "2"])
    assert "expected shares such as 0,0.1,0.5" in capsys.readouterr().err
