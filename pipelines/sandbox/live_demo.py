"""`forewarn demo --live`: a simulated month behind the console, with a clock."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from forewarn.evaluation.simulation.operations.month_plan import MonthPlan
from forewarn.evaluation.simulation.operations.simulated_cluster import Cluster, StopCosts
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.console.console_app import make_console
from forewarn.pipelines.console.console_site import ConsoleSite, TimeControl
from forewarn.pipelines.incidents.api.access_control import AccessControl, Role, TokenHolder
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.ledger_score import (
    costs_from_table,
    score_ledger,
    score_text,
)
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.runtime.interruption import interruptible
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.terminal import write_line
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.sandbox.live_clock import LiveClock
from forewarn.pipelines.sandbox.live_fleet import LiveFleet, threshold_of
from forewarn.pipelines.sandbox.live_hangs import diagnose_hang
from forewarn.pipelines.sandbox.live_models import LiveModels
from forewarn.pipelines.sandbox.live_month import ROUND, ClusterClock, LiveMonth
from forewarn.pipelines.sandbox.simulated_scheduler import SimulatedScheduler
from forewarn.pipelines.sandbox.strategy_comparison import (
    StrategyMonth,
    comparison_lines,
    run_drains,
)
from forewarn.pipelines.serving.listener import Listener
from forewarn.pipelines.serving.tokens import token_digest
from forewarn.pipelines.storage.evidence.daily_lists import DailyLists

__all__ = ["LiveOptions", "run_live"]

_NAME: Final = "you"
_SECONDS: Final = 30.0  # whole request
_ACTING, _PROPOSING = "train", "research"
_SITE: Final = """# Written by `forewarn demo --live`; relative paths start in this folder.
[site]
records = "records"
lists = "lists"
[registry]
store = {store}
[ensembles]
parallel = ["gbdt"]
cascade = [["linear", 0.02]]
[windows]
step = 36
[features]
categorical = ["gpu_type", "driver_version"]
float = ["temperature_gpu", "power_draw", "utilization_gpu", "clock_sm", "pcie_link_width"]
counter = ["ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays"]
code = ["xid"]
history = [4, 16]
residuals = []
[training]
lengths = ["9d"]
retrain_every = "6d"
max_instances = 6000
tree_negatives = 10.0
[respond]
driver = "slurm"
every = "1h"
records = "events"
lists = "lists"
failures = "failures.parquet"
diagnoses = ["diagnoses"]
policy = ["policy.toml"]
first_day = "1min"
[respond.pools.train]
mode = "act"
control = 0.1
[respond.pools.research]
mode = "propose"
"""
_POLICY: Final = """[kinds.at_risk]
likely = { probability = 0.1, step = "drain" }
"""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Options of the demonstration.

    Attributes
    ----------
    gpus, past_days, days, seed : int
        Size of the fleet, and of the months before and behind the console.
    speed : float
        Simulated hours per second.
    port : int
        On loopback; 0 for any free one.
    stay : bool
        Serve the console after the month until Ctrl-C.
    """

    gpus: int = 2000
    past_days: int = 30
    days: int = 30
    seed: int = 1
    speed: float = 6.0
    port: int = 8471
    stay: bool = True


@dataclass(slots=True)
class _Story:
    """The lines of the story, on the terminal and in the console."""

    clock: LiveClock
    now: Callable[[], int]
    lines: list[str] = field(default_factory=list)
    end: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)
        write_line(text)

    def status(self) -> str:
        """Return the simulated time, the state of the clock, and the last line."""
        speed = "the clock is stopped" if self.clock.stopped else f"{self.clock.speed:g} h a second"
        state = "the simulated time is over" if self.end else speed
        last = self.lines[-1] if self.lines else "not started"
        moment = format_iso(Nanoseconds(self.now()))[:16].replace("T", " ")
        return f"It is {moment} UTC, and {state}. Last event: {last}."


def run_live(out: Path, options: LiveOptions) -> None:
    """Simulate two months, train on the first one, and play the second one behind the console.

    Parameters
    ----------
    out : Path
        New or empty folder; everything that the demonstration writes lies there.
    options : LiveOptions

    Raises
    ------
    JobError
        If the folder is in use.
    ListenerError
        If the port cannot be used.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise JobError(f"{out}: already exists, expected a new folder (--out).")
    listener = Listener("demo", "127.0.0.1", options.port)
    bound = listener.bind()
    folder = (out / "site").resolve()
    folder.mkdir(parents=True)
    config = _SITE.replace("{store}", json.dumps(str(folder / "mlflow")))
    (folder / "site.toml").write_text(config, encoding="utf-8")
    (folder / "policy.toml").write_text(_POLICY, encoding="utf-8")
    write_line(f"1/3 simulate {options.gpus:,} GPUs for {options.past_days + options.days} days")
    fleet = LiveFleet.simulate(
        out / "fleet",
        n_gpus=options.gpus,
        past_days=options.past_days,
        days=options.days,
        seed=options.seed,
    )
    _link_past(fleet, folder)
    models = LiveModels(folder / "site.toml")
    with interruptible(), closing(models):
        write_line("2/3 train trees and a linear model on the month before")
        _train_first(models, fleet)
        _play(fleet, folder, models, options, listener, bound)


def _link_past(fleet: LiveFleet, folder: Path) -> None:
    """Put the records of the month before where the site reads them."""
    for path in sorted((fleet.folder / "records").glob("date=*/part-0.parquet")):
        if path.parent.name[5:] < format_iso(fleet.start)[:10]:
            target = folder / "records" / path.parent.name / path.name
            target.parent.mkdir(parents=True)
            target.hardlink_to(path)


def _train_first(models: LiveModels, fleet: LiveFleet) -> None:
    models.start(fleet.start)
    # The first diagnosis compiles its loops, which would stop the month for seconds.
    machines = sorted(fleet.racks)[:2]
    diagnose_hang(fleet.folder / "rehearsal", "0", machines, machines[0], fleet.start, 0)
    result = models.result(wait=True)
    if isinstance(result, str):
        write_line(f"the built-in rules make the lists: {result}")
    elif result is not None and not result.promoted:
        write_line(f"the built-in rules make the lists: the gate {result.text}")


def _play(
    fleet: LiveFleet,
    folder: Path,
    models: LiveModels,
    options: LiveOptions,
    listener: Listener,
    bound: socket.socket,
) -> None:
    plan = fleet.plan(options.seed)
    site = ResponseSite.from_config(folder / "site.toml")
    (folder / "diagnoses").mkdir()
    costs = _stop_costs(site)
    cluster = Cluster(plan, costs)
    clock = ClusterClock(cluster)
    story = _Story(LiveClock(options.speed), clock.now)
    with site.new_ledger() as ledger:
        scheduler = SimulatedScheduler(cluster, _ACTING, pools=_pools(fleet), racks=fleet.racks)
        responder = Responder(
            *(site, ledger, site.policy(), scheduler, clock), lambda _about, _words: None
        )
        threshold = _threshold(fleet, site)
        parts = (fleet, site, cluster, responder, models, threshold, story.tell, options.seed)
        month = LiveMonth(*parts)
        context, token = _context(site, ledger, clock)
        console = ConsoleSite(
            context,
            costs_from_table(site.table.costs),
            models=models.versions,
            loop_every=Nanoseconds(3 * ROUND),
            time_control=TimeControl(story.status, story.clock.act),
            illustration=lambda: story.end,
        )
        with _served(console, listener, bound) as address:
            write_line(f"3/3 the month begins. Console: {address}  token: {token}")
            _run(month, story.clock)
            story.end = list(_final_lines(month, plan, costs, ledger))
            for line in story.end:
                write_line(line)
            if options.stay:
                _stay(address)
        context.close()


def _run(month: LiveMonth, clock: LiveClock) -> None:
    while not month.over:
        month.advance()
        clock.pass_time(ROUND)


def _stay(address: str) -> None:
    write_line(f"The console stays at {address}; Ctrl-C stops it.")
    threading.Event().wait()


def _pools(fleet: LiveFleet) -> dict[str, str]:
    """Return the pool of each machine: in every fourth rack steps wait for a person."""
    racks = sorted(set(fleet.racks.values()))
    proposing = set(racks[3::4])
    return {
        machine: _PROPOSING if rack in proposing else _ACTING
        for machine, rack in fleet.racks.items()
    }


def _stop_costs(site: ResponseSite) -> StopCosts:
    costs = site.table.costs
    unplanned = (costs.detection + costs.scheduling + costs.start) / HOUR
    return StopCosts(unplanned, costs.planned_restart / HOUR, costs.checkpoint / HOUR)


def _threshold(fleet: LiveFleet, site: ResponseSite) -> float:
    """Return the rise of corrected errors that a list as long as forewarn's would begin with."""
    first = format_iso(fleet.start)[:10]
    files = [
        path
        for path in sorted((fleet.folder / "records").glob("date=*/part-0.parquet"))
        if path.parent.name[5:] < first
    ]
    return threshold_of(files[-10:], 8 * site.settings.list.share)


def _context(site: ResponseSite, ledger: Ledger, clock: ClusterClock) -> tuple[ApiContext, str]:
    token = secrets.token_urlsafe(9)
    access = AccessControl({token_digest(token): TokenHolder(_NAME, Role.ADMIN)})

    def score() -> dict[str, Any]:
        return score_ledger(site, ledger, now=Nanoseconds(clock.now()))

    lists, diagnoses = DailyLists(site.lists), tuple(site.diagnoses)
    parts = (ledger, access, site.switch(ledger), score, clock)
    return ApiContext(*parts, lists=lists, diagnoses=diagnoses), token


@contextmanager
def _served(site: ConsoleSite, listener: Listener, bound: socket.socket) -> Iterator[str]:
    """Serve the console in a thread until the block ends."""
    bodies, metrics = site.context.bodies, site.context.metrics
    server = listener.server(
        make_console(site), limit=bodies.limit, seconds=_SECONDS, refused=metrics.refuse
    )
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [bound]}, daemon=True, name="console"
    )
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield listener.address(bound)
    finally:
        server.should_exit = True
        thread.join(timeout=5)


def _final_lines(
    month: LiveMonth, plan: MonthPlan, costs: StopCosts, ledger: Ledger
) -> Iterator[str]:
    """Yield the comparison of strategies and the score."""
    days = (plan.end - plan.start) // DAY
    yield (
        f"{days} simulated days, {len(month.fleet.failures)} failures. An illustration: one "
        "simulated fleet, whose failures and costs were chosen by us."
    )
    yield from comparison_lines(_months(month, plan, costs, ledger), "do nothing")
    yield (
        "(a simulated repair crew returns a machine when its GPU is repaired, or after a day "
        "without a fault; no other person acts unless you do: what waits for approval is not done)"
    )
    yield ""
    yield "About predictions only, as `forewarn respond --score` prints it:"
    yield from score_text(score_ledger(month.site, ledger, now=plan.end)).splitlines()


def _months(
    month: LiveMonth, plan: MonthPlan, costs: StopCosts, ledger: Ledger
) -> Sequence[StrategyMonth]:
    rng = np.random.default_rng([month.seed, 1])
    n_machines = month.fleet.n_machines
    drawn = {
        at: frozenset(rng.choice(n_machines, len(machines), replace=False).tolist())
        for at, machines in month.flagged.items()
    }
    drains = sum(a.step.isolates for a in ledger.recent_actions(plan.start) if a.started)
    total, own = month.cluster.total, np.array(month.daily.days)
    return [
        run_drains(plan, costs, "do nothing", {}),
        StrategyMonth("forewarn", drains, total.killed, total.emptied, own),
        run_drains(plan, costs, "by threshold", month.suspicious),
        run_drains(plan, costs, "at random", drawn),
    ]
