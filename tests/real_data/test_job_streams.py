"""Jobs as users had them, ../shared/data/job_cases: no rank and no machine that does not exist."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.features.diagnosis.log_streams.job_streams import JobStreams, read_streams
from forewarn.features.diagnosis.ranks import Ranks, parse_ranks

# Ranks without a line of their own: a process that was killed says nothing, and its launcher
# names only the machine and the signal.
_SILENT = {
    "deepspeed-minus9-console": set(range(8)),
    "ray-driver-log": {7},
    "host-consoles-kill9": {19},
}


def _cases(shared: Path) -> Iterator[tuple[dict[str, str], Ranks | None, list[tuple[str, bytes]]]]:
    root = shared / "job_cases"
    with (root / "truth.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        case = root / row["case"]
        paths = sorted(path for path in (case / "logs").rglob("*") if path.is_file())
        files = [(str(path.relative_to(case)), path.read_bytes()) for path in paths]
        table = case / "ranks.csv"
        ranks = parse_ranks(table.read_text("utf-8"), table.name) if table.exists() else None
        if files:
            yield row, ranks, files


def _existing(row: dict[str, str], ranks: Ranks | None) -> set[int]:
    """Return the ranks of a job: those of the table, else those that the truth speaks of."""
    if ranks is not None:
        return set(ranks.table)
    words = f"{row['ranks']} {row['must_not_name']}".split()
    return {int(word) for word in words if word.isdigit() and int(word) < 1000}


def _wrong_machines(job: JobStreams, ranks: Ranks | None) -> dict[str, set[str | None]]:
    """Return learned machines that are another machine of the table, or several of them.

    The text may know a machine by another name than the table.
    """
    if ranks is None:
        return {}
    by_host: dict[str, set[str | None]] = {}
    for rank, host in job.machines.items():
        by_host.setdefault(host, set()).add(ranks.machine(rank))
    names = {row.machine for row in ranks.table.values()}
    return {
        host: machines
        for host, machines in by_host.items()
        if len(machines) > 1 or (host in names and machines != {host})
    }


@pytest.mark.parametrize("with_table", [True, False])
def test_only_existing_ranks_and_machines_are_learned(shared_data: Path, with_table: bool) -> None:
    count = 0
    for row, ranks, files in _cases(shared_data):
        job = read_streams(files, ranks if with_table else None)
        existing = _existing(row, ranks)
        assert not existing or set(job.ranks) <= existing, row["case"]
        assert _wrong_machines(job, ranks) == {}, row["case"]
        assert existing - set(job.ranks) <= _SILENT.get(row["case"], set()), row["case"]
        count += 1
    assert count > 80


def test_each_file_is_listed_as_read(shared_data: Path) -> None:
    for row, ranks, files in _cases(shared_data):
        job = read_streams(files, ranks)
        assert [reading.name for reading in job.readings] == [name for name, _ in files], row[
            "case"
        ]
        assert all(reading.read_as for reading in job.readings)
