"""The ledger of a fleet of 20,000 GPUs: a million repeats, concurrent readers, size after a year.

    python benchmarks/ledger.py [--short] [--url postgresql://USER@HOST/NAME]

Assumptions for a day on 2,500 machines: each machine has one Xid finding; 60 GPUs are on the
at-risk list (0.3 %), 54 fail (0.27 %); there are 50 verdicts, blind monitors and external drains,
each with 300 characters of evidence. Two findings form one incident, two incidents three decisions.
30 machines are drained, with five action changes each. An incident closes after a day. The
responder and the list write a heartbeat once a minute, and people act 100 times. 1,300 incidents
are open at any time; a reader requests the newest hundred. With --short, readers run on a ledger of
some days, and the size of a year is extrapolated.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
from pathlib import Path

from sqlalchemy import Connection, insert, text

from forewarn.features.time_units import DAY, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.ledger import (
    action_rows,
    decision_rows,
    incident_rows,
    ledger_tables,
)
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import IncidentState
from forewarn.response.state.step import DrainMode, Step

MACHINES, GPUS = 2_500, 20_000
A_DAY = 2_664  # findings
DRAINS = 30
READERS, PAGE = 50, 100
EVIDENCE = {"line": "NVRM: Xid (PCI:0000:4d:00): 79, GPU has fallen off the bus. " * 5}
LIFE = (ActionState.SENT, ActionState.HOLDING, ActionState.DRAINED, ActionState.RELEASED)


def _finding(number: int, at: int) -> Finding:
    """Two consecutive findings are about the same GPU."""
    gpu = number // 2 * 7 % GPUS
    return Finding(
        source="records",
        id=f"xid-{number:09}",
        kind=FindingKind.XID,
        cause="xid 79",
        machine=f"node-{gpu // 8:05}",
        gpu_serial=f"165{gpu:010}",
        job=f"{number // 100}",
        at=Nanoseconds(at),
        valid_until=Nanoseconds(at + DAY),
        severity=Severity.ERROR,
        evidence=EVIDENCE,
    )


def _decision(incident: int, at: Nanoseconds, ruling: Ruling) -> Decision:
    what = (ruling, Step.DRAIN, DrainMode.FINISH, Severity.ERROR)
    reason = "xid 79: the GPU fell off the bus; 2 of 2 machines of the rack are out"
    rests_on = (_finding(incident, at).key, _finding(incident + 1, at).key)
    return Decision(incident, at, *what, reason, None, Nanoseconds(at + DAY), rests_on, "8d2f0c11")


# --- a million repeats ----------------------------------------------------------------------------


def repeats(url: str, number: int) -> None:
    """Post one finding repeatedly, a thousand at a time as the API does."""
    with Ledger.open(url) as ledger:
        finding = _finding(0, 0)
        started, cpu = time.perf_counter(), time.process_time()
        for at in range(number // 1000):
            ledger.record_findings([finding] * 1000, now=Nanoseconds(at))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        (row,) = ledger.open_incidents()[0].findings
    print(f"{row.count:,} repeats, one finding   {seconds:6.1f} s ({cpu:.1f} s of CPU)")


def repeats_of_many(url: str, number: int) -> None:
    """Post one finding of each GPU repeatedly."""
    with Ledger.open(url) as ledger:
        findings = [_finding(2 * gpu, 0) for gpu in range(GPUS)]
        ledger.record_findings(findings, now=Nanoseconds(0))
        started, cpu = time.perf_counter(), time.process_time()
        for begin in range(0, number, 1000):
            first = begin % GPUS
            ledger.record_findings(findings[first : first + 1000], now=Nanoseconds(begin))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(f"{number:,} repeats, {GPUS:,} of them {seconds:6.1f} s ({cpu:.1f} s of CPU)")


# --- a year ---------------------------------------------------------------------------------------


def live(ledger: Ledger, days: int) -> None:
    """Write the data of some days."""
    before: list[int] = []
    for day in range(days):
        now = Nanoseconds(day * DAY)
        first = day * A_DAY
        ledger.record_findings([_finding(first + n, now) for n in range(A_DAY)], now=now)
        with ledger.database.writing() as connection:
            for incident in before:
                closed, why = IncidentState.CLOSED, "its horizon has passed"
                incident_rows.end_incident(
                    connection, incident, closed, now=now, who="ann", why=why
                )
            before = _day(connection, now)


def _day(connection: Connection, now: Nanoseconds) -> list[int]:
    query = "SELECT id, machine FROM incidents WHERE opened_at = :now ORDER BY id"
    opened = connection.execute(text(query), {"now": now}).all()
    for index, (incident, machine) in enumerate(opened):
        decision_rows.add(connection, _decision(incident, now, Ruling.OBSERVE))
        if index % 2:
            decision_rows.add(connection, _decision(incident, now, Ruling.HOLD))
        if index < DRAINS:
            _drain(connection, incident, machine, now)
    beats = [{"name": name, "at": now + m * MINUTE} for m in range(1440) for name in "ab"]
    connection.execute(insert(ledger_tables.beats), beats)
    note = {"at": now, "who": "ann", "act": "acknowledge", "target": "incident 1", "detail": ""}
    connection.execute(insert(ledger_tables.notes), [note] * 100)
    return [incident for incident, _ in opened]


def _drain(connection: Connection, incident: int, machine: str, now: Nanoseconds) -> None:
    names = (machine, "train", "rack-7", "4711", "xid 79")
    end = Nanoseconds(now + DAY)
    intended = Action(0, incident, *names, Step.DRAIN, DrainMode.FINISH, now, end, now)
    action = action_rows.add(connection, intended, who="forewarn")
    for state in LIFE:
        changed = action_rows.advance(
            connection,
            action,
            state,
            now=now,
            who="forewarn",
            detail="read back",
            identity=("", ""),
        )
        assert changed is not None
        action = changed


def _bytes(ledger: Ledger, url: str) -> int:
    with ledger.database.reading() as connection:
        if connection.dialect.name == "postgresql":
            size = connection.scalar(text("SELECT pg_database_size(current_database())"))
            return int(size or 0)
    return sum(path.stat().st_size for path in Path(url.partition("///")[2]).parent.iterdir())


# --- readers and a writer -------------------------------------------------------------------------


def write_on(url: str, seconds: float) -> None:
    """Post a hundred findings at a time, half of them new, until the time is over."""
    with Ledger.open(url) as ledger:
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            # Few GPUs, so that the number of open incidents does not grow.
            batch = [_finding(10**6 + n % 20, n) for n in range(number, number + 100)]
            ledger.record_findings(batch, now=Nanoseconds(number))
            number += 50
            time.sleep(0.02)


def readers(url: str, seconds: float) -> None:
    """Let fifty threads read open incidents without pauses while a process writes."""
    latencies: list[float] = []
    writer = multiprocessing.get_context("spawn").Process(target=write_on, args=(url, seconds + 2))
    writer.start()
    time.sleep(1)
    with Ledger.open(url) as ledger:
        n_open, cpu = len(ledger.open_incidents()), time.process_time()
        ledger.open_incidents()
        print(f"all {n_open} open incidents read in {time.process_time() - cpu:.3f} s of CPU")
        end, cpu = time.monotonic() + seconds, time.process_time()

        def read_on() -> None:
            while time.monotonic() < end:
                started = time.perf_counter()
                page = ledger.incidents(state=IncidentState.OPEN, limit=PAGE)
                latencies.append(time.perf_counter() - started)
                assert len(page) == PAGE

        threads = [threading.Thread(target=read_on) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cpu = time.process_time() - cpu
    writer.join()
    cuts = statistics.quantiles(latencies, n=100)
    print(
        f"{READERS} readers of {PAGE} incidents and a writer: p50 {cuts[49] * 1e3:.0f} ms, "
        f"p95 {cuts[94] * 1e3:.0f} ms, {len(latencies) / seconds:.0f} reads a second, "
        f"{cpu / len(latencies) * 1e3:.2f} ms of CPU each"
    )


def main() -> None:
    """Run all parts and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="few days instead of a year")
    parser.add_argument("--url", help="an empty PostgreSQL; else SQLite in a temporary folder")
    arguments = parser.parse_args()
    days, seconds = (3, 2.0) if arguments.short else (365, 20.0)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "many", "year"):
            Path(folder, name).mkdir()
        urls = {name: f"sqlite:///{folder}/{name}/ledger.db" for name in ("one", "many", "year")}
        if arguments.url is None:
            repeats(urls["one"], 100_000 if arguments.short else 1_000_000)
            repeats_of_many(urls["many"], 40_000 if arguments.short else 1_000_000)
        url = arguments.url or urls["year"]
        with Ledger.open(url) as ledger:
            started = time.perf_counter()
            live(ledger, days)
            size = _bytes(ledger, url)
            print(
                f"{days} days written in {time.perf_counter() - started:.0f} s: "
                f"{size / 2**20:.0f} MiB, {size / days * 365 / 2**30:.2f} GiB a year"
            )
        readers(url, seconds)


if __name__ == "__main__":
    main()
