from __future__ import annotations

import subprocess
import sys

FOREIGN = ("forewarn.evaluation", "forewarn.pipelines.backtest", "forewarn.pipelines.training")
# What past lists promised is judged, and actions have a price: that is arithmetic of a few lines.
ALLOWED = (
    "forewarn.evaluation",
    "forewarn.evaluation.prediction",
    "forewarn.evaluation.prediction.action_costs",
    "forewarn.evaluation.prediction.daily_list",
    "forewarn.evaluation.prediction.kept_promise",
    "forewarn.evaluation.prediction.risk_tests",
)
CODE = f"""
import sys
import forewarn.pipelines.at_risk.page, forewarn.pipelines.at_risk.score
import forewarn.pipelines.at_risk.summary
loaded = [name for name in sys.modules if name.startswith({FOREIGN!r})]
print(sorted(set(loaded) - set({ALLOWED!r})))
"""


def test_the_daily_list_loads_nothing_of_the_backtest() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
