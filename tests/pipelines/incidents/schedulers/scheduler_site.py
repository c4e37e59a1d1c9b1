"""A site of `forewarn respond` with a real scheduler, used through the command line."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.response.state.action import ActionState
from forewarn.response.state.finding import Finding, FindingKind

POLICY = '[kinds.at_risk]\nlikely = { probability = 0.3, step = "drain" }\n'


@dataclass
class SchedulerSite:
    """A site; `output` is what the last round printed."""

    folder: Path
    cluster: Any
    capsys: pytest.CaptureFixture[str]
    ledger: Ledger
    output: Any = None

    @property
    def config(self) -> str:
        return str(self.folder / "my.toml")

    def report(
        self,
        machine: str,
        cause: str = "at_risk",
        minutes_ago: float = 20,
        probability: float = 0.4,
        gpu_serial: str | None = None,
    ) -> None:
        at = Nanoseconds(time.time_ns() - int(minutes_ago * MINUTE))
        finding = Finding(
            source="test",
            id=f"{cause} {machine} {at}",
            kind=FindingKind.AT_RISK if cause == "at_risk" else FindingKind.XID,
            cause=cause,
            machine=machine,
            gpu_serial=gpu_serial,
            at=at,
            valid_until=Nanoseconds(at + HOUR),
            evidence={"probability": probability},
        )
        self.ledger.record_findings([finding], now=at)

    def respond(self, code: int = 0) -> dict[str, dict[str, Any]]:
        """Run the loop once; return the decision about each machine."""
        self.capsys.readouterr()
        assert main(["respond", "--once", "--json", "--config", self.config]) == code
        self.output = self.capsys.readouterr()
        lines = [json.loads(line) for line in self.output.out.splitlines()]
        return {line["machine"]: line for line in lines}

    def states(self) -> list[ActionState]:
        return [a.state for i in self.ledger.incidents() for a in i.actions]

    def undo(self, incident: int) -> None:
        arguments = ["undo", str(incident), "--config", self.config, "--why", "looked at"]
        assert main(arguments) == 0

    # --- people -----------------------------------------------------------------------------------

    def take_out(self, machine: str) -> None:
        """Take a machine out of service by the scheduler's own command."""
        raise NotImplementedError

    def put_back(self, machine: str) -> None:
        """Return a machine to service by the scheduler's own command."""
        raise NotImplementedError
