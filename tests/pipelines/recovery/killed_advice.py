"""`forewarn advise recovery --begin` killed by SIGKILL between any two moments, and called again.

    python killed_advice.py JOB CONFIG STRIDE   # prints a line of JSON per crash

A moment is the start or end of a statement or transaction of the ledger, or a write of the print.
The first line is that of a call that was not killed, the others go back in time.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.recovery_log import read_events
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.recovery.job_life import read_life

AT = "2100-01-01"  # after all that the job did


class Moments:
    """Counts the moments of this process, and kills it at one of them."""

    def __init__(self, deadly: int) -> None:
        self.deadly, self.passed = deadly, 0

    def __call__(self, *_: Any) -> None:
        self.passed += 1
        if self.passed == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)


class WatchedOutput(io.StringIO):
    """Output whose writes are moments."""

    def __init__(self, moments: Moments) -> None:
        super().__init__()
        self.moments = moments

    def write(self, text: str) -> int:
        self.moments()
        return super().write(text)


def advise(job: Path, config: Path) -> None:
    command = ("advise", "recovery", "--json", "--begin", "--at", AT)
    assert main([*command, "--job", str(job), "--config", str(config)]) == 0


def advise_and_die(job: Path, config: Path, deadly: int) -> int | None:
    """Advise in a child process; return how many moments it had, or None if it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        moments = Moments(deadly)
        for name in ("before_cursor_execute", "after_cursor_execute", "begin", "commit"):
            event.listen(Engine, name, moments)
        with redirect_stdout(WatchedOutput(moments)):
            advise(job, config)
        os.write(writer, str(moments.passed).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        count = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    if os.WEXITSTATUS(status) != 0:
        sys.exit(f"the call failed before moment {deadly}")
    return int(count)


def recorded(config: Path) -> dict[str, Any]:
    with ResponseSite.from_config(config).ledger() as ledger:
        return {
            "events": [type(each).__name__ for each in read_events(ledger, ["42"])],
            "blocks": [(block.job, block.machine) for block in ledger.blocks()],
            "alerts": [note.target for note in ledger.notes() if note.act == "alert"],
        }


def run_crashes(job: Path, config: Path, stride: int) -> None:
    ledger, empty = config.with_name("ledger.db"), config.with_name("empty.db")
    ResponseSite.from_config(config).new_ledger().close()
    shutil.copy(ledger, empty)
    read_life(job, [])  # so that no child compiles its expressions

    def crash(deadly: int) -> int | None:
        for path in config.parent.glob("ledger.db*"):
            path.unlink()
        shutil.copy(empty, ledger)
        count = advise_and_die(job, config, deadly)
        before = recorded(config)
        with redirect_stdout(io.StringIO()) as printed:
            advise(job, config)
        line = {"killed": count is None, "before": before, "after": recorded(config)}
        line["decision"] = json.loads(printed.getvalue())
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()
        return count

    for deadly in range(crash(0) or 0, 0, -stride):
        crash(deadly)


if __name__ == "__main__":
    run_crashes(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
