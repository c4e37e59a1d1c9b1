"""One large job through its faults: what its time is used for under one way to recover."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.simulation.recovery.fault_plan import FaultKind, FaultPlan
from forewarn.evaluation.simulation.recovery.recovery_method import RecoveryMethod

__all__ = ["BLOCK_HOURS", "USES", "JobYear", "simulate_job"]

BLOCK_HOURS = 30 * 24.0
"""Span over which use is summed, for intervals."""
USES = ("useful", "detect", "schedule", "initialise", "recompute", "save", "missing")
"""What the time of all machines is used for; `missing`: machines that a smaller job lacks."""
_ALERT_HOURS = 24.0
_LEMON_HOURS = 30 * 24.0
_CERTIFY_HOURS = 3 * 24.0  # until the fault of a machine that failed twice is found


@dataclass(frozen=True, slots=True)
class JobYear:
    """Result of a simulated job.

    Attributes
    ----------
    machine_hours : ndarray of shape (n_blocks, n_uses)
        By block of 30 days and by `USES`; a row adds up to the machines times the hours of the
        block.
    interruptions, planned : int
        By faults, and by moves.
    """

    machine_hours: npt.NDArray[np.float64]
    interruptions: int
    planned: int

    @property
    def effective_share(self) -> float:
        """Useful by all time (ETTR)."""
        return float(self.machine_hours[:, 0].sum() / self.machine_hours.sum())


@dataclass(slots=True)
class _Job:
    """State of the job; machines are numbers, those from `plan.machines` on are spares."""

    plan: FaultPlan
    method: RecoveryMethod
    spares: list[int]
    seed: int
    slots: list[int] = field(init=False)
    slot_of: dict[int, int] = field(init=False)
    since: float = 0.0  # when training goes on, or went on
    recovery: list[tuple[str, float]] = field(default_factory=list)  # phases before that, in order
    vacant: list[int] = field(default_factory=list)
    missing: int = 0  # machines that the job lacks because of its unit
    returning: list[tuple[float, int, float]] = field(default_factory=list)
    recurring: list[tuple[float, int, float]] = field(default_factory=list)
    placed_at: dict[int, float] = field(default_factory=dict)
    pending: dict[int, float] = field(default_factory=dict)  # hours in service until a new fault
    faulted_at: dict[int, float] = field(default_factory=dict)
    averted: set[int] = field(default_factory=set)
    used: npt.NDArray[np.float64] = field(init=False)
    interruptions: int = 0
    planned: int = 0
    alert: int = 0

    def __post_init__(self) -> None:
        machines = self.plan.machines
        self.slots = list(range(machines))
        self.slot_of = {machine: machine for machine in self.slots}
        self.used = np.zeros((int(np.ceil(self.plan.hours / BLOCK_HOURS)), len(USES)))

    # --- time -------------------------------------------------------------------------------------

    def use(self, hours: Mapping[str, float], begin: float, end: float) -> None:
        """Count what all machines did in a span, divided among the blocks in proportion.

        Machines that a smaller job lacks count as missing.
        """
        last = len(self.used) - 1
        for block in range(int(begin / BLOCK_HOURS), min(int(end / BLOCK_HOURS), last) + 1):
            begin_here = max(begin, block * BLOCK_HOURS)
            end_here = min(end, (block + 1) * BLOCK_HOURS)
            share = (end_here - begin_here) / (end - begin)
            for what, length in hours.items():
                spent = share * length
                self.used[block, USES.index(what)] += spent * (self.plan.machines - self.missing)
                self.used[block, -1] += spent * self.missing

    def train(self, until: float, *, is_planned: bool) -> None:
        """Recover and train until a time; what was not saved is lost unless the stop is planned.

        A recovery that does not end until then counts as far as it comes.
        """
        at = self.since - sum(hours for _, hours in self.recovery)
        for what, hours in self.recovery:
            spent = min(hours, until - at)
            if spent > 0:
                self.use({what: spent}, at, at + spent)
            at += hours
        self.recovery.clear()
        hours = until - self.since
        begin, self.since = self.since, until
        if hours <= 0:
            return
        interval, save = self.method.interval(int(begin / 24)), self.method.save
        whole, rest = divmod(hours, interval + save)
        unsaved = min(rest, interval)
        useful = whole * interval + (unsaved if is_planned else 0.0)
        lost = 0.0 if is_planned else unsaved
        uses = {"useful": useful, "save": hours - useful - lost, "recompute": lost}
        self.use(uses, begin, until)

    def recover(self, at: float, phases: Sequence[tuple[str, float]]) -> None:
        """Begin a recovery."""
        self.recovery = list(phases)
        self.since = at + sum(hours for _, hours in phases)

    # --- machines ---------------------------------------------------------------------------------

    def refresh(self, now: float) -> None:
        """Return repaired machines to the spares."""
        while self.returning and self.returning[0][0] <= now:
            _, machine, again = heapq.heappop(self.returning)
            self.pending[machine] = again
            self.spares.append(machine)

    def fail(self, slot: int, now: float, repair: float, again: float) -> None:
        """Take a machine that has failed, or is about to, out of the job for its repair."""
        machine = self.slots[slot]
        last = self.faulted_at.get(machine, -np.inf)
        if self.method.escalates and now - last < _LEMON_HOURS:
            repair, again = repair + _CERTIFY_HOURS, np.inf
        self.faulted_at[machine] = now
        self.leave(slot, now, repair, again)

    def leave(self, slot: int, now: float, repair: float, again: float) -> None:
        """Take the machine of a slot out of the job until it can be a spare."""
        machine = self.slots[slot]
        self.slots[slot] = -1
        del self.slot_of[machine]
        self.vacant.append(slot)
        heapq.heappush(self.returning, (now + repair, machine, again))

    def fill(self, now: float) -> None:
        """Give vacant slots to spares."""
        self.refresh(now)
        while self.vacant and self.spares:
            slot, machine = self.vacant.pop(), self.spares.pop(0)
            self.slots[slot], self.slot_of[machine] = machine, slot
            again = self.pending.pop(machine, np.inf)
            if np.isfinite(again):
                heapq.heappush(self.recurring, (now + again, machine, now))
            self.placed_at[machine] = now

    def fill_or_wait(self, now: float) -> float:
        """Fill the slots, and return the hours that the job waits for machines."""
        self.fill(now)
        unit, machines = self.method.unit, self.plan.machines
        if unit:
            missing = math.ceil(len(self.vacant) / unit) * unit
            if missing < machines:
                self.missing = missing
                return self.method.times.shrink if self.vacant else 0.0
        waited = now
        while self.vacant and self.returning:
            waited = max(waited, self.returning[0][0])
            self.fill(waited)
        self.missing = 0
        return waited - now

    def swap_flagged(self, now: float) -> int:
        """Give the slots of valid alerts to spares while there are any; return how many."""
        swapped = 0
        for number in range(self.alert - 1, -1, -1):
            if self.plan.alert_at[number] < now - _ALERT_HOURS:
                break
            swapped += self.swap(number, now)
        return swapped

    def swap(self, number: int, now: float) -> bool:
        """Move the job from the machine of an alert to a spare; a true alert averts its fault."""
        self.refresh(now)
        slot, fault = int(self.plan.alert_slot[number]), int(self.plan.alert_fault[number])
        is_past = fault >= 0 and self.plan.at[fault] <= now
        if not self.spares or self.slots[slot] < 0 or is_past or fault in self.averted:
            return False
        if self.placed_at.get(self.slots[slot], -1.0) > self.plan.alert_at[number]:
            return False  # another machine than the one that was listed
        if fault >= 0:
            self.averted.add(fault)
            self.fail(slot, now, self.plan.repair[fault], self.plan.again[fault])
        else:
            self.leave(slot, now, _ALERT_HOURS, np.inf)
        self.fill(now)
        return True

    # --- faults -----------------------------------------------------------------------------------

    def detect(self, kind: int, chance: float, at: float) -> float:
        """Return the hours until the fault is noticed, and its machine known."""
        method, times = self.method, self.method.times
        if method.watches:
            hours = times.verdict if kind == FaultKind.HANG else times.watch
        else:
            hours = times.hang_timeout if kind == FaultKind.HANG else 0.0
            hours += times.poll - (at + hours) % times.poll + times.resubmit
        if kind != FaultKind.HANG:
            return hours
        missed = 1.0
        missed *= 1 - method.verdict_recall if method.watches else 1.0
        missed *= 1 - method.check_recall if method.checks else 1.0
        return hours + (times.by_hand if chance < missed else 0.0)

    def phases(self, kind: int, chance: float, at: float) -> list[tuple[str, float]]:
        """Return the phases of the recovery from a fault whose machine has left."""
        method, times = self.method, self.method.times
        is_software = kind == FaultKind.SOFTWARE
        check = (times.check_software if is_software else times.check) if method.checks else 0.0
        pods = times.pods_one if method.replaces and not is_software else times.pods_all
        if is_software and method.processes:
            pods = 0.0
        detect = self.detect(kind, chance, at)
        waits = self.fill_or_wait(at + detect)
        schedule = check + pods + waits
        return [("detect", detect), ("schedule", schedule), ("initialise", method.load)]

    def interrupt(
        self, at: float, kind: int, chance: float, slot: int, repair: float, again: float
    ) -> None:
        """End training by a fault, and recover."""
        self.interruptions += 1
        self.train(at, is_planned=False)
        if kind != FaultKind.SOFTWARE:
            self.fail(slot, at, repair, again)
        self.recover(at, self.phases(kind, chance, at))
        if self.method.moves_at_stops:
            self.swap_flagged(at)

    def plan_stop(self, number: int, at: float) -> None:
        """Leave the machine of an alert at once, after a checkpoint."""
        if not self.swap(number, at):
            return
        if self.since > at:  # it recovers anyway
            return
        self.planned += 1
        self.train(at, is_planned=True)
        times = self.method.times
        check = times.check if self.method.checks else 0.0
        pods = times.pods_one if self.method.replaces else times.pods_all
        save, load = self.method.save, self.method.load
        self.recover(at, [("save", save), ("schedule", check + pods), ("initialise", load)])

    def run(self) -> JobYear:
        """Go through the faults and alerts in order of time."""
        plan, rng = self.plan, np.random.default_rng([self.seed, 7])
        fault, n_faults, n_alerts = 0, len(plan.at), len(plan.alert_at)
        while True:
            at = plan.at[fault] if fault < n_faults else np.inf
            alert_at = plan.alert_at[self.alert] if self.alert < n_alerts else np.inf
            again_at = self.recurring[0][0] if self.recurring else np.inf
            now = min(at, alert_at, again_at)
            if now >= plan.hours:
                break
            if now == alert_at:
                self.alert += 1
                if self.method.moves_at_once:
                    self.plan_stop(self.alert - 1, float(now))
            elif now == again_at:
                self._fault_again(rng)
            else:
                self._fault(fault)
                fault += 1
        self.train(plan.hours, is_planned=True)
        return JobYear(self.used, self.interruptions, self.planned)

    def _fault(self, number: int) -> None:
        plan = self.plan
        slot, kind = int(plan.slot[number]), int(plan.kind[number])
        if number in self.averted or (kind != FaultKind.SOFTWARE and self.slots[slot] < 0):
            return
        at, chance = float(plan.at[number]), float(plan.chance[number])
        self.interrupt(at, kind, chance, slot, plan.repair[number], plan.again[number])

    def _fault_again(self, rng: np.random.Generator) -> None:
        """Let a repaired machine fault again, if it is still in the job."""
        at, machine, placed = heapq.heappop(self.recurring)
        slot = self.slot_of.get(machine)
        if slot is None or self.placed_at.get(machine) != placed:
            return
        repair, again = rng.choice(self.plan.repair), rng.choice(self.plan.again)
        self.interrupt(at, FaultKind.EXPLICIT, float(rng.random()), slot, repair, again)


def simulate_job(plan: FaultPlan, method: RecoveryMethod, *, spares: int, seed: int = 0) -> JobYear:
    """Simulate a job that trains all the time of a plan.

    Parameters
    ----------
    plan : FaultPlan
    method : RecoveryMethod
    spares : int
        Machines outside the job at the start; repaired ones join them.
    seed : int
        Of the faults of repaired machines.
    """
    first = plan.machines
    return _Job(plan, method, list(range(first, first + spares)), seed).run()
