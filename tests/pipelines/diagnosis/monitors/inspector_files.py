"""Files of NCCL's inspector for a job, from the times at which ranks enter collectives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from forewarn.features.array_types import Float64Array

BEGIN_US = 1_777_712_400_000_000  # 2026-05-02 09:00:00 UTC
PER_NODE = 4


def entry_times(
    rng: np.random.Generator, n_ranks: int, n_steps: int, per_step: int, step: float
) -> Float64Array:
    """Return the seconds that each rank computes before each collective: `(operations, ranks)`."""
    work = step / per_step * (1 + 0.05 * rng.standard_normal((n_steps * per_step, n_ranks)))
    return np.maximum(work, 1e-4)


def put_records(
    folder: Path,
    compute: Float64Array,
    *,
    name: str = "0xa1",
    members: list[int] | None = None,
    transfer: float = 0.02,
    n_broken: int = 0,
    is_dumped_at_end: bool = False,
    is_verbose: bool = False,
) -> None:
    """Write a file a rank; all leave a collective `transfer` seconds after the last entry."""
    n_operations, n_ranks = compute.shape
    clock = np.zeros(n_ranks)
    rows: list[list[str]] = [[] for _ in range(n_ranks)]
    for number in range(n_operations):
        entered = clock + compute[number]
        end = float(entered.max()) + transfer
        clock = np.full(n_ranks, end)
        for rank in range(n_ranks):
            time = BEGIN_US + round((60 if is_dumped_at_end else end) * 1e6)
            inside = round((end - entered[rank]) * 1e6)
            rows[rank].append(
                record(name, rank, n_ranks, (members or range(n_ranks))[rank], number, inside, time)
            )
    for rank, lines in enumerate(rows):
        path = folder / f"host-pid{9000 + (members or range(n_ranks))[rank]}.log"
        text = "\n".join(lines) + "\n"
        if is_verbose:
            text = "\n".join(json.dumps(json.loads(line), indent=2) for line in lines)
        with path.open("a") as stream:
            stream.write(text[: len(text) - n_broken])


def record(
    name: str, rank: int, n_ranks: int, job_rank: int, number: int, inside: int, time: int
) -> str:
    collective = {
        "coll": "AllReduce",
        "coll_sn": 100 + number,
        "coll_msg_size_bytes": 33554432,
        "coll_exec_time_us": inside,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 11.0,
        "coll_busbw_gbs": 20.6,
    }
    metadata = {
        "inspector_output_format_version": "v4.0",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": time,
        "hostname": f"trn-{job_rank // PER_NODE}",
        "pid": 9000 + job_rank,
    }
    header = {"id": name, "rank": rank, "n_ranks": n_ranks, "nnodes": 2}
    return json.dumps({"header": header, "metadata": metadata, "coll_perf": collective})
