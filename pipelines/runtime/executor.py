"""Where slices of work run: in threads, in processes, or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from forewarn.features.threads import n_threads
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.slice_map import SliceMap, check_task, in_order

__all__ = ["Executor", "ExecutorKind"]

ExecutorKind = Literal["threads", "processes", "dask"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Executor:
    """A place for slices of work; the results are the same in each.

    Attributes
    ----------
    kind : {"threads", "processes", "dask"}
    workers : int
        Slices at a time; 0: one for each core. A cluster with an address has its own workers.
    address : str
        Of the scheduler of a running Dask cluster; without it `dask` starts one on this machine.
    """

    kind: ExecutorKind = "threads"
    workers: int = 0
    address: str = ""

    @contextmanager
    def started(self) -> Iterator[SliceMap]:
        """Hold the workers for several maps: a cluster takes seconds to start.

        Raises
        ------
        JobError
            If this process may not start workers, Dask is not installed, or a cluster does not
            answer.
        """
        n_workers = self.workers or n_threads()
        if self.kind == "threads":
            with ThreadPoolExecutor(n_workers) as pool:
                yield _Threads(pool, n_workers)
            return
        if not self.address:
            self._refuse_daemon()
        if self.kind == "processes":
            from forewarn.pipelines.runtime.process_slices import process_slices

            with process_slices(n_workers) as slices:
                yield slices
        else:
            from forewarn.pipelines.runtime.dask_slices import dask_slices

            with dask_slices(n_workers, self.address) as slices:
                yield slices

    def _refuse_daemon(self) -> None:
        """Say what to do where Python lets a process have no children, as in Celery's pool."""
        if multiprocessing.current_process().daemon:
            raise JobError(
                f'`executor.kind` is "{self.kind}" in a daemonic process, as Celery makes them, '
                'which may start no workers: expected "threads", or "dask" and the `address` of a '
                "cluster."
            )


@dataclass(frozen=True, slots=True)
class _Threads:
    """Slices in threads of this process."""

    pool: ThreadPoolExecutor
    n_workers: int

    def map(self, task: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
        check_task(task)
        return in_order(lambda item: self.pool.submit(task, item), items, 2 * self.n_workers)
