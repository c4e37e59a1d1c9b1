"""Blocks of a machine for one job: carried out while the job waits to start, and ended with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.schedulers.driver import (
    Driver,
    DriverError,
    DriverTimeoutError,
    JobExclusions,
)
from forewarn.pipelines.runtime.progress import note
from forewarn.response.decision.limits import find_blocker
from forewarn.response.decision.situation import Situation
from forewarn.response.state.action import Action
from forewarn.response.state.blocker import Blocker
from forewarn.response.state.job_block import BlockState, JobBlock
from forewarn.response.state.step import Step

__all__ = ["BlockRunner", "blocked_machines"]


def blocked_machines(ledger: Ledger) -> set[str]:
    """Return the machines that are blocked for some job; requests do not count."""
    blocks = ledger.open_blocks()
    return {block.machine for block in blocks if block.state is not BlockState.INTENDED}


@dataclass(frozen=True, slots=True)
class BlockRunner:
    """Advances blocks.

    Attributes
    ----------
    ledger : Ledger
    driver : Driver
    situation : Situation
        Its interlocks include the kill switch, which stops new blocks and no end of one.
    """

    ledger: Ledger
    driver: Driver
    situation: Situation

    def advance(self) -> list[JobBlock]:
        """Advance each open block by what the scheduler shows; return those that are active.

        A block is in the ledger before the scheduler is called. The call is made again until the
        scheduler shows the machine among those that the job excludes, which changes nothing twice.
        """
        open_blocks = self.ledger.open_blocks()
        for block in open_blocks:
            try:
                self._advance(block, self.driver.exclusions(block.job))
            except DriverError as error:
                note(f"block {block.id} of {block.machine} for job {block.job}: {error}")
        states = (BlockState.ACTIVE, BlockState.HOLDING)
        advanced = self.ledger.open_blocks() if open_blocks else []
        return [block for block in advanced if block.state in states]

    def _advance(self, block: JobBlock, job: JobExclusions | None) -> None:
        now = self.situation.now
        if job is None:
            self._record(block, BlockState.ENDED, "the job has ended")
        elif block.state is BlockState.LIFTING:
            self._lift(block, job)
        elif now >= block.valid_until:
            self._lift(self._record(block, BlockState.LIFTING, "it has expired"), job)
        elif block.state is BlockState.INTENDED:
            self._begin(replace(block, job_owner=job.owner), job)
        elif block.state is BlockState.ACTIVE:
            self._exclude(block, job)
        elif job.waits and block.machine not in job.machines:
            self._record(block, BlockState.ENDED, "removed in the scheduler by somebody else")

    def _begin(self, block: JobBlock, job: JobExclusions) -> None:
        """Check the limits once, as for a machine that all new jobs avoid."""
        locks = [lock for lock in self.situation.interlocks if lock.kill_switch]
        if locks:
            return
        blocker = self._blocker(block)
        if blocker is not None:
            self._record(block, BlockState.REFUSED, f"blocked by: {blocker.reason}")
        else:
            self._exclude(self._record(block, BlockState.ACTIVE), job)

    def _blocker(self, block: JobBlock) -> Blocker | None:
        machine = self.situation.fleet.get(block.machine)
        if machine is None or machine.pool is None:
            return Blocker(f"{block.machine} is in no pool", None)
        blocked = blocked_machines(self.ledger)
        fleet = [replace(m, blocked=m.name in blocked) for m in self.situation.fleet.values()]
        action = Action(
            *(0, 0, machine.name, machine.pool, machine.rack, block.job, block.reason),
            *(Step.AVOID, None, self.situation.now, block.valid_until, self.situation.now),
        )
        return find_blocker(
            action,
            pools=self.situation.pools,
            fleet=fleet,
            recent=self.situation.recent,
            now=self.situation.now,
        )

    def _exclude(self, block: JobBlock | None, job: JobExclusions) -> None:
        if block is None:  # another responder was first
            return
        if block.machine in job.machines:
            self._record(block, BlockState.HOLDING)
        elif job.waits:
            try:
                self.driver.exclude(block.job, block.machine)
            except DriverTimeoutError as error:
                note(f"block {block.id}: no answer, will be read back ({error})")
            except DriverError as error:
                self._record(block, BlockState.REFUSED, str(error))

    def _lift(self, block: JobBlock | None, job: JobExclusions) -> None:
        """Remove the machine from the list; Slurm changes that of a waiting job only."""
        if block is None:
            return
        if block.machine not in job.machines:
            self._record(block, BlockState.ENDED, block.detail)
        elif job.waits:
            self.driver.include(block.job, block.machine)

    def _record(self, block: JobBlock, state: BlockState, detail: str = "") -> JobBlock | None:
        return self.ledger.advance_block(block, state, now=self.situation.now, detail=detail)
