"""Slices of work on a Dask cluster: one that runs already, or one of processes of this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.slice_map import SliceMap, check_task, in_order

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["dask_slices"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_ANSWER = "20s"  # within which a scheduler has to answer
_LOOK = 5  # seconds after which we look whether there are workers
_MOST_LOOKS = 60  # without any: those of a batch system may be minutes in its queue
# A worker that starts again on a busy machine takes its time, and must not be given up.
_PATIENT = {"distributed.deploy.lost-worker-timeout": "1h"}
# A cluster of two workers that watches itself as closely as it does by default takes 7 % of a core
# while it waits, and as much from whoever works: nobody looks at what it sees.
_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "5s",
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    # By default workers give memory back whenever they can, and touch it anew in the next slice:
    # six times as many page faults, and half as much time again for a file of `doctor`.
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
}
# Without a dashboard there still is a small HTTP server, on one port that all clusters would share.
_ANY_PORT = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}


@contextmanager
def dask_slices(n_workers: int, address: str) -> Iterator[SliceMap]:
    """Hold a client of the cluster at `address`, or of a new one of `n_workers` processes.

    Raises
    ------
    JobError
        If Dask is not installed or the cluster does not answer.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise JobError(
            '`executor.kind` is "dask", which is not installed: pip install dask distributed.'
        ) from None
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_PATIENT | _QUIET))
        cluster: Any = address
        if not address:
            # Results are taken as they come, so there is nothing that a worker would have to spill.
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    scheduler_kwargs=_ANY_PORT,
                    host="127.0.0.1",
                    memory_limit=0,
                    silence_logs=logging.CRITICAL,  # a worker that dies is tried again
                )
            )
        try:
            client = stack.enter_context(Client(cluster, timeout=_ANSWER, set_as_default=False))
        except (OSError, ValueError) as error:
            detail = str(error).splitlines()[0][:200]
            raise JobError(f"`executor.address` is {address!r}: no cluster ({detail}).") from None
        yield _Dask(client)


@dataclass(frozen=True, slots=True)
class _Dask:
    """Slices on the workers of a cluster, which tries those of a dead worker again."""

    client: Client

    def map(self, task: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
        check_task(task)
        n_workers = sum(self.client.nthreads().values())
        return in_order(lambda item: self._submit(task, item), items, 2 * max(n_workers, 1))

    def _submit(self, task: Callable[[_Item], _Result], item: _Item) -> _Slice:
        # Not pure: what a task reads may have changed since another run of the same call.
        return _Slice(self.client, self.client.submit(task, item, pure=False))


@dataclass(frozen=True, slots=True)
class _Slice:
    """A result to come, whose trouble is said in one line."""

    client: Client
    future: Future[Any]

    def result(self) -> Any:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        try:
            return self._wait()
        except KilledWorker as error:
            raise JobError(
                f"`executor`: {error.allowed_failures + 1} workers died at one slice, expected "
                "it to end; is there too little memory?"
            ) from None
        except FutureCancelledError:
            raise JobError("`executor`: the cluster went away, expected it to stay.") from None
        except ModuleNotFoundError as error:
            raise JobError(
                f"`executor`: a worker lacks {error.name}, expected the forewarn that runs here."
            ) from None

    def _wait(self) -> Any:
        """Wait for the result as long as anybody could be working on it."""
        looks = 0
        while True:
            try:
                return self.future.result(timeout=_LOOK)
            except TimeoutError:
                if self.future.done():  # just now, or the error is the task's own
                    return self.future.result()
            looks = 0 if self.client.nthreads() else looks + 1
            if looks > _MOST_LOOKS:
                raise JobError("`executor`: the cluster has no worker, expected at least one.")

    def cancel(self) -> None:
        self.future.cancel()
