"""Answers of NCCL's RAS subsystem for a job of one communicator, in both forms."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

GPUS_PER_NODE = 4
HASH = "00c0ffee00c0ffee"


@dataclass(frozen=True)
class Answer:
    """One communicator: operations by rank, and ranks of lost processes."""

    counts: Sequence[int]
    dead: Collection[int] = ()
    unresponsive: Collection[int] = ()
    status: str = "RUNNING"
    time: str = "2026-05-02 09:30:00"
    finalizing: Collection[int] = ()
    names: Mapping[int, str] = field(default_factory=dict)

    def host(self, rank: int) -> str:
        node = rank // GPUS_PER_NODE
        return self.names.get(node, f"10.1.0.{node + 1}")

    def process(self, rank: int) -> str:
        return (
            f"GPU {rank % GPUS_PER_NODE} managed by process {5000 + rank} on node {self.host(rank)}"
        )

    def json(self) -> str:
        gone = {*self.dead, *self.unresponsive}
        present = [rank for rank in range(len(self.counts)) if rank not in gone]
        communicator = {
            "hash": f"0x{HASH}",
            "size": len(self.counts),
            "ranks_count": len(present),
            "missing_ranks_count": len(gone),
            "ranks": [self._row(r, self._status(r), self.counts[r]) for r in present],
            "missing_ranks": [
                self._row(r, {"unresponsive": True, "considered_dead": r in self.dead})
                for r in sorted(gone)
            ],
        }
        return json.dumps(
            {
                "nccl_version": "2.29.1",
                "timestamp": self.time,
                "communicators_count": 1,
                "communicators": [communicator],
                "ras": {"collection_time_sec": 0.002, "timeouts_count": len(gone)},
            },
            indent=2,
        )

    def _status(self, rank: int) -> dict[str, object]:
        is_ending = rank in self.finalizing
        return {"init_state": 0, "async_error": 0, "finalize_called": is_ending}

    def _row(
        self, rank: int, status: dict[str, object], count: int | None = None
    ) -> dict[str, object]:
        row = {"rank": rank, "host": self.host(rank), "pid": 5000 + rank}
        row |= {"cuda_dev": 0, "nvml_dev": rank % GPUS_PER_NODE, "status": status}
        return (
            row if count is None else row | {"collective_counts": {"AllReduce": count, "Reduce": 0}}
        )

    def text(self, operation: str = "AllReduce ") -> str:
        size, gone = len(self.counts), {*self.dead, *self.unresponsive}
        groups: dict[int, list[int]] = {}
        for rank in range(size):
            if rank not in gone:
                groups.setdefault(self.counts[rank], []).append(rank)
        lines = [
            "NCCL version 2.26.5 compiled with CUDA 12.8",
            "CUDA runtime version 12080, driver version 12080",
            *("", "Job summary", "===========", ""),
            "  Nodes  Processes         GPUs  Processes     GPUs",
            "(total)   per node  per process    (total)  (total)",
            f"{size // GPUS_PER_NODE:7}  {GPUS_PER_NODE:9}  {1:11}  {size:9}  {size:7}",
            *("", "Communicators... (0.00s)", "=============", ""),
            "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
            "    #  in group  per comm  per node  per comm  in group",
            f"    0         1         4         4  {size:8}  {size:8}  {self.status:>8}  MISMATCH",
            *("", "Errors", "======", ""),
        ]
        for title, ranks in (("INCOMPLETE", self.unresponsive), ("DEAD", self.dead)):
            if ranks:
                lines += [title, f"  {len(ranks)} job processes are concerned"]
                lines += [
                    f"  Process {5000 + r} on node {self.host(r)} managing GPU 0" for r in ranks
                ]
                lines += [""]
        if gone:
            lines += [
                f"#0-0 ({HASH}) INCOMPLETE",
                f"  Missing communicator data from {len(gone)} ranks",
            ]
            lines += [f"  Rank {r} -- {self.process(r)}" for r in sorted(gone)] + [""]
        lines += ["Warnings", "========", ""]
        if len(groups) > 1:
            lines += [f"#0-0 ({HASH}) MISMATCH"]
            lines += [f"  Communicator ranks have different {operation}operation counts"]
            for count, ranks in sorted(groups.items(), key=lambda item: -len(item[1])):
                lines += self._group(count, ranks)
            lines += [""]
        return "\n".join(lines) + "\n"

    def _group(self, count: int, ranks: list[int]) -> list[str]:
        done = f"launched up to operation {count}" if count else "not launched any operations"
        if len(ranks) == 1:
            return [f"  Rank {ranks[0]} has {done} -- {self.process(ranks[0])}"]
        lines = [f"  {len(ranks)} ranks have {done}"]
        if len(ranks) <= min(10, 0.25 * len(self.counts)):  # NCCL lists outliers only
            lines += [f"  Rank {rank} -- {self.process(rank)}" for rank in ranks]
        return lines
