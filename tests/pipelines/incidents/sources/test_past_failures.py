from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.features.time_units import DAY
from forewarn.pipelines.incidents.sources.ground_truth import read_ground_truth
from forewarn.pipelines.incidents.sources.past_failures import merge_failures, read_failures

HEADER = "gpu_serial,failed_at,repaired_at,end_source\n"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "failures.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("source", ["ticket", "boot", "returned", ""])
def test_observed_end_is_repair_time(tmp_path: Path, source: str) -> None:
    (failure,) = read_failures(table(tmp_path, f"A,1970-01-02,1970-01-05,{source}"), {})
    assert failure.repaired_at == 4 * DAY


def test_presumed_end_is_no_repair(tmp_path: Path) -> None:
    presumed = read_failures(table(tmp_path, "A,1970-01-02,1970-01-03,presumed"), {})
    assert [failure.repaired_at for failure in presumed] == [None]
    both = read_failures(
        table(tmp_path, "A,1970-01-02,1970-01-03,presumed", "A,1970-01-02,1970-01-09,ticket"), {}
    )
    assert [failure.repaired_at for failure in merge_failures(both)] == [8 * DAY]


def test_presumed_end_gives_no_ground_truth(tmp_path: Path) -> None:
    """Outcomes are based on failures, which are the same with and without a presumed end."""
    ended = read_ground_truth(table(tmp_path, "A,1970-01-02,1970-01-03,presumed"), [])
    lasting = read_ground_truth(table(tmp_path, "A,1970-01-02,,"), [])
    assert list(ended) == ["A"]
    assert ended == lasting
