"""A rank of a small gloo job under torchrun that fails or hangs once, then continues.

    torchrun --max-restarts 1 ... restarting_worker.py FOLDER STEPS FAULT

`FAULT` is `crash` or `hang` of rank 1 after step 25 of the first attempt. Rank 0 writes what its
time was used for to `FOLDER/truth.jsonl`; its log says the same as a trainer would say it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

FAULT_AFTER, SAVE_EACH, STEP_SECONDS, SAVE_SECONDS = 25, 10, 0.3, 0.8


class Truth:
    """Uses of the time of rank 0."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, use: str, begin: float, end: float) -> None:
        """Note a span."""
        if dist.get_rank() == 0:
            with self.path.open("a") as file:
                file.write(json.dumps({"use": use, "begin": begin, "end": end}) + "\n")


def main() -> None:
    """Train."""
    started = time.time()
    folder, steps, fault = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    torch.set_num_threads(1)
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting-{attempt}",  # torchrun's store keeps old addresses
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=20),
    )
    logging.info("rank %d of attempt %d starts", rank, attempt)
    checkpoint, truth = folder / "checkpoint", Truth(folder / "truth.jsonl")
    step = int(checkpoint.read_text()) if checkpoint.exists() else 0
    reached = FAULT_AFTER if attempt else 0
    dist.barrier()
    before = time.time()
    truth.note("initialise", started, before)
    while step < steps:
        if rank == 1 and attempt == 0 and step == FAULT_AFTER:
            if fault == "hang":
                time.sleep(600)
            raise ValueError(f"label {step} is out of range")
        time.sleep(STEP_SECONDS)
        dist.all_reduce(torch.ones(4))
        step += 1
        now = time.time()
        logging.info("step %d loss 2.5 lr 0.001", step)
        truth.note("recompute" if step <= reached else "useful", before, now)
        before = now
        if step % SAVE_EACH == 0:
            logging.info("saving checkpoint at step %d", step)
            time.sleep(SAVE_SECONDS)
            if rank == 0:
                checkpoint.write_text(str(step))
            dist.barrier()
            logging.info("successfully saved checkpoint from step %d", step)
            truth.note("save", before, time.time())
            before = time.time()


if __name__ == "__main__":
    main()
