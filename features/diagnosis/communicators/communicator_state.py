"""State of communicators as one query saw it: operations launched by rank, and lost processes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from forewarn.features.errors import InputError

__all__ = ["BrokenStatusError", "CommunicatorState", "GpuProcess", "StatusSnapshot"]


class BrokenStatusError(InputError):
    """A status report that is truncated or not one."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """Process that manages a GPU.

    Attributes
    ----------
    host : str
        Address or name.
    pid : int
    gpu : int or None
        Number of the GPU on its host.
    """

    host: str
    pid: int
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class CommunicatorState:
    """State of one communicator.

    Attributes
    ----------
    name : str
        Hash of the communicator.
    size : int
        Number of its ranks.
    counts : mapping of str to mapping of int to int
        Operations launched, by collective and rank, as far as the report tells. The ranks are those
        of the communicator.
    processes : mapping of int to GpuProcess
        By rank of the communicator, as far as known.
    unresponsive, dead : frozenset of int
        Ranks of processes that did not answer the query, or not for a minute.
    is_running : bool
        All ranks have initialized it, and none is about to end it.
    """

    name: str
    size: int
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    processes: Mapping[int, GpuProcess] = field(default_factory=dict)
    unresponsive: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    is_running: bool = True


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """Answer to one query.

    Attributes
    ----------
    communicators : tuple of CommunicatorState
    n_ranks : int or None
        GPUs of the job, which is the number of its ranks; None if unknown.
    time : datetime.datetime or None
        Local time of a host, without a zone; None if not stated.
    """

    communicators: tuple[CommunicatorState, ...]
    n_ranks: int | None = None
    time: dt.datetime | None = None

    def process_ranks(self) -> dict[GpuProcess, int]:
        """Return the ranks of processes, from a communicator of the whole job."""
        return {
            process: rank
            for state in self.communicators
            if state.size == self.n_ranks
            for rank, process in state.processes.items()
        }
