"""A decision about a machine and its job after one new finding, and one from nothing.

    python benchmarks/recovery_decision.py [--short]

A job of 10,000 ranks on 1,250 machines, and a ledger with 100,000 findings about them. After one
new finding the findings of its machine are read, its step is decided with escalation, and the rung
of the job. From nothing the state of the job follows from 100,000 events. The ratios compare with
reading all findings, and with sorting the events.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from forewarn.features.time_units import DAY, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.recovery.crash_evidence import crash_by_finding
from forewarn.response.recovery.job_crash import FaultOrigin, JobAbilities, JobCrash
from forewarn.response.recovery.recovery_plan import plan_recovery
from forewarn.response.recovery.recovery_state import (
    CheckpointSaved,
    RecoveryEvent,
    RungBegun,
    StepMade,
    recovery_state,
)
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Incident
from forewarn.response.state.rung import Rung

MACHINES, RANKS_PER_MACHINE = 1_250, 8
CODES = (94, 63, 79, 31)
REPEATS = 50


def finding(number: int, at: int) -> Finding:
    """Return one of the findings, spread over machines and codes."""
    code = CODES[number // MACHINES % len(CODES)]
    return Finding(
        *("records", f"xid-{number:07}", FindingKind.XID, f"xid {code}"),
        machine=f"node-{number % MACHINES:05}",
        at=Nanoseconds(at),
        valid_until=Nanoseconds(at + DAY),
        gpu_serial=f"165{number % (MACHINES * RANKS_PER_MACHINE):07}",
    )


def life(events: int) -> list[RecoveryEvent]:
    """Return a life with a crash after each 99 checkpoints."""
    happened: list[RecoveryEvent] = []
    for number in range(events // 2):
        at = Nanoseconds(number * MINUTE)
        happened += [CheckpointSaved(at, number), StepMade(Nanoseconds(at + SECOND))]
        if number % 100 == 99:
            happened[-2:] = [
                JobCrash(at, FaultOrigin.NOT_ONE, "boom"),
                RungBegun(Nanoseconds(at + SECOND), Rung.RESTART),
            ]
    return happened


def seconds(call: Callable[[], object], repeats: int = 1) -> float:
    """Return the median CPU time of some calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main() -> None:
    """Measure, and print the times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the findings")
    count = 10_000 if parser.parse_args().short else 100_000
    policy, able = load_policy(), JobAbilities(rungs=frozenset(Rung))
    now = Nanoseconds(30 * DAY)
    known = [finding(number, now - DAY + number * 100_000) for number in range(count)]
    events = life(count)
    state = recovery_state(events, policy.ladder)
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.open(f"sqlite:///{Path(folder) / 'ledger.db'}") as ledger,
    ):
        for first in range(0, count, 10_000):
            ledger.record_findings(known[first : first + 10_000], now=now)
        new = replace(known[0], id="new", cause="xid 79", at=now, valid_until=now)
        new = replace(new, valid_until=Nanoseconds(now + DAY))
        ledger.record_findings([new], now=now)

        def decide() -> None:
            own = ledger.findings_on([new.machine], now - DAY, now)
            incident = Incident(1, new.machine, None, now, findings=tuple(own))
            policy.step_for(incident, (), (), now)
            crash = JobCrash(now, FaultOrigin.NOT_ONE)
            after = state.advance(crash_by_finding(crash, [new], policy), policy.ladder)
            plan = plan_recovery(after, able, policy.ladder, now)
            assert plan.choice is not None
            assert plan.choice.rung is Rung.REPLACE

        machines = sorted({each.machine for each in known})
        every = seconds(lambda: ledger.findings_on(machines, 0, now))
        decision = seconds(decide, REPEATS)
    nothing = seconds(lambda: recovery_state(events, policy.ladder), 3)
    sorting = seconds(lambda: sorted(events, key=lambda event: event.at), 3)
    print(f"decision after a finding: {decision * 1000:.1f} ms of CPU (goal 10), "
          f"{count:,} findings, ratio {decision / every:.4f} to reading all")  # fmt: skip
    print(f"state from nothing: {nothing:.2f} s of CPU (goal 2), {count:,} events, "
          f"ratio {nothing / sorting:.1f} to sorting them")  # fmt: skip


if __name__ == "__main__":
    main()
