"""Crash test of a step's command: `forewarn respond --once` killed between any two moments.

    python crash_test_steps.py CONFIG URL LOG STRIDE   # prints a line of JSON per crash

As in `crash_test_loop`; the command and its report run in the process of the loop, and crash, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.pipelines.incidents.crash_test_loop import NAMES, STEPS, Scenario, step

from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop import site_command, step_process, step_runner

PROGRAM = Path(__file__)
CONFIG = """
[respond]
ledger = "{url}"
driver = "slurm"
first_day = "1ms"
check = ["true"]
[respond.pools.rest]
mode = "act"
machines = 1
[respond.pools.rest.steps.restart]
command = ["sh", "-c", "echo $0 >> {log}", "{{machine}}"]
"""


def step_in_process(job: step_process.StepJob) -> None:
    """Run the command in this process, with a crash point before and after it."""
    plain = site_command.run_site_command

    def run(*arguments: Any, **named: Any) -> Any:
        step()
        result = plain(*arguments, **named)
        step()
        return result

    step_process.run_site_command = run  # type: ignore[attr-defined]
    step_process._run(job)


def done() -> int:
    return int.from_bytes(STEPS[:8], "little")


def play(scenario: Scenario, log: Path) -> tuple[int, int]:
    """Drain a machine and restart it; return between which steps the restart may begin and end."""
    log.write_text("")
    scenario.begin()
    scenario.call()
    scenario.report(NAMES[0], "xid 79")
    scenario.call(20)
    scenario.end_jobs(NAMES[0])
    first = done()
    scenario.call(1)
    scenario.call(1)
    last = done()
    for minutes in (1, 40, 30, 1, 1):  # a lost result is overdue, a lost check runs again
        scenario.call(minutes)
    return first, last


def run_crashes(config: Path, url: str, log: Path, stride: int) -> None:
    step_runner.start_step = step_in_process  # type: ignore[attr-defined]
    scenario = Scenario(config, url)
    STEPS[:16] = bytes(16)
    first, last = play(scenario, log)
    for at in range(first + 1, last + 1, stride):
        STEPS[:8], STEPS[8:] = bytes(8), at.to_bytes(8, "little")
        play(scenario, log)
        with Ledger.open(url) as ledger:
            details = [change.detail for change in ledger.action_states(1)]
        line = {"runs": log.read_text().splitlines(), "details": details}
        sys.stdout.write(f"{json.dumps(line | scenario.summary())}\n")
        sys.stdout.flush()


def crash_results(folder: Path, url: str, stride: str) -> list[dict[str, Any]]:
    """Return the runs of the command and the state of the ledger after each crash."""
    config, log = folder / "my.toml", folder / "log"
    config.write_text(CONFIG.format(url=url, log=log))
    command = [sys.executable, str(PROGRAM), str(config), url, str(log), stride]
    environment = os.environ | {"PYTHONPATH": str(PROGRAM.parents[3])}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


if __name__ == "__main__":
    run_crashes(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
