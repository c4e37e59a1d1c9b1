"""Runs slices of work in threads, in processes, or on a Dask cluster, with the same results."""

from __future__ import annotations

import datetime as dt
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from forewarn.features.threads import n_threads, submit_ahead
from forewarn.pipelines.runtime.job_error import JobError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Executor", "ExecutorKind", "SliceMap", "check_plain"]

ExecutorKind = Literal["threads", "processes", "dask"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_MAX_CRASHES = 4  # in a row without a result: a slice that uses all memory kills every worker
_CHECK_SECONDS = 5.0  # between two checks of a cluster for workers
_PATIENCE_SECONDS = 300.0  # without any worker; a batch system may queue workers for minutes
_CONNECT_TIMEOUT = "20s"
_PLAIN = (bool, int, float, str, bytes, PurePath, dt.date, dt.timedelta, np.generic, type(None))
_DASK_CONFIG = {
    # A worker may restart slowly on a busy machine; it must not be given up.
    "distributed.deploy.lost-worker-timeout": "1h",
    # By default a cluster of two idle workers uses 7 % of a core to monitor itself.
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "5s",
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    # By default workers release freed memory immediately and fault it in again for the next slice:
    # six times as many page faults, and 50 % more time for a file of `doctor`.
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
}


@dataclass(frozen=True, slots=True)
class Executor:
    """Where slices of work run.

    Attributes
    ----------
    kind : {"threads", "processes", "dask"}
    workers : int
        Slices at a time; 0 means one per core. A cluster with an address has its own workers.
    address : str
        Address of a running Dask scheduler; without it, `dask` starts a cluster on this machine.
    """

    kind: ExecutorKind = "threads"
    workers: int = 0
    address: str = ""

    @contextmanager
    def started(self) -> Iterator[SliceMap]:
        """Start workers and keep them for several maps, because a cluster takes seconds to start.

        Raises
        ------
        JobError
            If this process may not start workers, or a cluster does not respond.
        """
        local = self.kind != "threads" and not self.address
        if local and multiprocessing.current_process().daemon:
            raise JobError(
                f'`executor.kind` is "{self.kind}" in a daemonic process (Celery uses them), '
                'which may not start workers: expected "threads", or "dask" and the `address` of a '
                "cluster."
            )
        n_workers = self.workers or n_threads()
        if self.kind == "dask":
            with _connected(n_workers, self.address) as client:
                yield _ClusterMap(client)
            return
        slices = SliceMap(self._new_pool, n_workers)
        try:
            yield slices
        finally:
            slices.pool.shutdown(cancel_futures=True)

    def _new_pool(self) -> futures.Executor:
        n_workers = self.workers or n_threads()
        if self.kind == "threads":
            return futures.ThreadPoolExecutor(n_workers)
        # Not forked: threads of numpy, pyarrow and TensorFlow may hold locks at that time.
        return futures.ProcessPoolExecutor(n_workers, multiprocessing.get_context("spawn"))


class SliceMap:
    """Calls a function on slices, several at a time; slices of a crashed worker run again.

    Parameters
    ----------
    new_pool : callable
        Returns a pool of workers; called again after a worker crash, which breaks a pool.
    n_workers : int
    """

    def __init__(self, new_pool: Callable[[], futures.Executor], n_workers: int) -> None:
        self.pool = new_pool()
        self._new_pool = new_pool
        self._n_workers = n_workers
        self._crashes = 0

    def map(self, task: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
        """Yield the result of `task` for each item, in the order of the items.

        Parameters
        ----------
        task : callable
            A module-level function. It may run more than once for an item, so it returns its
            result, or writes one file under a temporary name and renames it.
        items : iterable
            Plain values, see `check_plain`. At most twice as many items as workers are read ahead,
            which limits the results waiting in memory.

        Raises
        ------
        TypeError
            If the task is not a module-level function, or an item or a result is not plain.
        JobError
            If workers crash repeatedly on the same items, or a cluster cannot be reached.
        """
        if getattr(sys.modules[task.__module__], task.__name__, None) is not task:
            raise TypeError(f"`task` must be a module-level function, got {task!r}.")

        def submit(item: _Item) -> futures.Future[_Result]:
            return self._submit(task, check_plain(item))

        n_ahead = 2 * max(self.count_workers(), 1)
        with closing(submit_ahead(submit, items, n_ahead)) as submitted:
            for item, future in submitted:
                yield check_plain(self._result(task, item, future))

    def count_workers(self) -> int:
        """Return how many slices run at a time."""
        return self._n_workers

    def _submit(self, task: Callable[[_Item], _Result], item: _Item) -> futures.Future[_Result]:
        """Submit a slice; replace a broken pool first."""
        try:
            return self.pool.submit(task, item)
        except futures.BrokenExecutor:
            self._crashes += 1
        if self._crashes >= _MAX_CRASHES:
            self._crashes = 0
            raise JobError(
                f"`executor`: workers died {_MAX_CRASHES} times in a row in {task.__name__}; "
                "the host may be out of memory."
            )
        self.pool = self._new_pool()
        return self.pool.submit(task, item)

    def _result(
        self, task: Callable[[_Item], _Result], item: _Item, future: futures.Future[_Result]
    ) -> _Result:
        while True:
            try:
                result = future.result()
            except futures.BrokenExecutor:
                future = self._submit(task, item)
            else:
                self._crashes = 0
                return result


class _ClusterMap(SliceMap):
    """Slices on a Dask cluster, which reruns the slices of a crashed worker itself."""

    def __init__(self, client: Client) -> None:
        # Not pure: the data a task reads may have changed since the last call with the same item.
        super().__init__(lambda: client.get_executor(pure=False), 0)
        self._client = client

    def count_workers(self) -> int:
        return sum(self._client.nthreads().values())

    def _result(
        self, task: Callable[[_Item], _Result], item: _Item, future: futures.Future[_Result]
    ) -> _Result:
        from distributed import KilledWorker

        self._wait(future)
        try:
            return super()._result(task, item, future)
        except KilledWorker as error:
            raise JobError(
                f"`executor`: {error.allowed_failures + 1} workers died at one slice; the host "
                "may be out of memory."
            ) from None
        except futures.CancelledError:
            raise JobError("`executor`: the connection to the cluster was lost.") from None
        except ModuleNotFoundError as error:
            raise JobError(
                f"`executor`: a worker lacks {error.name}; install the same forewarn there."
            ) from None

    def _wait(self, future: futures.Future[Any]) -> None:
        """Wait for a result as long as there are workers, or may soon be."""
        last_seen = time.monotonic()
        while not futures.wait([future], _CHECK_SECONDS).done:
            if self.count_workers():
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > _PATIENCE_SECONDS:
                raise JobError("`executor`: the cluster has no workers; at least one is needed.")


@contextmanager
def _connected(n_workers: int, address: str) -> Iterator[Client]:
    """Connect to the cluster at an address, or start one of `n_workers` processes."""
    import dask
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_DASK_CONFIG))
        cluster: Any = address or stack.enter_context(
            LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                # Without a dashboard there is still an HTTP server, on one port for all clusters.
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                host="127.0.0.1",
                memory_limit=0,  # results are fetched as they arrive, so nothing has to be spilled
                silence_logs=logging.CRITICAL,  # slices of a crashed worker run again
            )
        )
        try:
            client = stack.enter_context(
                Client(cluster, timeout=_CONNECT_TIMEOUT, set_as_default=False)
            )
        except (OSError, ValueError) as error:
            detail = str(error).splitlines()[0][:200]
            raise JobError(f"`executor.address` {address!r} is not a cluster ({detail}).") from None
        yield client


def check_plain(value: _Item) -> _Item:
    """Return a value after checking that it may be sent to another process.

    Raises
    ------
    TypeError
        If it is, or contains, anything but paths, numbers, texts, dates, arrays, and tuples, lists,
        sets and dictionaries of them. Other objects would be pickled and depend on the version of
        forewarn in the other process.

    Examples
    --------
    >>> check_plain({"date=2025-01-01": [1, 2]})
    {'date=2025-01-01': [1, 2]}
    """
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("a slice contains an array of objects, expected numbers or texts.")
    elif isinstance(value, dict):
        check_plain([*value.keys(), *value.values()])
    elif type(value) in (tuple, list, set, frozenset):
        for part in value:  # type: ignore[attr-defined]  # a container, as the line above says
            check_plain(part)
    elif not isinstance(value, _PLAIN):
        raise TypeError(
            f"a slice contains {type(value).__name__}, expected paths, numbers, texts, dates, "
            "arrays, and tuples, lists, sets and dictionaries of them."
        )
    return value
