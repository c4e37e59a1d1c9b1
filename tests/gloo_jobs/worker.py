"""A rank of a small gloo training job that meets a fault in one of its steps.

Started by torchrun in an environment with torch (`.ci/setup_torch`), not by pytest:

    torchrun ... worker.py --fault loader_stuck --rank 5 --step 12 --folder DIR

Ranks are `data * 2 + tensor`. A step loads a batch and reduces over the tensor group, then over the
data group. Each rank writes its pid and the socket of its worker server to the folder.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.control_plane import worker_main
from torch.distributed.elastic.multiprocessing.errors import record

TENSOR = 2
START = timedelta(minutes=3)  # until all ranks have started on a busy machine
SLOWER = 0.1  # seconds per step


@dataclass(frozen=True)
class Plan:
    """Course of the job, the same on all ranks."""

    fault: str
    rank: int
    step: int
    steps: int
    pause: float
    timeout: float
    folder: Path


def plan_of(arguments: list[str]) -> Plan:
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", required=True)
    for name in ("rank", "step", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("pause", "timeout"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    return Plan(**vars(parser.parse_args(arguments)))


class Loader:
    """Batches prefetched by a thread; with a fault it reads from a pipe without a writer."""

    def __init__(self, plan: Plan, is_stuck: bool) -> None:
        self._batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=1)
        self._plan, self._is_stuck = plan, is_stuck
        threading.Thread(target=self._read_ahead, name="loader", daemon=True).start()

    def _read_ahead(self) -> None:
        for step in range(self._plan.steps):
            if self._is_stuck and step == self._plan.step:
                read_shard(self._plan.folder / "shard")
            self._batches.put(torch.full((64, 64), float(step + 1)))

    def next_batch(self) -> torch.Tensor:
        """Return the next batch, waiting for it if necessary."""
        return self._batches.get()


def read_shard(path: Path) -> bytes:
    """Read from a pipe without a writer."""
    os.mkfifo(path)
    return path.read_bytes()


@dataclass(frozen=True)
class Groups:
    """Process groups of a rank."""

    tensor: dist.ProcessGroup
    data: dist.ProcessGroup

    @classmethod
    def create(cls, rank: int, size: int, timeout: timedelta) -> Groups:
        """Create all groups, as each rank must, and return those of one rank."""
        tensor = [range(first, first + TENSOR) for first in range(0, size, TENSOR)]
        data = [range(first, size, TENSOR) for first in range(TENSOR)]
        made = [
            [dist.new_group(list(g), timeout=timeout, group_desc=use) for g in groups]
            for use, groups in (("tp", tensor), ("dp", data))
        ]
        return cls(made[0][rank // TENSOR], made[1][rank % TENSOR])


def block_in_kernel(folder: Path) -> None:
    """Enter state D: a parent in vfork whose child opens a pipe without a writer."""
    pipe = folder / "vfork"
    os.mkfifo(pipe)
    actions = [(os.POSIX_SPAWN_OPEN, 0, str(pipe), os.O_RDONLY, 0)]
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)


def send_soon(number: int, seconds: float) -> None:
    """Send this process a signal after a delay."""
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


def meet(plan: Plan, rank: int, step: int) -> None:
    """Inject the fault before a step."""
    if rank != plan.rank:
        return
    if plan.fault == "slow" and step >= plan.step:
        time.sleep(SLOWER)
    if step != plan.step:
        return
    late = plan.pause * (os.getpid() % 10) / 10
    if plan.fault == "exception":
        raise ValueError(f"label {step} is out of range [0, 10)")
    if plan.fault == "state_d":
        block_in_kernel(plan.folder)
    if plan.fault == "sigstop":
        send_soon(signal.SIGSTOP, late)
    if plan.fault == "sigkill":
        send_soon(signal.SIGKILL, late)


def reduce_wrongly(group: dist.ProcessGroup, values: torch.Tensor, variant: int) -> None:
    """Enter another collective than the other ranks."""
    if variant == 0:
        dist.barrier(group)
    elif variant == 1:
        dist.broadcast(values, group_src=0, group=group)
    else:
        dist.all_gather([torch.empty_like(values) for _ in range(group.size())], values, group)


def reduce_all(plan: Plan, groups: Groups, rank: int, step: int, values: torch.Tensor) -> None:
    """Reduce over both groups; with a fault in another order, or with another collective."""
    is_now = step == plan.step
    crossed = (plan.rank, plan.rank ^ 3)  # another data copy and tensor shard: a cycle
    order = [groups.tensor, groups.data]
    if plan.fault == "opposite_order" and is_now and rank in crossed:
        order.reverse()
    for group in order:
        if plan.fault == "wrong_collective" and is_now and rank == plan.rank and group is order[1]:
            reduce_wrongly(group, values, plan.step % 3)
        else:
            dist.all_reduce(values, group=group)


def steps(plan: Plan, rank: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the batches, each after its computation."""
    loader = Loader(plan, plan.fault == "loader_stuck" and rank == plan.rank)
    for step in range(plan.steps):
        batch = loader.next_batch()
        meet(plan, rank, step)
        time.sleep(plan.pause)  # the device computes while the host waits
        yield step, batch @ batch / batch.numel()


def train(plan: Plan, rank: int) -> None:
    """Train as one rank."""
    with worker_main():
        dist.init_process_group("gloo", timeout=START)
        groups = Groups.create(rank, dist.get_world_size(), timedelta(seconds=plan.timeout))
        dist.barrier()
        (plan.folder / f"{rank}.pid").write_text(str(os.getpid()))
        for step, values in steps(plan, rank):
            reduce_all(plan, groups, rank, step, values)
            logging.info("step %d loss %.4f", step, 10 / (step + 1))
        dist.destroy_process_group()


def main() -> None:
    """Set up what torch reads from the environment, and train."""
    ctypes.CDLL(None).prctl(0x59616D61, -1)  # lets py-spy attach under Yama
    plan, rank = plan_of(sys.argv[1:]), int(os.environ["RANK"])
    torch.set_num_threads(1)
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.Formatter.converter = time.gmtime
    os.environ["TORCH_WORKER_SERVER_SOCKET"] = str(plan.folder / f"{rank}.sock")
    record(train)(plan, rank)  # writes an exception to error.json


if __name__ == "__main__":
    main()
