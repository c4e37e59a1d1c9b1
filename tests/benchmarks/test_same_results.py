"""Differences that the comparison of two versions reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

Load = Callable[[str], ModuleType]


@pytest.fixture
def differences(benchmark_module: Load) -> Callable[[Any, Any], list[str]]:
    module = benchmark_module("same_results")
    return lambda old, new: list(module.value_differences(old, new))


def test_differences_name_the_path(differences: Callable[[Any, Any], list[str]]) -> None:
    old = {"rank": 3, "also": [{"machine": "node-1"}], "at": "2025-01-01T00:00:00Z"}
    new = {"rank": None, "also": [{"machine": "node-2"}, {}], "at": "2025-01-01T00:00:00Z"}
    assert differences(old, new) == [
        "rank: 3 -> None",
        "also[0].machine: 'node-1' -> 'node-2'",
        "also[1]: (missing) -> {}",
    ]
    assert differences({"flagged": True, "score": float("nan")}, {"flagged": 1, "score": 0.1}) == [
        "flagged: True -> 1",
        "score: nan -> 0.1",
    ]


def test_texts_and_timings_may_differ(differences: Callable[[Any, Any], list[str]]) -> None:
    old = {"why": "rank 0 wrote nothing", "seconds": 1.0, "score": float("nan")}
    new = {"why": "no output of rank 0", "seconds": 2.0, "score": float("nan")}
    assert differences(old, new) == []
    assert differences({"stages": [{"seconds": 1.0}]}, {"stages": [{"seconds": 2.0}]}) == []
    assert differences([old | {"cpu_seconds": 1.0}], [new | {"cpu_seconds": 2.0}]) == []
    assert differences({"jitter": {"seconds": 1.0}}, {"jitter": {"seconds": 2.0}}) == [
        "jitter.seconds: 1.0 -> 2.0"
    ]
    assert differences(old, new | {"why": None}) == ["why: 'rank 0 wrote nothing' -> None"]
    assert differences({"finding": "xid 79"}, {"finding": "xid 48"}) != []
    assert differences({"id": "node-1 G0 xid 79"}, {"id": "node-1 G1 xid 79"}) != []


def test_files_are_compared_by_content(benchmark_module: Load, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, serial, score in ((old, "G0", 0.5), (new, "G1", 0.25)):
        folder.mkdir()
        (folder / "exit_codes.json").write_text(json.dumps({"score": 0}, indent=int(2 * score)))
        (folder / "list.csv").write_text(f"gpu_serial,reasons\n{serial},three words at {score}\n")
        (folder / "trees.txt").write_text(f"split={score}\n")
        (folder / "page.html").write_text(f"<p>{serial}</p>")
        table = pd.DataFrame({"gpu_serial": ["G0", "G0"], "score": [None, score]})
        table.to_parquet(folder / "scores.parquet", compression="gzip" if folder == new else None)
    (new / "new.json").write_text("{}")
    assert list(benchmark_module("same_results").folder_differences(old, new)) == [
        "new.json: only in NEW",
        "list.csv: [0].gpu_serial: 'G0' -> 'G1'",
        "scores.parquet: score[1]: 0.5 -> 0.25",
        "trees.txt: different bytes",
    ]
