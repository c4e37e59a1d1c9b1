"""The Kubernetes cluster of a site; importing its client takes a second."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from forewarn.features.time_units import SECOND
from forewarn.pipelines.config.respond_tables import RespondTable
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import ApiServer
from forewarn.pipelines.incidents.schedulers.kubernetes.kubernetes_driver import KubernetesDriver
from forewarn.pipelines.incidents.schedulers.kubernetes.lease import Lease
from forewarn.pipelines.incidents.schedulers.kubernetes.node_machine import NodeReading

__all__ = ["kubernetes_driver", "kubernetes_lease"]

_LEASE_ROUNDS = 3  # rounds of the loop without a renewal after which a lease expires


def kubernetes_driver(table: RespondTable, folder: Path) -> KubernetesDriver:
    """Return the driver; `folder` is that of the configuration."""
    cluster = table.kubernetes
    return KubernetesDriver(
        _api_server(table, folder),
        NodeReading(
            cluster.rack_label,
            cluster.switch_label,
            cluster.drain_taints,
            cluster.problem_conditions,
        ),
        cluster.system_namespaces,
        frozenset(name for name, pool in table.pools.items() if pool.device_taints),
    )


def kubernetes_lease(table: RespondTable, folder: Path) -> Lease:
    """Return the lease by which one of several responders is elected."""
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    duration = max(_LEASE_ROUNDS * table.every // SECOND, 1)
    return Lease(_api_server(table, folder), table.kubernetes.lease, identity, duration)


def _api_server(table: RespondTable, folder: Path) -> ApiServer:
    path = table.kubernetes.kubeconfig
    return ApiServer(str(folder / path) if path else "", table.command_timeout / SECOND)
