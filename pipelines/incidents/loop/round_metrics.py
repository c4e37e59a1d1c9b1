"""Metrics of one round of the loop: clocks, machines, marks, and what waits for a person."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.step_changes import read_requests
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.metrics.declarations import (
    ACTIONS_WITHOUT_MARK,
    BLOCKED_DECISIONS,
    BLOCKED_INCIDENTS,
    CLOCK_OFFSET,
    FATAL_IN_SERVICE,
    GPUS_OUT,
    MACHINES,
    MACHINES_OUT,
    PERSON_WAIT,
    POOL_MODE,
)
from forewarn.pipelines.metrics.job_textfile import write_textfile
from forewarn.pipelines.metrics.metric_values import MetricValues
from forewarn.response.policy.cause_group import cause_group
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.blocker import BlockerKind
from forewarn.response.state.clock_readings import ClockReadings
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine
from forewarn.response.state.pool import Pool, PoolMode

__all__ = ["set_blockers", "set_clocks", "set_machines", "set_waits", "write_round"]

_MARKED = frozenset({ActionState.HOLDING, ActionState.DRAINED})

Decided = Sequence[tuple[Incident, Decision]]


def set_clocks(metrics: MetricValues, clocks: ClockReadings) -> None:
    """Set how far the local clock is ahead of those that report a time."""
    others = {"scheduler": clocks.scheduler, "database": clocks.database}
    offsets = {(name,): (clocks.now - at) / SECOND for name, at in others.items() if at is not None}
    metrics.replace(CLOCK_OFFSET, offsets)


def set_blockers(metrics: MetricValues, decided: Decided, new: Decided) -> None:
    """Set what blocks the open incidents of a round, and count the new decisions by it."""
    blocked = Counter(d.blocked_by for _, d in decided if d.blocked_by is not None)
    metrics.replace(BLOCKED_INCIDENTS, {(kind,): blocked[kind] for kind in BlockerKind})
    for _, decision in new:
        if decision.blocked_by is not None:
            metrics.add(BLOCKED_DECISIONS, 1, decision.ruling, decision.blocked_by)


def set_machines(
    metrics: MetricValues,
    fleet: Iterable[Machine],
    pools: Mapping[str, Pool],
    *,
    open_actions: Sequence[Action],
    now: Nanoseconds,
) -> None:
    """Set the machines of each pool, and the drains that the scheduler does not show.

    Parameters
    ----------
    metrics : MetricValues
    fleet : iterable of Machine
        As read in this round.
    pools : mapping of str to Pool
        Others are not counted: forewarn does not act on them.
    open_actions : sequence of Action
        Drains of this round lack a mark at first.
    now : int
        Start of the round.
    """
    machines = {machine.name: machine for machine in fleet}
    counted = [m for m in machines.values() if m.gpus > 0 and m.pool in pools]
    out = [machine for machine in counted if machine.impaired]
    no_size = {(state, pool): 0 for state in MACHINES.labels["state"] for pool in pools}
    no_owner = {(owner, pool): 0 for owner in MACHINES_OUT.labels["owner"] for pool in pools}
    sizes = Counter(("all", machine.pool or "") for machine in counted)
    sizes.update(("out", machine.pool or "") for machine in out)
    owners = Counter((_owner(machine), machine.pool or "") for machine in out)
    causes = {action.id: str(cause_group(action.cause)) for action in open_actions}
    gpus_out = {(cause, pool): 0 for cause in GPUS_OUT.labels["cause"] for pool in pools}
    for machine in out:
        if machine.out:
            known = "external" if machine.action is None else causes.get(machine.action, "other")
            gpus_out[known, machine.pool or ""] += machine.gpus
            continue
        for number in machine.device_actions:
            gpus_out[causes.get(number, "other"), machine.pool or ""] += 1
    metrics.replace(MACHINES, no_size | sizes)
    metrics.replace(MACHINES_OUT, no_owner | owners)
    metrics.replace(GPUS_OUT, gpus_out)
    modes = {(m, name): pool.mode is m for name, pool in pools.items() for m in PoolMode}
    metrics.replace(POOL_MODE, modes)
    earlier = [action for action in open_actions if action.at < now]
    unmarked = [a for a in earlier if _lacks_mark(a, machines.get(a.machine))]
    metrics.set(ACTIONS_WITHOUT_MARK, len(unmarked))


def _owner(machine: Machine) -> str:
    external = machine.out and machine.action is None
    return "other" if external else "forewarn"


def _lacks_mark(action: Action, machine: Machine | None) -> bool:
    if action.state not in _MARKED or not action.step.isolates:
        return False
    return machine is None or action.id not in machine.actions


def set_waits(
    metrics: MetricValues,
    decided: Decided,
    ledger: Ledger,
    fleet: Mapping[str, Machine],
    *,
    open_actions: Sequence[Action],
    now: Nanoseconds,
) -> None:
    """Set certain damage in service, and how long steps wait for a person."""
    fatal: dict[str, set[str]] = {str(ruling): set() for ruling in Ruling}
    for incident, decision in decided:
        damaged = {
            finding.machine
            for finding in incident.findings
            if finding.key in decision.findings and is_certain(finding)
        }
        fatal[decision.ruling] |= {
            name for name in damaged if name in fleet and not fleet[name].impaired
        }
    metrics.replace(FATAL_IN_SERVICE, {(ruling,): len(names) for ruling, names in fatal.items()})
    waits: dict[tuple[str, ...], float] = {}
    for pool, step, since in [
        *_proposals(decided, ledger, fleet),
        *_requests(ledger, open_actions),
    ]:
        waits[pool, step] = max(waits.get((pool, step), 0.0), (now - since) / SECOND)
    metrics.replace(PERSON_WAIT, waits)


def _proposals(
    decided: Decided, ledger: Ledger, fleet: Mapping[str, Machine]
) -> Iterator[tuple[str, str, Nanoseconds]]:
    """Yield pool, step and start of each proposal; a new reason does not start it again."""
    proposed = {i.id: (i, d) for i, d in decided if d.ruling is Ruling.PROPOSE}
    past = ledger.decisions_by_incident(sorted(proposed))
    for number, (incident, decision) in proposed.items():
        newest_first = reversed(past.get(number, [decision]))
        run = list(takewhile(lambda old: old.ruling is Ruling.PROPOSE, newest_first))
        machine = fleet.get(incident.machine)
        since = run[-1].at if run else decision.at
        yield (machine.pool or "" if machine else ""), str(decision.step), since


def _requests(
    ledger: Ledger, open_actions: Sequence[Action]
) -> Iterator[tuple[str, str, Nanoseconds]]:
    """Yield pool, step and start of each request to a person about a drained machine."""
    pools = {action.id: action.pool for action in open_actions}
    for number, request in read_requests(ledger, open_actions).items():
        yield pools.get(number, ""), str(request.step), request.at


def write_round(site: ResponseSite, ledger: Ledger, metrics: RespondMetrics) -> None:
    """Write the metrics to the folder of the site, for a loop that no API serves."""
    if site.metrics is not None:
        metrics.read(ledger, site.switch(ledger), Nanoseconds(time.time_ns()))
        write_textfile(site.metrics, "respond", metrics)
