"""What a site says about the recovery of its jobs: abilities, policy, findings, decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forewarn.features.time_units import DAY, MINUTE, Nanoseconds
from forewarn.pipelines.config.respond_tables import RecoveryTable
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.incidents.replay.policy_file import load_policy, policy_of_site
from forewarn.pipelines.runtime.alerts import note_alert
from forewarn.response.policy.fault_level import BlockScope
from forewarn.response.policy.policy import Policy
from forewarn.response.recovery.job_crash import JobCrash, NoSpare
from forewarn.response.recovery.recovery_plan import PlanState, RecoveryPlan
from forewarn.response.recovery.recovery_state import RecoveryEvent, RecoveryState, RungBegun
from forewarn.response.state.job_block import JobBlock
from forewarn.response.state.rung import Rung

if TYPE_CHECKING:
    from forewarn.pipelines.incidents.ledger.ledger import Ledger
    from forewarn.pipelines.incidents.loop.loop_alerts import LoopAlerts

__all__ = ["RecoverySite", "recovery_site", "rung_to_record", "site_policy"]

Plan = Callable[[list[RecoveryEvent]], tuple[RecoveryState, RecoveryPlan]]
_WHO: Final = "recovery"
_BLOCK_SPAN: Final = 14 * DAY
_BEFORE, _AFTER = 10 * MINUTE, 5 * MINUTE  # of a crash: findings that may belong to it


@dataclass(frozen=True, slots=True)
class RecoverySite:
    """What a site says about the recovery of its jobs.

    Attributes
    ----------
    table : RecoveryTable
    policy : Policy
    spares : int or None
        Machines that could replace one; None if unknown.
    ledger : Ledger or None
    alerts : LoopAlerts or None
        Tells a person that a job stops.
    """

    table: RecoveryTable
    policy: Policy
    spares: int | None = None
    ledger: Ledger | None = None
    alerts: LoopAlerts | None = None

    def recorded(self, names: Collection[str]) -> list[RecoveryEvent]:
        """Return the events of a job that the ledger has."""
        if self.ledger is None:
            return []
        # Only this needs what [server] installs.
        from forewarn.pipelines.incidents.ledger.recovery_log import read_events

        return read_events(self.ledger, names)

    def with_findings(self, crash: JobCrash, machines: Collection[str]) -> JobCrash:
        """Return a crash with the damage that findings of the ledger report at its time."""
        if self.ledger is None or not machines:
            return crash
        from forewarn.pipelines.recovery.crash_evidence import crash_by_finding

        findings = self.ledger.findings_on(machines, crash.at - _BEFORE, crash.at + _AFTER)
        return crash_by_finding(crash, findings, self.policy)

    def begin(
        self, job: str, names: Collection[str], plan: Plan, now: Nanoseconds
    ) -> tuple[RecoveryState, RecoveryPlan]:
        """Plan from what the ledger has, and record the rung that begins and its block.

        Parameters
        ----------
        job : str
            Name of the job in the scheduler.
        names : collection of str
            All its names.
        plan : callable
            Returns state and plan from recorded events.
        now : int
            Nanoseconds since 1970 UTC.

        Returns
        -------
        tuple of RecoveryState and RecoveryPlan
            As decided; another caller that was first has decided already.
        """
        from forewarn.pipelines.incidents.ledger.recovery_log import decide_once

        if self.ledger is None:
            raise ValueError("`begin` needs a ledger.")
        state, planned = plan(self.recorded(names))
        block = _block(job, state.crash, planned, now)
        if block is not None:  # before the record, so that a killed call leaves none out
            self.ledger.add_block(block, repeat=False)
        results: list[tuple[RecoveryState, RecoveryPlan]] = []

        def decide(recorded: list[RecoveryEvent]) -> Iterable[RecoveryEvent]:
            state, decided = plan(recorded)
            results.append((state, decided))
            if state.crash is not None and (rung := rung_to_record(decided)) is not None:
                yield state.crash
                yield RungBegun(now, rung)

        decide_once(self.ledger, job, names, decide, who=_WHO)
        state, planned = results[-1]
        if self.alerts is not None:
            text = f"job {job} stops: {planned.reason}" if planned.state is PlanState.STOP else ""
            self.alerts.raise_new({f"recovery of job {job}": text}, now)
        return state, planned


def rung_to_record(plan: RecoveryPlan) -> Rung | None:
    """Return the rung that a plan begins now; None if it waits for a spare or for a person."""
    choice = plan.choice
    if plan.state is not PlanState.BEGIN or choice is None or choice.rung is Rung.RESUBMIT:
        return None
    return None if choice.without_spare is NoSpare.WAIT else choice.rung


def _block(
    job: str, crash: JobCrash | None, plan: RecoveryPlan, now: Nanoseconds
) -> JobBlock | None:
    """Return the block of a suspected machine for one job, as soon as its rung begins."""
    if crash is None or crash.machine is None or rung_to_record(plan) is None:
        return None
    if plan.choice is None or plan.choice.scope is not BlockScope.JOB:
        return None
    until = Nanoseconds(now + _BLOCK_SPAN)
    return JobBlock(0, job, crash.machine, plan.reason, _WHO, now, until)


def site_policy(config: Path) -> Policy:
    """Return the policy of a configuration.

    Raises
    ------
    SettingsError
        If the configuration or the policy cannot be read.
    """
    settings, folder = load_settings(config), config.resolve().parent
    return policy_of_site([folder / name for name in settings.respond.policy], settings)


@contextmanager
def recovery_site(
    config: Path | None, *, spares: int | None = None, writes: bool = False
) -> Iterator[RecoverySite]:
    """Open what a configuration says; without one, the defaults.

    Parameters
    ----------
    config : Path or None
    spares : int, optional
    writes : bool
        Whether decisions are recorded: the ledger then has to exist if a pool may act.

    Raises
    ------
    SettingsError, LedgerError, InputError
        If the configuration, the policy, a receiver or the ledger cannot be read.
    """
    if config is None:
        yield RecoverySite(RecoveryTable(), load_policy(), spares)
        return
    from forewarn.pipelines.incidents.loop.loop_alerts import LoopAlerts
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite

    site = ResponseSite.from_config(config)
    opened = site.ledger() if writes else site.ledger_to_look_at()
    with opened as ledger:
        messages = site.messages(ledger, os.environ) if writes else None
        alerts = LoopAlerts(ledger, note_alert, messages) if writes else None
        yield RecoverySite(site.table.recovery, site.policy(), spares, ledger, alerts)
