"""Storms on a real Slurm: forged events, clock jumps, lost ledgers and manual changes.

    .venv/bin/python -m tests.storms [--storms 100] [--seed 0] [--steps 12]

Starts a Slurm of sixteen nodes on loopback. In each storm the loop, called as by its command, meets
real and forged faults, counts beyond 64 bits, a clock that jumps by hours or days, a deleted
ledger, a kill switch, jobs, and people who drain and undo. The invariants are stated here a second
time, in terms of what Slurm reports before and after each call. Prints the counts and exits with 1
if any invariant was violated.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.pipelines.incidents.schedulers.slurm.conftest import NODES

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.cli.main import main as forewarn
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.response_site import STOP_FILE
from forewarn.response.state.finding import Finding, FindingKind, Provenance, Severity
from forewarn.response.state.machine import Machine

CONFIG = """
[respond]
driver = "slurm"
slurm_conf = "{conf}"
command_timeout = "60s"
policy = ["policy.toml"]
first_day = "1ms"
overrides = 100
fleet_rate = {rate}
[respond.pools.rest]
partition = "gpu"
mode = "act"
share = {share}
"""
POLICY = '[kinds.at_risk]\nlikely = { probability = 0.3, step = "drain" }\n'
RATE, SHARE, PER_RACK = 5, 0.13, 1
OPTED_OUT = NODES[15]
CERTAIN = ("xid 48", "xid 64", "xid 79", "xid 95", "xid 140", "lost")
REVERSIBLE = ("xid 119", "xid 74", "at_risk", "check by nhc")
HARMLESS = ("xid 13", "xid 31", "xid 43", "blind")
KINDS = {
    "lost": FindingKind.FAILURE,
    "at_risk": FindingKind.AT_RISK,
    "check by nhc": FindingKind.CHECK,
    "blind": FindingKind.BLIND,
}
JUMPS = (25 * HOUR, -25 * HOUR, 6 * HOUR, -20 * HOUR // 60, 8 * DAY, 400 * DAY)
WRONG: Final = ("wrong drains", "wrong releases", "requeues", "tracebacks")


@dataclass
class Storm:
    """One simulated period of a site on a healthy Slurm.

    Attributes
    ----------
    slurm : Cluster
    folder : Path
    chance : Random
    counts : Counter
        Events and violations.
    guilty : dict of str to set of str
        Causes that each machine reported itself; only these may drain it.
    spared : set of str
        Machines that a person returned, or that belong to a shared event.
    offset : int
        Error of the loop's clock, in nanoseconds.
    """

    slurm: Any
    folder: Path
    chance: random.Random
    counts: Counter[str]
    guilty: dict[str, set[str]] = field(default_factory=dict)
    spared: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    drained: dict[str, set[str]] = field(default_factory=dict)
    offset: int = 0
    number: int = 0

    @property
    def config(self) -> str:
        return str(self.folder / "my.toml")

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'ledger.db'}"

    def begin(self) -> None:
        (self.folder / "policy.toml").write_text(POLICY)
        values = {"conf": self.slurm.conf, "rate": RATE, "share": SHARE}
        Path(self.config).write_text(CONFIG.format(**values))
        self.run("respond", "--new-ledger", "--once")

    # --- events -----------------------------------------------------------------------------------

    def say(self, machine: str, cause: str, *, minutes: float = 20, **more: Any) -> None:
        """Report a finding of some minutes ago."""
        self.number += 1
        at = Nanoseconds(time.time_ns() - int(minutes * MINUTE))
        values: dict[str, Any] = {
            "source": "storm",
            "id": f"{self.number}",
            "kind": KINDS.get(cause, FindingKind.XID),
            "cause": cause,
            "machine": machine,
            "gpu_serial": f"{machine} gpu {self.chance.randrange(8)}",
            "at": at,
            "valid_until": Nanoseconds(at + 20 * HOUR),
            "severity": Severity.ERROR if cause == "check by nhc" else None,
            "evidence": {"probability": 0.9},
        }
        if not (self.folder / "ledger.db").exists():
            return
        with contextlib.suppress(InputError), Ledger.open(self.url) as ledger:
            ledger.record_findings([Finding(**(values | more))], now=at)

    def a_fault(self, node: str) -> None:
        cause = self.chance.choice(CERTAIN + REVERSIBLE)
        self.guilty.setdefault(node, set()).add(cause)
        self.say(node, cause, minutes=self.chance.choice((16, 20, 40, 90)))

    def a_harmless_word(self, node: str) -> None:
        self.say(node, self.chance.choice(HARMLESS))

    def a_forged_fault(self, node: str) -> None:
        """Report a finding about another host with a shared token."""
        for _ in range(self.chance.choice((1, 6))):
            self.say(node, self.chance.choice(CERTAIN + REVERSIBLE), vouched=Provenance.SHARED)

    def a_forged_repetition(self, node: str) -> None:
        """Repeat a real finding with a count at the limit of 64 bits."""
        count = self.chance.choice((2**62, 2**63 - 1, 2**63, 10**30, 0, -5))
        for _ in range(2):
            more: dict[str, Any] = {
                "count": count,
                "vouched": Provenance.SHARED,
                "gpu_serial": f"{node} gpu 0",
            }
            self.say(node, "xid 79", id="same", **more)

    def an_extreme_count(self, node: str) -> None:
        self.guilty.setdefault(node, set()).add("xid 79")
        for _ in range(2):
            self.say(node, "xid 79", id=f"many {node}", count=2**62, gpu_serial=f"{node} gpu 0")

    def a_fault_of_tomorrow(self, node: str) -> None:
        self.say(node, "xid 79", minutes=-60 * self.chance.choice((1, 25, 9000)))

    def a_fault_of_last_month(self, node: str) -> None:
        self.say(node, "xid 79", minutes=60 * 24 * 30)

    def a_crash(self, node: str) -> None:
        """Report one cause on the machines of a rack within a minute: no machine may be drained for
        it.
        """
        rack = NODES.index(node) // 4 * 4
        for name in NODES[rack : rack + 4]:
            self.spared.add(name)
            self.say(name, "xid 119", minutes=3 + self.chance.random())

    def a_clock_that_jumps(self, _: str) -> None:
        self.offset = self.chance.choice(JUMPS)

    def a_clock_that_is_right(self, _: str) -> None:
        self.offset = 0

    def a_lost_ledger(self, _: str) -> None:
        """Delete the ledger; calls fail until a person creates a new one."""
        for path in self.folder.glob("ledger.db*"):
            path.unlink()
        self.respond()
        if self.chance.random() < 0.5:
            self.run("incidents")
        code, _words = self.run("respond", "--new-ledger")
        self.counts["lost ledgers"] += 1
        assert code == 0

    def a_switch(self, _: str) -> None:
        off = (self.folder / STOP_FILE).exists()
        self.run("switch", "on" if off else "off")

    def a_job(self, node: str) -> None:
        if "idle" in self.slurm.call("sinfo", "-h", "-n", node, "-o", "%T"):
            self.jobs.add(self.slurm.submit("-w", node, "--requeue"))

    def a_person_who_drains(self, node: str) -> None:
        machine = self.slurm.machine(node)
        if not machine.out:
            self.slurm.update(node, "state=drain", "reason=Tom: looks at it")

    def a_person_who_undrains(self, _: str) -> None:
        marked = [m.name for m in self.slurm.driver.read().machines if m.action is not None]
        if marked:
            name = self.chance.choice(sorted(marked))
            self.slurm.update(name, "state=undrain")
            self.spared.add(name)
            self.drained.pop(name, None)

    # --- the loop ---------------------------------------------------------------------------------

    def run(self, *command: str) -> tuple[int, str]:
        """Call a command; return its exit code and its stderr."""
        said = io.StringIO()
        with (
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(io.StringIO()),
            wrong_clock(self.offset),
        ):
            try:
                code = forewarn([*command, "--config", self.config])
            except BaseException:
                self.counts["tracebacks"] += 1
                said.write(traceback.format_exc())
                sys.__stderr__.write(said.getvalue())  # type: ignore[union-attr]
                code = 70
        words = said.getvalue()
        self.counts["alerts"] += words.count("alert (respond)")
        return code, words

    def respond(self) -> None:
        """Call the loop once, and compare what Slurm reports before and after."""
        before = {m.name: m for m in self.slurm.driver.read().machines}
        lost = not (self.folder / "ledger.db").exists()
        stopped = (self.folder / STOP_FILE).exists()
        code, words = self.run("respond", "--once")
        self.counts["calls"] += 1
        self.counts["refused calls"] += code == 2
        after = {m.name: m for m in self.slurm.driver.read().machines}
        may_act = not (lost or stopped or self.offset)
        for name, machine in after.items():
            self._look(before[name], machine, may_act, words)
        self._look_at_jobs()

    def _look(self, before: Machine, machine: Machine, may_act: bool, words: str) -> None:
        marked, was_marked = machine.action is not None, before.action is not None
        if marked and not was_marked:
            self.counts["drains"] += 1
            problem = self._problem(before, may_act)
            self.drained[machine.name] = self.guilty.get(machine.name, set())
            if problem:
                self._wrong("wrong drains", f"{machine.name}: {problem}; {machine.reason}; {words}")
        if was_marked and not marked and machine.name in self.drained:
            self._wrong("wrong releases", f"{machine.name}: {before.reason}; {words}")

    def _problem(self, before: Machine, may_act: bool) -> str:
        """Return why a machine should not have been drained; empty if it should."""
        said = self.guilty.get(before.name, set())
        reversible = [n for n, causes in self.drained.items() if not causes & set(CERTAIN)]
        racks = Counter(NODES.index(name) // 4 for name in reversible)
        certain = bool(said & set(CERTAIN))
        reasons = {
            "acting is not allowed": not may_act,
            "it said nothing of a fault": not said,
            "it was out already": before.out,
            "it is opted out": before.opted_out,
            "a person gave it back, or it is one event on many": (
                before.name in self.spared and not certain
            ),
            "the rate of the fleet is used up": len(self.drained) >= RATE,
            "the share is used up": not certain and len(reversible) >= max(1, int(SHARE * 16)),
            "the rack is used up": (
                not certain and racks[NODES.index(before.name) // 4] >= PER_RACK
            ),
        }
        return "; ".join(reason for reason, holds in reasons.items() if holds)

    def _look_at_jobs(self) -> None:
        """Count jobs that ended: no deadline was reached, so forewarn must not have ended any."""
        running = set(self.slurm.call("squeue", "-h", "-t", "running", "-o", "%i").split())
        for job in sorted(self.jobs - running):
            self.jobs.discard(job)
            self._wrong("requeues", f"job {job}")

    def _wrong(self, what: str, words: str) -> None:
        self.counts[what] += 1
        sys.__stderr__.write(f"{what}: {words}\n")  # type: ignore[union-attr]

    def play(self, steps: int) -> None:
        """Alternate random events and calls of the loop."""
        self.begin()
        for step in range(steps):
            event = self.chance.choices(EVENTS, WEIGHTS)[0] if step else Storm.a_fault
            self.counts[event.__name__.replace("_", " ")] += 1
            event(self, self.chance.choice(NODES))
            for _ in range(self.chance.choice((1, 1, 2))):
                self.respond()


EVENTS: list[Callable[[Storm, str], None]] = [
    Storm.a_fault,
    Storm.a_forged_fault,
    Storm.a_clock_that_is_right,
    Storm.a_clock_that_jumps,
    Storm.a_forged_repetition,
    Storm.an_extreme_count,
    Storm.a_harmless_word,
    Storm.a_fault_of_tomorrow,
    Storm.a_fault_of_last_month,
    Storm.a_crash,
    Storm.a_lost_ledger,
    Storm.a_switch,
    Storm.a_job,
    Storm.a_person_who_drains,
    Storm.a_person_who_undrains,
]
WEIGHTS = [8, 6, 4, 3, 2, 2, 2, 1, 1, 2, 1, 1, 3, 1, 1]


@contextmanager
def wrong_clock(offset: int) -> Iterator[None]:
    """Shift the clock of this process only."""
    real = time.time_ns
    time.time_ns = lambda: real() + offset
    try:
        yield
    finally:
        time.time_ns = real


def put_in_order(slurm: Any) -> None:
    """End all jobs, and return all nodes to service with their configured weights."""
    slurm.call("scancel", "-u", slurm.user)
    slurm.until(lambda: slurm.call("squeue", "-h") == "", "jobs")
    for machine in slurm.driver.read().machines:
        if machine.out:
            slurm.call("scontrol", "update", f"nodename={machine.name}", "state=resume")
        slurm.call("scontrol", "update", f"nodename={machine.name}", "weight=7")
    slurm.until(lambda: slurm.states() == {"idle"}, "nodes")


def run_storms(slurm: Any, *, storms: int, steps: int, seed: int, folder: Path) -> Counter[str]:
    """Play storms one after another, each with its own ledger; return the counts."""
    counts = Counter[str]()
    for number in range(storms):
        place = folder / f"storm-{number}"
        place.mkdir()
        put_in_order(slurm)
        Storm(slurm, place, random.Random(f"{seed} {number}"), counts).play(steps)
        counts["storms"] += 1
        shutil.rmtree(place)
    put_in_order(slurm)
    return counts


def _free_ports() -> Callable[[], int]:
    taken = set[int]()

    def find() -> int:
        while True:
            with socket.create_server(("127.0.0.1", 0)) as server:
                port: int = server.getsockname()[1]
            if port not in taken:
                taken.add(port)
                return port

    return find


def main() -> int:
    from tests.pipelines.incidents.schedulers.slurm.conftest import Cluster

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--storms", type=int, default=100)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fw-storms-") as folder:
        root = Path(folder)
        (root / "slurm").mkdir()
        cluster = Cluster(root / "slurm", _free_ports())
        try:
            cluster.start()
            counts = run_storms(
                cluster, storms=args.storms, steps=args.steps, seed=args.seed, folder=root
            )
        finally:
            cluster.stop()
    figures = ("storms", "calls", "drains", *WRONG, "alerts")
    for name in figures:
        print(f"{name:<16} {counts[name]}")
    rest = ((name, count) for name, count in counts.most_common() if name not in figures)
    print(", ".join(f"{name} {count}" for name, count in rest))
    return int(any(counts[name] for name in WRONG))


if __name__ == "__main__":
    sys.exit(main())
