"""A simulated month: records arrive, lists are made, machines are drained, and some fail."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.evaluation.simulation.operations.simulated_cluster import Cluster
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.at_risk.at_risk_list import AtRiskList
from forewarn.pipelines.at_risk.fleet_scoring import score_with, score_with_rules
from forewarn.pipelines.incidents.loop.responder import LoopDecision, Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.sources.event_findings import early_end
from forewarn.pipelines.rendering.templates import chance_text
from forewarn.pipelines.runtime.timestamps import format_iso, to_timestamps
from forewarn.pipelines.sandbox.live_fleet import FleetFailure, LiveFleet, corrected_errors
from forewarn.pipelines.sandbox.live_hangs import diagnose_hang
from forewarn.pipelines.sandbox.live_models import LiveModels
from forewarn.pipelines.sandbox.simulated_scheduler import machine_name
from forewarn.pipelines.sandbox.strategy_comparison import DailyCosts
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.response.state.decision import Ruling
from forewarn.response.state.finding import Finding, FindingKind, Severity

__all__ = ["ROUND", "ClusterClock", "LiveMonth"]

ROUND: Final = Nanoseconds(HOUR)
"""Simulated time between two rounds of the loop."""

_LIST_HOUR: Final = 6 * HOUR
_RETRAIN_EVERY: Final = 6  # days
_DAYS_BETWEEN_HANGS: Final = 2
_KEPT_NAMES: Final = 4  # machines named in one line of the story


@dataclass(frozen=True, slots=True)
class ClusterClock:
    """Clock of a cluster."""

    cluster: Cluster

    def now(self) -> int:
        """Return the simulated time."""
        return self.cluster.now

    def wait(self, seconds: float, until: threading.Event) -> bool:
        """Wait in real time."""
        return until.wait(seconds)


@dataclass(slots=True)
class LiveMonth:
    """The state of the month.

    Attributes
    ----------
    fleet : LiveFleet
    site : ResponseSite
    cluster : Cluster
    responder : Responder
    models : LiveModels
    tell : callable
        Takes each line of the story.
    flagged, suspicious : dict of int to frozenset of int
        Machines by the time of the list: flagged by the list, and above the threshold.
    drains : int
    """

    fleet: LiveFleet
    site: ResponseSite
    cluster: Cluster
    responder: Responder
    models: LiveModels
    threshold: float
    tell: Callable[[str], None]
    seed: int = 0
    flagged: dict[int, frozenset[int]] = field(default_factory=dict)
    suspicious: dict[int, frozenset[int]] = field(default_factory=dict)
    daily: DailyCosts = field(init=False)
    _next_failure: int = 0
    _last_hang: int = 0
    _repaired: set[int] = field(default_factory=set)  # failures whose repair has ended
    _out_since: dict[int, int] = field(default_factory=dict)  # of drained machines

    def __post_init__(self) -> None:
        self.daily = DailyCosts(self.cluster)

    @property
    def over(self) -> bool:
        """Whether the month has ended."""
        return self.cluster.now >= self.fleet.end

    def advance(self) -> None:
        """Simulate the next hour, with everything that happens in it."""
        moment = Nanoseconds(self.cluster.now + ROUND)
        since = moment - self.fleet.start
        if (since - ROUND) % DAY == 0:
            self._receive_records(moment - ROUND)
        self._announce_failures(moment)
        self.cluster.advance(moment)
        self.return_repaired()
        self.return_examined()
        if since % DAY == _LIST_HOUR:
            self._make_list(moment)
        if since % (_RETRAIN_EVERY * DAY) == 0 and since and self.models.start(moment):
            self.tell(f"{self._day}: a challenger is trained on all records so far")
        self._adopt()
        self._tell_decisions(self.responder.once())
        if since % DAY == 0:
            self.daily.end_day()

    @property
    def _day(self) -> str:
        since = self.cluster.now - self.fleet.start
        return f"day {since // DAY + 1:2} {since % DAY // HOUR:02}:00"

    # --- what arrives -----------------------------------------------------------------------------

    def _receive_records(self, at: int) -> None:
        """Put the records of a day where the agents' records are; lists read those before `at`."""
        date = format_iso(at)[:10]
        target = self.site.records.parent / "records" / f"date={date}" / "part-0.parquet"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(self.fleet.day_file(date), target)

    def _announce_failures(self, until: Nanoseconds) -> None:
        """Report the failures until then as the agents of their machines would."""
        failures = self.fleet.failures
        while self._next_failure < len(failures) and failures[self._next_failure].at <= until:
            failure = failures[self._next_failure]
            self._next_failure += 1
            self.cluster.advance(Nanoseconds(max(failure.at - 1, self.cluster.now)))
            job = self.cluster.job_on(failure.machine)
            members = self.cluster.machines_with(failure.machine)
            text = self._failure_text(failure, job)
            self.cluster.advance(Nanoseconds(max(failure.at, self.cluster.now)))
            self.tell(f"{self._day}: {text}")
            finding = _failure_finding(failure, job, Nanoseconds(failure.at + DAY))
            self.responder.ledger.record_findings([finding], now=Nanoseconds(self.cluster.now))
            self._write_failures()
            if job is not None and len(members) > 1:
                self._hang(failure, str(job), members)

    def _failure_text(self, failure: FleetFailure, job: int | None) -> str:
        machine = machine_name(failure.machine)
        if job is not None:
            return f"a GPU of {machine} failed and stopped job {job}"
        is_out = failure.machine in self.cluster.drained
        return f"a GPU of {machine} failed; " + (
            "the machine was drained, no job was hit" if is_out else "no job ran there"
        )

    def _write_failures(self) -> None:
        known = self.fleet.failures[: self._next_failure]
        table = {
            "gpu_serial": [failure.gpu_serial for failure in known],
            "failed_at": to_timestamps([failure.at for failure in known]),
            "repaired_at": to_timestamps([failure.repaired for failure in known]),
        }
        with replacing(self.site.failures) as temporary:
            rows = pa.Table.from_pandas(pd.DataFrame(table), preserve_index=False)
            pq.write_table(rows, arrow_path(temporary))

    def _hang(self, failure: FleetFailure, job: str, members: Iterable[int]) -> None:
        """Diagnose the job of a failed machine, every other day at most: it takes a second."""
        if failure.at - self._last_hang < _DAYS_BETWEEN_HANGS * DAY:
            return
        self._last_hang = failure.at
        machines, broken = [machine_name(m) for m in members], machine_name(failure.machine)
        folder = self.site.folder / f"job-{job}"
        seed = self.seed + self._next_failure
        line = diagnose_hang(folder, job, machines, broken, failure.at, seed)
        with replacing(self.site.diagnoses[0] / f"{job}.json") as temporary:
            temporary.write_text(json.dumps(line) + "\n", encoding="utf-8")
        names = [str(row["machine"]) for row in line["culprits"] if row["machine"]]
        verdict = f"the culprit is {', '.join(names)}" if names else "no culprit identified"
        self.tell(f"{self._day}: job {job} was diagnosed: {line['kind']}, {verdict}")

    def return_repaired(self) -> None:
        """Resume machines in the scheduler once their GPU is repaired, as a repair crew does.

        The agents then report that the fault has ended: nothing is drained for it any more.
        """
        for number, failure in enumerate(self.fleet.failures[: self._next_failure]):
            if number in self._repaired or failure.repaired > self.cluster.now:
                continue
            self._repaired.add(number)
            if failure.repaired < failure.at + DAY:
                end = early_end(_failure_finding(failure, None, failure.repaired)).finding
                self.responder.ledger.record_findings([end], now=Nanoseconds(self.cluster.now))
            if failure.machine in self.cluster.drained and not self.cluster.down(failure.machine):
                self.cluster.drained.discard(failure.machine)
                name = machine_name(failure.machine)
                self.tell(f"{self._day}: {name} was repaired and returned to service")

    def return_examined(self) -> None:
        """Resume machines in which the crew found no fault within a day, as other strategies do."""
        drained = self.cluster.drained
        now = self.cluster.now
        self._out_since = {machine: self._out_since.get(machine, now) for machine in drained}
        for machine, since in self._out_since.items():
            if now - since >= DAY and not self.cluster.down(machine):
                drained.discard(machine)
                name = machine_name(machine)
                self.tell(f"{self._day}: {name} has no fault after a day and returned to service")

    # --- lists and models -------------------------------------------------------------------------

    def _make_list(self, at: Nanoseconds) -> None:
        made = self._score(at)
        made.write(self.site.lists, with_page=False)  # the console shows it
        table = made.table[made.table["flagged"]]
        names = dict.fromkeys(map(str, table["machine_id"]))
        self.flagged[at] = frozenset(map(_number, names))
        rises = corrected_errors(self.fleet.day_file(format_iso(at - DAY)[:10]))
        self.suspicious[at] = frozenset(
            _number(name) for name, rise in rises.items() if rise > self.threshold
        )
        first = "" if table.empty else f", first {next(iter(names))}"
        if len(table) and np.isfinite(chance := float(table["probability"].iloc[0])):
            first += f" with {chance_text(chance)}"
        self.tell(f"{self._day}: list of {len(made.table):,} GPUs, {len(table)} flagged{first}")

    def _score(self, at: Nanoseconds) -> AtRiskList:
        records = self.site.records.parent / "records"
        if self.models.champion is None:
            return score_with_rules(self.site.settings, records, at)
        lists = self.site.lists
        return score_with(self.models.champion, self.models.name, records, at, lists=lists)

    def _adopt(self) -> None:
        """Use a retrained model if the gate lets it pass."""
        result = self.models.result()
        if isinstance(result, str):
            self.tell(f"{self._day}: no challenger: {result}")
        elif result is not None:
            what = "is the new champion" if result.promoted else "stays a challenger"
            self.tell(f"{self._day}: version {result.version} {what} ({result.text})")

    # --- what the loop did ------------------------------------------------------------------------

    def _tell_decisions(self, decided: Iterable[LoopDecision]) -> None:
        new = [item for item in decided if item.new]
        for ruling, words in (
            (Ruling.ACT, "the loop acts"),
            (Ruling.PROPOSE, "waits for a person"),
        ):
            rows = [item for item in new if item.decision.ruling is ruling]
            named = [f"{item.decision.step} of {item.incident.machine}" for item in rows]
            if named:
                more = "" if len(named) <= _KEPT_NAMES else f" and {len(named) - _KEPT_NAMES} more"
                self.tell(f"{self._day}: {words}: {', '.join(named[:_KEPT_NAMES])}{more}")


def _number(name: str) -> int:
    return int(name.removeprefix("node-"))


def _failure_finding(failure: FleetFailure, job: int | None, until: Nanoseconds) -> Finding:
    kind, cause = FindingKind.FAILURE, "failure"
    if failure.xid:
        kind, cause = FindingKind.XID, f"xid {failure.xid}"
    return Finding(
        source="records",
        id=f"{failure.gpu_serial} {format_iso(failure.at)}",
        kind=kind,
        cause=cause,
        machine=machine_name(failure.machine),
        at=failure.at,
        valid_until=until,
        gpu_serial=failure.gpu_serial,
        job=None if job is None else str(job),
        severity=Severity.CRITICAL,
    )
