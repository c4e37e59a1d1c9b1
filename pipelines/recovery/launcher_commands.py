"""Commands of torchrun, and of DLRover's master and agents, as words that follow `python`."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from forewarn.pipelines.recovery.launch_table import LaunchTable

__all__ = ["MASTER_LOG", "agent_variables", "agent_words", "master_words", "torchrun_words"]

MASTER_LOG: Final = Path("logs", "master.log")
"""In the folder of an attempt: what DLRover's master said."""
_LOCAL: Final = "127.0.0.1"
_AGENT_RESTARTS: Final = 3  # processes of the other hosts fail, too, when one is lost


def torchrun_words(
    table: LaunchTable, name: str, rank: int, machines: Sequence[str], logs: Path
) -> list[str]:
    """Return torchrun for one machine: without restarts, with the number of machines fixed."""
    return [
        *("-m", "torch.distributed.run"),
        *("--nnodes", str(len(machines)), "--node-rank", str(rank)),
        *("--nproc-per-node", str(table.processes), "--max-restarts", "0"),
        *("--rdzv-backend", "static", "--rdzv-id", name),
        *("--master-addr", machines[0] if table.on_host else _LOCAL),
        *("--master-port", str(table.port)),
        *("--log-dir", str(logs), "--redirects", "3"),
        *table.program,
    ]


def master_words(table: LaunchTable, name: str, nodes: int) -> list[str]:
    """Return DLRover's local master."""
    return [
        *("-m", "dlrover.python.master.main", "--platform", "local"),
        *("--job_name", name, "--node_num", str(nodes), "--port", str(table.port)),
    ]


def agent_words(table: LaunchTable, logs: Path) -> list[str]:
    """Return DLRover's agent for one machine; `agent_variables` tell its rank."""
    return [
        *("-m", "dlrover.trainer.torch.main"),
        *(f"--nnodes={table.minimum}:{table.nodes}", f"--node_unit={table.unit}"),
        f"--nproc-per-node={table.processes}",
        f"--max-restarts={_AGENT_RESTARTS}",
        *("--log-dir", str(logs), "--redirects", "3"),
        *table.program,
    ]


def agent_variables(
    table: LaunchTable, name: str, rank: int, node: int, host: str
) -> dict[str, str]:
    """Return the environment of an agent.

    Parameters
    ----------
    table : LaunchTable
    name : str
        Of the attempt.
    rank : int
        Of the machine; a spare has that of the machine that it replaces.
    node : int
        Number by which the master knows the agent; each agent has its own.
    host : str
    """
    address = socket.getfqdn() if table.on_host else _LOCAL
    return {
        "DLROVER_MASTER_ADDR": f"{address}:{table.port}",
        "ELASTIC_JOB_NAME": name,
        "NODE_ID": str(node),
        "NODE_NUM": str(table.nodes),
        "NODE_RANK": str(rank),
        "NODE_TYPE": "worker",
        "POD_NAME": host,
    }
