"""Run an agent or a collector on a fast clock, for a test of hours within a minute.

    python scaled.py agent POLICY CLOCK
    python scaled.py collect OUT CONFIG CLOCK PORT CMDB REPAIRS

CLOCK is a JSON file. `real` and `simulated` are the same moment on both clocks in nanoseconds,
`speed` is simulated seconds per real second. At `jump_at`, if given, the clock is set by `jump`.
With `file` instead of `real` and `simulated`, that file contains the simulated time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.time_units import SECOND

_LEAST = 0.1  # real seconds; shorter waits would cause too much load


@dataclass(frozen=True)
class ScaledClock:
    speed: int
    real: int = 0
    simulated: int = 0
    file: str = ""
    jump_at: int = 2**62
    jump: int = 0

    def now(self) -> int:
        if self.file:
            now = int(Path(self.file).read_text())
        else:
            now = self.simulated + (time.time_ns() - self.real) * self.speed
        return now + self.jump if now >= self.jump_at else now

    def wait(self, seconds: float, until: threading.Event) -> bool:
        return until.wait(max(seconds / self.speed, _LEAST))

    def sleep_until(self, moment: int) -> None:
        while (left := moment - self.now()) > 0:
            time.sleep(left / self.speed / SECOND)


def read_clock(path: Path) -> ScaledClock:
    return ScaledClock(**json.loads(path.read_text()))


def main(kind: str, *rest: str) -> None:
    if kind == "agent":
        from forewarn.pipelines.agent.agent_service import run_agent
        from forewarn.pipelines.config.agent_policy import load_policy

        policy, clock = load_policy(Path(rest[0])), read_clock(Path(rest[1]))
        token = os.environ["FOREWARN_TOKEN"]
        run_agent(policy, token, once=False, out=sys.stdout, clock=clock)
    else:
        from forewarn.pipelines.collector.collector_service import run_collector
        from forewarn.pipelines.config.settings import load_settings

        out, config, clock_file, port, cmdb, repairs = rest
        run_collector(
            load_settings(Path(config)),
            Path(out),
            cmdb=Path(cmdb),
            repairs=Path(repairs),
            tokens=os.environ["FOREWARN_TOKENS"],
            port=int(port),
            clock=read_clock(Path(clock_file)),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
