from __future__ import annotations

import subprocess
import sys

FOREIGN = ("forewarn.evaluation", "forewarn.pipelines.backtest", "forewarn.pipelines.training")
CODE = f"""
import sys
import forewarn.pipelines.at_risk.page, forewarn.pipelines.at_risk.score
import forewarn.pipelines.at_risk.summary
print([name for name in sys.modules if name.startswith({FOREIGN!r})])
"""


def test_the_daily_list_loads_nothing_of_the_backtest() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
