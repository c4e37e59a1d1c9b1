"""Hang suppression of a job with logs but without stacks, by the absent ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.diagnosis.conftest import OPEN, time_text

RANKS = 6


def put_job(put_dump: Any, missing: set[int], apart: float = 1.0, **of_missing: Any) -> Path:
    """Let each rank enter an operation at 100 s, shortly after each other.

    Missing ranks have not entered it, or are in it as `of_missing` describes.
    """
    for rank in range(RANKS):
        rows = [("0", 1, 1.0)]
        if rank not in missing:
            rows.append(("0", 2, 100.0 + rank * apart / 5, {**OPEN, "state": "started"}))  # type: ignore[arg-type]
        elif of_missing:
            rows.append(("0", 2, 100.0, {**OPEN, **of_missing}))  # type: ignore[arg-type]
        job: Path = put_dump(rank, rows)
    lines = [f"{time_text(20.0 * n)[:19]} step {n}" for n in range(6)]
    (job / "logs").mkdir()
    (job / "logs" / "1.log").write_text("\n".join(lines) + "\n")
    table = "".join(f"{rank},m{rank // 2}\n" for rank in range(RANKS))
    (job / "ranks.csv").write_text("rank,machine\n" + table)
    return job


@pytest.mark.parametrize(
    ("missing", "apart", "rank", "machine"),
    [({3}, 1.0, 3, "m1"), ({2, 3}, 1.0, None, "m1"), ({3}, 60.0, 3, "m1")],
)
def test_lone_absence_is_hang_after_minutes(
    missing: set[int],
    apart: float,
    rank: int | None,
    machine: str,
    put_dump: Any,
    diagnose: Any,
) -> None:
    verdict = diagnose(put_job(put_dump, missing, apart), 100 + 500)
    assert (verdict["kind"], verdict["rank"], verdict["machine"]) == ("hang", rank, machine)


@pytest.mark.parametrize(("missing", "apart"), [({0}, 1.0), ({1, 4}, 1.0), ({3}, 200.0)])
def test_possible_checkpoint_has_half_an_hour(
    missing: set[int], apart: float, put_dump: Any, diagnose: Any
) -> None:
    job = put_job(put_dump, missing, apart)
    verdict = diagnose(job, 100 + 500)
    assert (verdict["kind"], verdict["rank"]) == ("none", None)
    assert "classified as a hang in" in verdict["cause"]
    assert diagnose(job, 100 + 1810)["kind"] == "hang"


def test_unstarted_device_is_no_checkpoint(put_dump: Any, diagnose: Any) -> None:
    verdict = diagnose(put_job(put_dump, {0}, state="scheduled"), 100 + 500)
    assert (verdict["kind"], verdict["rank"]) == ("hang", 0)
