"""Small jobs with flight recorder dumps in the format of torch 2.13."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main

BEGIN = 1_795_296_000 * SECOND
Row = tuple[Any, ...]  # group, seq, seconds, and optionally a dict of overrides
PutDump = Callable[..., Path]
Diagnose = Callable[..., dict[str, Any]]


def entry(number: int, group: str, seq: int, seconds: float, **more: Any) -> dict[str, Any]:
    """Return an entry that is finished unless `more` says otherwise."""
    return {
        "record_id": number,
        "process_group": [group, group.rstrip("0123456789")],
        "pg_id": len(group),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "gloo:all_reduce",
        "time_created_ns": BEGIN + round(seconds * SECOND),
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "input_sizes": [[1000]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1000]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    } | more


OPEN = {"retired": False}


@pytest.fixture
def put_dump(tmp_path: Path) -> PutDump:
    """Return `put(rank, rows, ...)`, which writes a dump and returns the job's folder."""

    def put(
        rank: int, rows: Iterable[Row], *, name: str = "", version: str = "2.10", **keys: Any
    ) -> Path:
        entries = [
            entry(number, *row[:3], **(row[3] if len(row) > 3 else {}))
            for number, row in enumerate(rows)
        ]
        config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        dump = {"version": version, "pg_config": config, "pg_status": {}, "entries": entries}
        flight = tmp_path / "job" / "flight"
        flight.mkdir(parents=True, exist_ok=True)
        (flight / (name or f"dump_{rank}.json")).write_text(json.dumps(dump | keys))
        return flight.parent

    return put


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Diagnose:
    """Return `diagnose(job, seconds)`: the command's verdict that many seconds after `BEGIN`."""

    def called(job: Path, seconds: float | None = 3600.0, *options: str) -> dict[str, Any]:
        at = [] if seconds is None else ["--at", time_text(seconds)]
        assert main(["diagnose", "run", "--job", str(job), "--json", *at, *options]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        verdict: dict[str, Any] = json.loads(line)
        return verdict

    return called


def time_text(seconds: float) -> str:
    """Return a time that many seconds after `BEGIN`, in the format of `--at`."""
    from forewarn.pipelines.runtime.timestamps import format_iso

    return format_iso(BEGIN + round(seconds * SECOND))
