"""Dumps of a real NCCL job on 16 GPUs with two faulty ranks: ../shared/data/flight_recorder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main

Diagnose = Callable[..., dict[str, Any]]


@pytest.fixture
def diagnose(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Diagnose:
    """Return `diagnose(name, *options)`: the verdict on one of the shared jobs."""

    def run(name: str, *options: str) -> dict[str, Any]:
        flight = tmp_path / name / "flight"
        flight.mkdir(parents=True)
        for file in (shared_data / "flight_recorder" / name).glob("nccl_trace_rank_*"):
            shutil.copyfile(file, flight / file.name)
        assert main(["diagnose", "run", "--job", str(flight.parent), "--json", *options]) == 0
        verdict: dict[str, Any] = json.loads(capsys.readouterr().out)
        return verdict

    return run


@pytest.mark.parametrize("name", ["nccl_gpu_error", "nccl_lock_gil"])
def test_culprits_are_both_faulty_ranks(name: str, shared_data: Path, diagnose: Diagnose) -> None:
    truth = json.loads((shared_data / "flight_recorder" / name / "truth.json").read_text())
    verdict = diagnose(name, "--at", truth["at"])
    assert (verdict["kind"], verdict["rank"]) == ("hang", None)
    assert [culprit["rank"] for culprit in verdict["culprits"]] == truth["ranks"]
    assert verdict["also"] == []
    assert "independently" in verdict["cause"]
