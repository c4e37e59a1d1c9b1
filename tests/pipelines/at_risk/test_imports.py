from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BY_RULES = """
import sys
from forewarn.pipelines.cli.main import main
assert main(sys.argv[1:]) == 0
print({"numba.np.arraymath", "scipy.linalg"} & set(sys.modules))
"""
FOREIGN = (
    *("forewarn.evaluation", "forewarn.pipelines.backtest", "forewarn.pipelines.training"),
    "matplotlib",  # imported only for plots: it takes half a second
)
# The calibration monitor and the action costs need only arithmetic.
ALLOWED = (
    "forewarn.evaluation",
    "forewarn.evaluation.prediction",
    "forewarn.evaluation.prediction.metrics",
    "forewarn.evaluation.prediction.metrics.action_costs",
    "forewarn.evaluation.prediction.metrics.daily_list",
    "forewarn.evaluation.prediction.metrics.calibration_monitor",
    "forewarn.evaluation.prediction.metrics.sequential_tests",
)
CODE = f"""
import sys
import forewarn.pipelines.at_risk.at_risk_page, forewarn.pipelines.at_risk.fleet_scoring
loaded = [name for name in sys.modules if name.startswith({FOREIGN!r})]
print(sorted(set(loaded) - set({ALLOWED!r})))
"""


def test_list_imports_no_backtest_modules() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rules_list_imports_no_compiler(records: Path, config: Path, tmp_path: Path) -> None:
    """It would take a third of a second; a list is to take three seconds."""
    command = [sys.executable, "-c", BY_RULES, "score", "--model", "builtin:rules"]
    command += ["--records", str(records), "--config", str(config), "--at", "2025-01-19"]
    command += ["--out", str(tmp_path)]
    for _ in range(2):  # the first may have to compile
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
