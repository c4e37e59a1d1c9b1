"""What the kernel says of training processes, sample by sample."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.pipelines.agent.job_processes import JobProcess, stat_fields

__all__ = ["KernelSamples"]

_FILES = 120  # of a job that are left, the last ones
_TEXTS = ("state", "wchan")
_NUMBERS = ("runq_wait_ms", "syscalls")


@dataclass(slots=True)
class KernelSamples:
    """Samples of the processes of this host that are not on disk yet.

    Parameters
    ----------
    machine : str
    proc : Path
    """

    machine: str
    proc: Path = Path("/proc")
    _before: dict[tuple[int, int], tuple[float | None, float | None]] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def take(self, process: JobProcess, now: int) -> None:
        """Read the state of a process, and what it did since the last sample.

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
        waited, calls = self._waited(folder), self._calls(folder)
        key = process.pid, process.start
        before = self._before.get(key, (None, None))
        self._before[key] = waited, calls
        self._rows.setdefault(process.job, []).append(
            {
                "timestamp": now,
                "rank": process.rank,
                "state": state,
                "runq_wait_ms": _increase(waited, before[0]),
                "syscalls": _increase(calls, before[1]),
                "wchan": self._text(folder / "wchan"),
            }
        )

    def _waited(self, folder: Path) -> float | None:
        """Return how long the main thread was ready and did not run, in ms."""
        parts = (self._text(folder / "schedstat") or "").split()
        return float(parts[1]) / 1e6 if len(parts) > 1 else None

    def _calls(self, folder: Path) -> float | None:
        """Return the reads and writes of the process; the kernel counts no other calls."""
        text = self._text(folder / "io") or ""
        rows = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        numbers = [float(rows[name]) for name in ("syscr", "syscw") if name in rows]
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
            If there is no pyarrow: an agent does without it, and without this part.
        """
        rows = self._rows.pop(job, [])
        if not rows:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields = [pa.field("timestamp", pa.timestamp("ns", "UTC")), pa.field("rank", pa.int64())]
        fields += [pa.field(name, pa.string()) for name in _TEXTS]
        fields += [pa.field(name, pa.float64()) for name in _NUMBERS]
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{self.machine}-{rows[0]['timestamp']}.parquet"
        temporary = target.with_name(f".{target.name}.part")
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), temporary)
        temporary.replace(target)
        for old in sorted(folder.glob(f"{self.machine}-*.parquet"))[:-_FILES]:
            old.unlink(missing_ok=True)


def _increase(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None or now < before else now - before
