"""Ranks of the job by ranks of its communicators, each of which counts from 0."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.features.diagnosis.communicators.communicator_state import (
    CommunicatorState,
    StatusSnapshot,
)
from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["JobRankNumbers"]


class JobRankNumbers:
    """Numbers of the job's ranks: those of a communicator of the whole job, or by process.

    Parameters
    ----------
    snapshot : StatusSnapshot
    ranks : Ranks
        All ranks of the job.
    addresses : mapping of str to str
        Machines by address.
    """

    def __init__(
        self, snapshot: StatusSnapshot, ranks: Ranks, addresses: Mapping[str, str]
    ) -> None:
        self._ranks, self._addresses, self._by_pid = ranks, addresses, ranks.by_pid()
        self._size = len(ranks.table) if ranks.listed else snapshot.n_ranks
        is_whole = snapshot.n_ranks in (None, self._size)
        self._by_process = snapshot.process_ranks() if is_whole else {}

    def number(self, state: CommunicatorState, rank: int) -> int | None:
        """Return the rank of the job, or None if it is unknown."""
        if state.size == self._size:
            return rank if rank in self._ranks.table else None
        process = state.processes.get(rank)
        if process is None:
            return None
        number = self._by_process.get(process, self._by_pid.get(process.pid))
        machine = self._ranks.machine_named(self._addresses.get(process.host, process.host))
        if number is not None or machine is None or process.gpu is None:
            return number
        return self._ranks.rank_at(machine, process.gpu)
