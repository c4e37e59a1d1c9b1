"""A site of `forewarn respond` with a real API server."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.incidents.schedulers.scheduler_site import SchedulerSite

CONFIG = """
[respond]
driver = "kubernetes"
policy = ["policy.toml"]
first_day = "1ms"
overrides = 2
fleet_rate = 10
command_timeout = "60s"
{respond}
[respond.kubernetes]
kubeconfig = "{kubeconfig}"
rack_label = "rack"
switch_label = "switch"
system_namespaces = ["gpu-operator"]
[respond.pools.train]
selector = "pool=train"
mode = "act"
machines = {machines}
share = 0.5
rack = 4
{pool}
"""


@dataclass
class KubernetesSite(SchedulerSite):
    """A site with a real API server; `server` is the connection of its driver."""

    server: Any = None

    def configure(self, machines: int = 2, *, respond: str = "", pool: str = "") -> None:
        values = {"machines": machines, "respond": respond, "pool": pool}
        text = CONFIG.format(kubeconfig=self.cluster.kubeconfig, **values)
        Path(self.config).write_text(text)

    def take_out(self, machine: str) -> None:
        self.cluster.cordon(machine, who="tom")

    def put_back(self, machine: str) -> None:
        self.cluster.set_taints(machine, who="tom")
        self.cluster.cordon(machine, on=False, who="tom")


def respond_later(site: KubernetesSite, monkeypatch: pytest.MonkeyPatch, span: int) -> None:
    """Run the loop by a clock that the cluster and the ledger share."""
    real, now = time.time_ns, time.time_ns() + span
    plain = site.server.read_all
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() + span)
        patch.setattr(
            type(site.server), "read_all", lambda _, path, **query: (plain(path, **query)[0], now)
        )
        site.respond()
