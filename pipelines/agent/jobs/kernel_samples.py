"""Samples of the kernel's state and counters of training processes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.features.time_units import SECOND
from forewarn.pipelines.agent.jobs.training_processes import JobProcess, stat_fields
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["KernelSamples"]

_MAX_FILES = 120  # kept per job
_TEXTS = ("state", "wchan")
_NUMBERS = ("d_seconds", "runq_wait_ms", "syscalls")
_SWITCHES = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")


@dataclass(frozen=True, slots=True)
class _ProcessCounters:
    """Counters of a process at one time."""

    time: int
    state: str
    waited: float | None
    calls: float | None
    switches: float | None

    def asleep(self, before: _ProcessCounters) -> float | None:
        """Return the seconds certainly spent in state D since an earlier sample; None if unknown.

        A process in state D at both times without a context switch did not run in between.
        """
        if self.switches is None or before.switches is None:
            return None
        is_same = self.state == before.state == "D" and self.switches == before.switches
        return (self.time - before.time) / SECOND if is_same else 0.0


@dataclass(slots=True)
class KernelSamples:
    """Samples of this host's processes that are not yet on disk.

    Parameters
    ----------
    machine : str
    proc : Path
    """

    machine: str
    proc: Path = Path("/proc")
    _before: dict[tuple[int, int], _ProcessCounters] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def sample(self, process: JobProcess, now: int) -> None:
        """Sample the state of a process and its counters since the last sample.

        Parameters
        ----------
        process : JobProcess
        now : int
            Nanoseconds since 1970 UTC.
        """
        folder = self.proc / str(process.pid)
        try:
            state = stat_fields(folder)[0]
        except (OSError, IndexError):
            return
        counts = _ProcessCounters(
            now,
            state,
            self._waited(folder),
            self._added(folder / "task" / str(process.pid) / "io", ("syscr", "syscw")),
            self._added(folder / "status", _SWITCHES),
        )
        key = process.pid, process.start
        before = self._before.get(key)
        self._before[key] = counts
        self._rows.setdefault(process.job, []).append(
            {
                "timestamp": now,
                "rank": process.rank,
                "state": state,
                "d_seconds": None if before is None else counts.asleep(before),
                "runq_wait_ms": _increase(counts.waited, None if before is None else before.waited),
                "syscalls": _increase(counts.calls, None if before is None else before.calls),
                "wchan": self._text(folder / "wchan"),
            }
        )

    def _waited(self, folder: Path) -> float | None:
        """Return how long the main thread waited in the run queue, in ms."""
        parts = (self._text(folder / "schedstat") or "").split()
        return float(parts[1]) / 1e6 if len(parts) > 1 else None

    def _added(self, path: Path, names: tuple[str, ...]) -> float | None:
        """Return the sum of some counters, such as the reads and writes of the main thread."""
        text = self._text(path) or ""
        rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        numbers = [float(rows[name]) for name in names if name in rows]
        return sum(numbers) if numbers else None

    def _text(self, path: Path) -> str | None:
        with suppress(OSError):
            return path.read_text(encoding="utf-8", errors="replace").strip() or None
        return None

    def write(self, job: str, folder: Path) -> None:
        """Write the samples of a job as a table of its part `kernel`, if there are any.

        Raises
        ------
        ImportError
            If pyarrow is not installed; the agent runs without it and then omits this part.
        """
        rows = self._rows.pop(job, [])
        if not rows:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields = [pa.field("timestamp", pa.timestamp("ns", "UTC")), pa.field("rank", pa.int64())]
        fields += [pa.field(name, pa.string()) for name in _TEXTS]
        fields += [pa.field(name, pa.float64()) for name in _NUMBERS]
        with replacing(folder / f"{self.machine}-{rows[0]['timestamp']}.parquet") as temporary:
            pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), arrow_path(temporary))
        for old in sorted(folder.glob(f"{self.machine}-*.parquet"))[:-_MAX_FILES]:
            old.unlink(missing_ok=True)


def _increase(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None or now < before else now - before
