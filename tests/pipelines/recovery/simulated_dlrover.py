"""Stands for DLRover where it is not installed: agents that join, and a master that says so."""

from __future__ import annotations

import json
from pathlib import Path

from tests.pipelines.recovery.simulated_torch import write_job

__all__ = ["write_dlrover_job"]

_MASTER = """
import pathlib, time
joined, ranks, number = pathlib.Path(__file__).with_name("joined"), {}, 0
while True:
    time.sleep(0.05)
    lines = joined.read_text().splitlines() if joined.exists() else []
    nodes = [tuple(map(int, line.split())) for line in lines]
    by_rank = {rank: node for node, rank in nodes}
    now = {node: rank for rank, node in by_rank.items()}
    if len(now) == 2 and now != ranks:
        ranks = now
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        print(f"[{stamp},000] [INFO] [rdzv_manager.py:253:_log_rendezvous_info] Completed {number} "
              f"round rendezvous of elastic-training is {ranks} ", flush=True)
        number += 1
"""

_AGENT = """
import os, pathlib, subprocess, sys
words = sys.argv[1:]
options = {}
while words[0].startswith("--"):
    name, _, value = words[0].partition("=")
    if not value:
        value, words = words[1], words[1:]
    options[name], words = value, words[1:]
assert (options["--nnodes"], options["--node_unit"]) == ("2:2", "1")
node, rank = os.environ["NODE_ID"], os.environ["NODE_RANK"]
with (pathlib.Path(__file__).parents[3] / "dlrover/python/master/joined").open("a") as file:
    file.write(f"{node} {rank}\\n")
logs = pathlib.Path(options["--log-dir"]) / "run" / "attempt_0" / "0"
logs.mkdir(parents=True)
with (logs / "stdout.log").open("wb") as out:
    sys.exit(subprocess.call([sys.executable, *words], stdout=out, stderr=out, env={
        **os.environ, "RANK": rank, "GROUP_RANK": rank, "LOCAL_RANK": "0",
    }))
"""


def write_dlrover_job(folder: Path, fault: str, **values: object) -> Path:
    """Write the TOML of a job of two hosts and a spare, of which agents run the processes."""
    program = [str(folder / "worker.py"), str(folder), "60", fault]
    path = write_job(folder, fault, launcher="dlrover", program=program, **values)
    packages = folder / "packages" / "dlrover"
    for module, source in (("python/master/main", _MASTER), ("trainer/torch/main", _AGENT)):
        target = packages / f"{module}.py"
        target.parent.mkdir(parents=True)
        target.write_text(source)
    assert json.dumps(str(folder / "packages")) in path.read_text()
    return path
