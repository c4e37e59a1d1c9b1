"""The journal of an inspection: its results so far, from which a killed one goes on."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.pipelines.storage.files.atomic_files import fsync

__all__ = ["RunJournal"]


@dataclass(slots=True)
class RunJournal:
    """Results of an inspection that has not ended.

    Each line of the file is written at once and flushed; a line that a kill cut off is dropped, and
    its check runs again.

    Attributes
    ----------
    path : Path
    run : str
        Identifier of the inspection.
    name : str
        Name of its set.
    rows : list of dict
        Rows of RESULTS, with times in nanoseconds.
    done : Counter of str
        Finished runs of each check.
    seconds : float
        Time that they took.
    """

    path: Path
    run: str
    name: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @classmethod
    def open(cls, path: Path, run: str, name: str) -> RunJournal:
        """Continue the journal of a file, or start one for a new inspection."""
        lines = list(_complete_lines(path))
        if not lines:
            journal = cls(path, run, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            journal._append({"run": run, "set": name})
            fsync(path.parent)
            return journal
        journal = cls(path, str(lines[0]["run"]), str(lines[0]["set"]))
        for line in lines[1:]:
            journal._count(line["check"], line["rows"], line["seconds"], line["runs"])
        # What a kill cut off would otherwise become part of the next line.
        with path.open("rb+") as file:
            file.truncate(sum(len(json.dumps(line)) + 1 for line in lines))
        return journal

    def add(
        self, check: str, rows: Sequence[Mapping[str, Any]], seconds: float, runs: int = 1
    ) -> None:
        """Store the results of a check; `runs` of its runs need not be made any more."""
        self._append({"check": check, "rows": list(rows), "seconds": seconds, "runs": runs})
        self._count(check, rows, seconds, runs)

    def close(self) -> None:
        """Remove the file; the results are stored elsewhere."""
        self.path.unlink(missing_ok=True)
        fsync(self.path.parent)

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _count(
        self, check: str, rows: Sequence[Mapping[str, Any]], seconds: float, runs: int
    ) -> None:
        self.rows += [dict(row) for row in rows]
        self.done[check] += runs
        self.seconds += seconds


def _complete_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    for line in content.splitlines(keepends=True):
        try:
            if line.endswith(b"\n"):
                yield json.loads(line)
                continue
        except ValueError:
            pass
        return
