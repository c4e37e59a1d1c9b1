"""Simple rules that identify a culprit rank, as baselines for the diagnosis."""

from __future__ import annotations

import numpy as np

from forewarn.features.diagnosis.flight_recorder_dump import COMPLETED
from forewarn.pipelines.diagnosis.parts.exits_part import ExitsPart
from forewarn.pipelines.diagnosis.parts.flight_part import FlightPart
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot
from forewarn.pipelines.diagnosis.parts.logs_part import LogsPart

__all__ = ["baseline_ranks"]


def baseline_ranks(snapshot: JobSnapshot, seed: int) -> dict[str, int | None]:
    """Return the rank that each rule identifies, or None.

    Parameters
    ----------
    snapshot : JobSnapshot
    seed : int
        Seed of the random rule.

    Returns
    -------
    dict of str to (int or None)
        `oldest log line`: the rank whose last log line is the oldest. `lowest completed number`:
        the rank with the fewest completed collectives. `first failure`: the first process that
        exits with an error, which launchers such as torchrun call the root cause; in a hang, the
        rank whose operation times out first. `random`: any rank.
    """
    logs, flight = snapshot.parts.get("logs"), snapshot.parts.get("flight")
    exits = snapshot.parts.get("exits")
    failed = _first_failed_rank(exits) if isinstance(exits, ExitsPart) else None
    if failed is None and isinstance(flight, FlightPart):
        failed = _first_timeout_rank(flight)
    ranks = sorted(snapshot.ranks.table)
    return {
        "oldest log line": _oldest_log_rank(logs) if isinstance(logs, LogsPart) else None,
        "lowest completed number": _lowest_completed_rank(flight)
        if isinstance(flight, FlightPart)
        else None,
        "first failure": failed,
        "random": int(np.random.default_rng(seed).choice(ranks)) if ranks else None,
    }


def _oldest_log_rank(logs: LogsPart) -> int | None:
    times = [
        (log.scan.last, log.rank)
        for log in logs.logs
        if log.scan is not None and log.scan.last is not None and log.rank is not None
    ]
    return min(times)[1] if times else None


def _lowest_completed_rank(flight: FlightPart) -> int | None:
    """Return the rank with the fewest completed operations in any group; the first one in a tie."""
    entries = flight.operations.entries
    done = entries[(entries["state"] == COMPLETED) & ~entries["is_p2p"]]
    ranks = np.unique(entries["rank"])
    last = np.zeros(int(ranks.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(last, done["rank"], done["seq"])
    return int(ranks[np.argmin(last[ranks])]) if len(ranks) else None


def _first_failed_rank(exits: ExitsPart) -> int | None:
    ends = [
        (end.time, rank)
        for rank, several in exits.exits.items()
        for end in several
        if end.code not in (0, -15) and end.time is not None
    ]
    return min(ends)[1] if ends else None


def _first_timeout_rank(flight: FlightPart) -> int | None:
    unfinished = flight.operations.unfinished()
    return int(unfinished["rank"][np.argmin(unfinished["created"])]) if len(unfinished) else None
