"""A rank of a small gloo job under DLRover: the agent of rank 1 is killed once.

dlrover_worker.py FOLDER STEPS
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

FAULT_AT, SAVE_EACH = 6, 4


def main() -> None:
    """Train from the checkpoint to the last step."""
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.Formatter.converter = time.gmtime
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, saved = dist.get_rank(), folder / "checkpoint"
    step = int(saved.read_text()) if saved.exists() else 0
    dist.barrier()
    while step < steps:
        time.sleep(0.1)
        dist.all_reduce(torch.ones(2))
        step += 1
        logging.info("step %d loss 2.5 node %s", step, os.environ["NODE_ID"])
        if step % SAVE_EACH == 0 and rank == 0:
            saved.write_text(str(step))
        if rank == 1 and step == FAULT_AT and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)


if __name__ == "__main__":
    main()
