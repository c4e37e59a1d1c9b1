"""Fills the templates of log lines with the facts of a simulated job."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from forewarn.evaluation.simulation.jobs.launcher_lines import Placement
from forewarn.evaluation.simulation.jobs.rank_layout import RankLayout

__all__ = ["LineWriter", "LogEntry"]

_LINE_SECONDS = 0.0002  # between two lines of the same event


class LogEntry(NamedTuple):
    """A line in a file.

    Attributes
    ----------
    seconds : float
        When it was written, since the start of the job.
    path, text : str
    """

    seconds: float
    path: str
    text: str


@dataclass(slots=True)
class LineWriter:
    """The lines of a job, as they are written.

    Parameters
    ----------
    layout : RankLayout
    placement : Placement
    clock : callable
        Returns what the clock of a machine shows, from seconds since the start and its number.
    hosts : sequence of str
        What each machine is called in the logs: the name of a pod, where it is one.
    rng : numpy.random.Generator
        Draws the numbers without meaning in a line.
    facts : dict
        Fields that are the same in all lines.

    Attributes
    ----------
    entries : list of LogEntry
    """

    layout: RankLayout
    placement: Placement
    clock: Callable[[float, int], datetime]
    hosts: Sequence[str]
    rng: np.random.Generator
    facts: dict[str, Any]
    entries: list[LogEntry] = field(default_factory=list)

    def fields(self, rank: int, **more: object) -> dict[str, Any]:
        """Return the fields of a rank that stay the same, and some numbers without meaning."""
        machine, local = divmod(rank, self.layout.per_machine)
        n, short, thread = (
            int(self.rng.integers(*limits)) for limits in ((100, 1000), (2, 9), (300, 900))
        )
        agent = 2100 + machine * 7 % 900
        same = {
            **{"rank": rank, "local": local, "host": self.hosts[machine], "machine": machine},
            **{"address": address(machine), "agent": agent, "pid": agent + 70 + local},
            **{"next_pid": agent + 70 + (local + 1) % self.layout.per_machine},
            **{"thread": agent + thread, "n": n, "short": short, "head": self.hosts[0]},
            **{"ranks": self.layout.n_ranks, "tp": self.layout.tp, "pp": self.layout.pp},
            **{"dp": self.layout.dp, "last_local": self.layout.per_machine - 1},
            "label": str(rank).zfill(len(str(self.layout.n_ranks - 1))),
        }
        return {**same, **self.facts, **more}

    def by_rank(
        self,
        seconds: float,
        templates: Sequence[str],
        fields: dict[str, Any],
        stream: str = "stderr",
    ) -> None:
        """Write lines of a rank."""
        form = self.placement
        self._write(seconds, templates, form.path, form.prefix, {**fields, "stream": stream})

    def by_launcher(self, seconds: float, templates: Sequence[str], fields: dict[str, Any]) -> None:
        """Write lines of the launcher on a machine."""
        self._write(seconds, templates, self.placement.own_path, self.placement.own_prefix, fields)

    def by_kernel(
        self, seconds: float, templates: Sequence[str], fields: dict[str, Any], prefix: str
    ) -> None:
        """Write lines of the kernel of a machine."""
        self._write(seconds, templates, "{host}/dmesg.log", prefix, fields)

    def _write(
        self,
        seconds: float,
        templates: Sequence[str],
        path: str,
        prefix: str,
        fields: dict[str, Any],
    ) -> None:
        file = path.format_map(fields)
        for number, template in enumerate(templates):
            at = seconds + number * _LINE_SECONDS
            time = self.clock(at, fields["machine"])
            moment = {
                **{"time": time, "ms": f"{time.microsecond // 1000:03d}"},
                **{"us": f"{time.microsecond:06d}", "ns": f"{time.microsecond:06d}{fields['n']}"},
                "epoch_seconds": time.timestamp(),
            }
            text = (prefix + template).format_map({**fields, **moment})
            self.entries.append(LogEntry(at, file, text))


def address(machine: int) -> str:
    """Return the address of a machine."""
    return f"10.0.{machine // 250}.{machine % 250 + 1}"


def signal_fields(code: int) -> dict[str, object]:
    """Return how launchers write an exit code."""
    number = max(-code, 0)
    names = {signal.SIGKILL: "Killed", signal.SIGABRT: "Aborted (core dumped)"}
    word = names.get(signal.Signals(number), "Terminated") if number else ""
    name = signal.Signals(number).name if number else ""
    return {
        **{"code": code, "signal": number, "signal_word": word, "signal_name": name},
        "pdsh_code": code % 256,
    }
