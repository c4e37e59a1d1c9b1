"""How often each alert of deploy/prometheus fires over a simulated month.

The response loop runs every ten minutes on a simulated cluster; its metrics, and those of the lists
and reviews, are scraped every four minutes into a real Prometheus, which evaluates each rule. Some
troubles are added: the loop is down for 40 minutes, a list is missing, 3 % of the GPUs send nothing
for a day, eight GPUs fall off the bus of machines that stay up.

    .venv/bin/python -m benchmarks.alert_month [machines] [days] [pictures]

With a folder `pictures` the dashboards of deploy/grafana are drawn into it, by their own queries.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import yaml
from benchmarks.dashboard_pictures import draw_dashboards

from forewarn.evaluation.simulation.operations.month_plan import MonthPlan, plan_month
from forewarn.evaluation.simulation.operations.simulated_cluster import Cluster
from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.at_risk.list_metrics import recent_review_metrics
from forewarn.pipelines.at_risk.review_report import review_lists
from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.metrics.declarations import (
    BEAT_AGE,
    FLEET_GPUS,
    LIST_EXPECTED_FAILURES,
    LIST_FLAGGED,
    LIST_MODEL_TIME,
    LIST_RECORD_TIME,
    LIST_TIME,
)
from forewarn.pipelines.metrics.job_textfile import job_values
from forewarn.pipelines.sandbox.simulated_scheduler import SimulatedScheduler, machine_name
from forewarn.pipelines.studies import response_study as study
from forewarn.response.state.finding import Finding, FindingKind, Severity

RULES = Path(__file__).parents[1] / "deploy" / "prometheus" / "forewarn.rules.yml"
START = Nanoseconds(1_740_787_200 * SECOND)  # 2025-03-01
ROUND, SCRAPE = 10 * MINUTE, 4 * MINUTE
LOOP_DOWN = (5 * DAY + 3 * HOUR, 5 * DAY + 3 * HOUR + 40 * MINUTE)
DAY_WITHOUT_LIST, DAY_WITHOUT_TELEMETRY = 12, 20
N_LOST_GPUS = 8
UNITS = {"m": MINUTE, "h": HOUR}


@dataclass
class Month:
    """A running site and its scraped samples: time and value of each series."""

    plan: MonthPlan
    site: ResponseSite
    responder: Responder
    cluster: Cluster
    lists: Any = field(default_factory=lambda: job_values("score"))
    reviews: Any = field(default_factory=lambda: job_values("review"))
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def run(self) -> None:
        """Run the loop to the end of the month."""
        lost, last_round = self._lost_gpus(), self.plan.start
        for moment in range(self.plan.start + ROUND, self.plan.end, ROUND):
            now, since = Nanoseconds(moment), moment - self.plan.start
            self.cluster.advance(now)
            self._write_files(now, since)
            while lost and lost[0].at <= now:
                self.responder.ledger.record_findings([lost.pop(0)], now=now)
            if not LOOP_DOWN[0] <= since < LOOP_DOWN[1]:
                self.responder.once()
                last_round = now
            metrics, ledger = self.responder.metrics, self.responder.ledger
            metrics.read(ledger, self.site.switch(ledger), now)
            for scrape in range(moment + -moment % SCRAPE, moment + ROUND, SCRAPE):
                metrics.set(BEAT_AGE, (scrape - last_round) / SECOND, "loop")
                self._scrape(scrape)

    def _lost_gpus(self) -> list[Finding]:
        rng = np.random.default_rng(3)
        moments = np.sort(rng.integers(self.plan.start + DAY, self.plan.end - DAY, N_LOST_GPUS))
        machines = rng.integers(0, self.plan.machines, N_LOST_GPUS).tolist()
        return [
            _lost(machine_name(m), at) for m, at in zip(machines, moments.tolist(), strict=True)
        ]

    def _write_files(self, now: Nanoseconds, since: int) -> None:
        study._write_failures(self.site.failures, self.plan, now)
        before = len(list(self.site.lists.glob("date=*")))
        if since // DAY != DAY_WITHOUT_LIST:
            study._write_list(self.site.lists, self.plan, now)
        if len(list(self.site.lists.glob("date=*"))) == before:
            return
        newest = max(self.site.lists.glob("date=*")) / "at_risk.parquet"
        table = pd.read_parquet(newest, columns=["flagged", "probability"])
        gpus = self.plan.machines * 8
        blind = int(0.03 * gpus) if since // DAY == DAY_WITHOUT_TELEMETRY else 0
        self.lists.set(LIST_TIME, now / SECOND)
        self.lists.set(LIST_RECORD_TIME, (now - 10 * MINUTE) / SECOND)
        self.lists.set(LIST_MODEL_TIME, (now - now % (3 * DAY)) / SECOND)
        self.lists.set(LIST_FLAGGED, int(table["flagged"].sum()))
        self.lists.set(LIST_EXPECTED_FAILURES, table["probability"].sum())
        self.lists.replace(
            FLEET_GPUS,
            {
                ("all",): gpus,
                ("scored",): gpus - blind,
                ("blind",): blind,
                ("failed_without_end",): 0,
                ("unscored",): 0,
            },
        )
        with contextlib.suppress(InputError):
            reviewed = review_lists(self.site.lists, self.site.failures, now)
            if len(reviewed.rows):
                self.reviews = recent_review_metrics(reviewed)

    def _scrape(self, moment: int) -> None:
        for values in (self.responder.metrics, self.lists, self.reviews):
            for line in values.text().decode().splitlines():
                if not line.startswith("#"):
                    series, _, value = line.rpartition(" ")
                    self.samples[series].append((moment / SECOND, float(value)))


def _lost(machine: str, at: int) -> Finding:
    return Finding(
        "records",
        f"lost {at}",
        FindingKind.XID,
        "xid 79",
        machine,
        Nanoseconds(at),
        Nanoseconds(at + DAY),
        gpu_serial=f"{machine}-gpu",
        severity=Severity.CRITICAL,
    )


def simulate(plan: MonthPlan, root: Path) -> Month:
    """Run the loop over a month, with the limits that forewarn has by default."""
    root.joinpath("policy.toml").write_text(study._POLICY)
    config = '[respond]\ndriver = "slurm"\npolicy = ["policy.toml"]\nlists = "lists"\n'
    config += 'failures = "failures.parquet"\n[respond.pools.train]\nmode = "act"\n'
    root.joinpath("my.toml").write_text(config)
    site = ResponseSite.from_config(root / "my.toml")
    cluster = Cluster(plan, study._interruption_costs())
    scheduler = SimulatedScheduler(cluster, study._POOL)
    with site.new_ledger() as ledger:
        clock, metrics = study._Clock(cluster), RespondMetrics(site.pools)
        quiet = lambda _about, _words: None  # noqa: E731
        parts = (site, ledger, site.policy(), scheduler, clock, quiet)
        month = Month(plan, site, Responder(*parts, metrics=metrics), cluster)
        month.run()
    return month


@contextlib.contextmanager
def prometheus(month: Month, folder: Path) -> Iterator[str]:
    """Start a Prometheus server with the samples of a month."""
    text = folder / "samples.txt"
    with text.open("w") as out:
        for series, samples in sorted(month.samples.items()):
            out.writelines(f"{series} {value!r} {at:.3f}\n" for at, value in samples)
        out.write("# EOF\n")
    make = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=300h", "openmetrics"]
    subprocess.run([*make, str(text), str(folder / "data")], check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {}\n")
    address = "127.0.0.1:19753"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml"]
    command += [f"--storage.tsdb.path={folder}/data", "--storage.tsdb.retention.time=100y"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=log)
    try:
        for _ in range(300):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://{address}/-/ready").status_code == 200:
                    break
            time.sleep(0.1)
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait()


def episodes(address: str, rule: dict[str, Any], plan: MonthPlan) -> list[tuple[float, float]]:
    """Return start and hours of each time that a rule fired."""
    step = SCRAPE // SECOND
    span = {"start": (plan.start + HOUR) // SECOND, "end": plan.end // SECOND - step, "step": step}
    answer = httpx.get(
        f"{address}/api/v1/query_range", params={"query": rule["expr"], **span}, timeout=120
    )
    answer.raise_for_status()
    held, fired = int(rule["for"][:-1]) * UNITS[rule["for"][-1]] / SECOND, []
    for series in answer.json()["data"]["result"]:
        times = np.array([float(at) for at, _ in series["values"]])
        for run in np.split(times, np.flatnonzero(np.diff(times) > step) + 1):
            if run[-1] - run[0] >= held:
                start = run[0] + held
                fired.append((start - plan.start / SECOND, (run[-1] - start + step) / 3600))
    return sorted(fired)


def main() -> None:
    """Print a line for each alert."""
    given = dict(enumerate(sys.argv[1:]))
    machines, days = int(given.get(0, "200")), int(given.get(1, "30"))
    plan = plan_month(machines, days, seed=1, start=START)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        month = simulate(plan, root)
        print(f"{machines} machines, {days} days, {len(plan.breakdowns)} failures")
        with prometheus(month, root) as address:
            for group in yaml.safe_load(RULES.read_text())["groups"]:
                for rule in group["rules"]:
                    fired = episodes(address, rule, plan)
                    when = ", ".join(f"day {at / 86400:.1f} for {h:.1f} h" for at, h in fired[:6])
                    severity = rule["labels"]["severity"]
                    print(f"{rule['alert']:36}{severity:8}{len(fired):4}  {when}", flush=True)
            if 2 in given:
                draw_dashboards(address, plan.end / SECOND - HOUR / SECOND, Path(given[2]))


if __name__ == "__main__":
    main()
