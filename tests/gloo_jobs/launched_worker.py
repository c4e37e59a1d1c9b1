"""A rank of a small gloo job that `forewarn launch` starts: it meets faults and continues.

    launched_worker.py FOLDER STEPS FAULT,FAULT,...

The faults, one an attempt, meet rank 1 some steps after its start: `exit` (killed by SIGKILL),
`agent` (its torchrun is), `hang`, `slow`, or `none`. Rank 0 writes what its time was used for to
`FOLDER/truth.jsonl`; its log says the same as a trainer would.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.control_plane import worker_main

FAULT_AFTER, SAVE_EACH, STEP_SECONDS, SAVE_SECONDS, SLOWER = 8, 5, 0.2, 0.4, 0.2


def wait_for_peers() -> None:
    """Hang where a stack shows that no collective is waited for."""
    time.sleep(600)


def meet(fault: str, steps_made: int) -> None:
    """Inject the fault before a step."""
    if fault == "slow":
        time.sleep(SLOWER)
    if steps_made != FAULT_AFTER:
        return
    if fault in ("exit", "agent"):
        os.kill(os.getpid() if fault == "exit" else os.getppid(), signal.SIGKILL)
    if fault in ("agent", "hang"):
        wait_for_peers()


def note(folder: Path, use: str, begin: float) -> float:
    """Note what rank 0 used its time for since `begin`, and return the time."""
    now = time.time()
    if dist.get_rank() == 0:
        with (folder / "truth.jsonl").open("a") as file:
            file.write(json.dumps({"use": use, "begin": begin, "end": now}) + "\n")
    return now


def save(folder: Path, step: int) -> None:
    """Save a checkpoint."""
    logging.info("saving checkpoint at step %d", step)
    time.sleep(SAVE_SECONDS)
    if dist.get_rank() == 0:
        (folder / "checkpoint").write_text(str(step))
    dist.barrier()
    logging.info("successfully saved checkpoint from step %d", step)


def train(folder: Path, steps: int, fault: str) -> None:
    """Train from the checkpoint to the last step."""
    before = time.time()
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    checkpoint, furthest = folder / "checkpoint", folder / "furthest"
    first = step = int(checkpoint.read_text()) if checkpoint.exists() else 0
    reached = int(furthest.read_text()) if furthest.exists() else 0
    dist.barrier()
    before = note(folder, "initialise", before)
    while step < steps:
        meet(fault, step - first)
        time.sleep(STEP_SECONDS)
        dist.all_reduce(torch.ones(4))
        step += 1
        logging.info("step %d loss 2.5 lr 0.001", step)
        before = note(folder, "recompute" if step <= reached else "useful", before)
        if dist.get_rank() == 0:
            furthest.write_text(str(max(step, reached)))
        if step % SAVE_EACH == 0:
            save(folder, step)
            before = note(folder, "save", before)


def main() -> None:
    """Set up what evidence is taken from, and train."""
    ctypes.CDLL(None).prctl(0x59616D61, -1)  # lets py-spy attach under Yama
    folder, steps, faults = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
    attempt, rank = int(os.environ["FOREWARN_ATTEMPT"]), os.environ["RANK"]
    scratch = folder / f"processes-{attempt}"
    scratch.mkdir(exist_ok=True)
    (scratch / f"{rank}.pid").write_text(str(os.getpid()))
    os.environ["TORCH_WORKER_SERVER_SOCKET"] = str(scratch / f"{rank}.sock")
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.Formatter.converter = time.gmtime
    torch.set_num_threads(1)
    fault = faults[attempt - 1] if rank == "1" and attempt <= len(faults) else "none"
    with worker_main():
        train(folder, steps, fault)


if __name__ == "__main__":
    main()
