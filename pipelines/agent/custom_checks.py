"""Custom checks of a host: programs of the site that run on a schedule; results become events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.telemetry.checks.check_result import CheckResult
from forewarn.features.telemetry.checks.custom_check import custom_check_name
from forewarn.features.telemetry.telemetry_rows import HostState, check_row
from forewarn.features.time_units import HOUR, SECOND
from forewarn.pipelines.agent.check_command import run_check_command
from forewarn.pipelines.runtime.clock import Clock

__all__ = ["CustomChecks"]

_REPEAT_AFTER = HOUR  # an unchanged result is sent again, because silence is not health


@dataclass(slots=True)
class CustomChecks:
    """The custom checks of an agent, each in a thread of its own: one run at a time.

    Attributes
    ----------
    tables : mapping of str to CheckTable
    machine : str
    clock : Clock
    send : callable
        Takes the rows of EVENTS of a result, and returns whether they are stored.
    """

    tables: Mapping[str, CheckTable]
    machine: str
    clock: Clock
    send: Callable[[list[dict[str, Any]]], bool]
    _sent: dict[str, tuple[str, int]] = field(default_factory=dict)  # severity and time

    def run_once(self, name: str) -> None:
        """Run a check; send its result if it changed, or if the last one is an hour old."""
        table = self.tables[name]
        severity, text = run_check_command(table)
        now = self.clock.now()
        last, at = self._sent.get(name, ("", 0))
        if severity == last and 0 <= now - at < _REPEAT_AFTER:
            return
        check = custom_check_name(name, table.identity())
        row = check_row(CheckResult(check, severity, text), HostState(self.machine, now))
        if self.send([row]):
            self._sent[name] = (severity, now)

    def run(self, name: str, stop: threading.Event) -> None:
        """Run a check on its schedule until `stop` is set; a late run is not made up for."""
        every = self.tables[name].every
        while not stop.is_set():
            started = self.clock.now()
            self.run_once(name)
            used = max(0, self.clock.now() - started)
            self.clock.wait((every - used % every) / SECOND, stop)
