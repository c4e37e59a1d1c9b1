"""A job of 16 ranks on 4 machines whose logs end with a step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.diagnosis.monitors.ras_answers import GPUS_PER_NODE

from forewarn.pipelines.cli.main import main

SIZE = 16
N_STEPS = 30
HUNG_AT = "2026-05-02T10:00:00Z"  # the last step is at 09:04:50
MOVING_AT = "2026-05-02T09:04:55Z"
PutLogs = Callable[..., Path]
Diagnose = Callable[..., dict[str, Any]]


@pytest.fixture
def put_logs(tmp_path: Path) -> PutLogs:
    """Return `put(is_listed=True)`, which writes `ranks.csv` and a log a rank."""

    def put(is_listed: bool = True, n_steps: int = N_STEPS) -> Path:
        (tmp_path / "logs").mkdir(exist_ok=True)
        for rank in range(SIZE):
            lines = [
                f"2026-05-02 09:{step // 6:02}:{step % 6 * 10:02},000 - INFO - step {step} loss 2.5"
                for step in range(n_steps)
            ]
            (tmp_path / "logs" / f"{rank}.log").write_text("\n".join(lines) + "\n")
        if is_listed:
            rows = [f"{r},trn-{r // GPUS_PER_NODE},{r % GPUS_PER_NODE}" for r in range(SIZE)]
            (tmp_path / "ranks.csv").write_text(
                "\n".join(["rank,machine,local_rank", *rows]) + "\n"
            )
        return tmp_path

    return put


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Diagnose:
    """Return `diagnose(job, at)`: the command's verdict."""

    def called(job: Path, at: str = "") -> dict[str, Any]:
        options = ["--at", at] if at else []
        assert main(["diagnose", "run", "--job", str(job), "--json", *options]) == 0
        verdict: dict[str, Any] = json.loads(capsys.readouterr().out)
        return verdict

    return called


def names(verdict: dict[str, Any]) -> set[Any]:
    """Return the ranks and machines that a verdict names as culprits."""
    culprits = [culprit[key] for culprit in verdict["culprits"] for key in ("rank", "machine")]
    return {verdict["rank"], verdict["machine"], *culprits} - {None}
