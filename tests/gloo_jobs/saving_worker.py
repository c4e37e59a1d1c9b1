"""A rank of a small gloo job under `srun` that saves on notice, and continues from what it saved.

    srun ... saving_worker.py FOLDER NOTICES STEPS

All ranks exit with code 75 after they saved; the batch script then asks for a restart.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

EXAMPLE = Path(__file__).parents[2] / "examples" / "save_on_notice.py"
RESTART = 75


def main() -> int:
    """Train; return 75 after a checkpoint that a notice asked for."""
    folder, steps = Path(sys.argv[1]), int(sys.argv[3])
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    attempt = os.environ.get("SLURM_RESTART_COUNT", "0")
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting-{attempt}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    notice = runpy.run_path(str(EXAMPLE))["Notice"](sys.argv[2], os.environ["SLURM_JOB_ID"])
    checkpoint = folder / "checkpoint"
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for step in range(first, steps):
        values = torch.ones(4)
        dist.all_reduce(values)
        with (folder / f"{rank}.log").open("a") as log:
            log.write(f"{attempt} {os.environ['SLURMD_NODENAME']} {step}\n")
        asked = torch.tensor([rank == 0 and notice.asks_to_save()])
        dist.broadcast(asked, src=0)
        if asked.item():
            if rank == 0:
                checkpoint.write_text(str(step + 1))
            dist.barrier()
            return RESTART
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main())
