"""Checks with a real PyTorch: equal digests on equal machines, and a planted wrong result."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.pipelines.inspection import torch_measurements
from forewarn.pipelines.inspection.check_files import load_checks
from forewarn.pipelines.inspection.check_runner import evaluate_measurement

pytestmark = pytest.mark.gloo
SCRIPT = torch_measurements.__file__
# From its 30th call on one function is off by one bit, as on a core that fails when it is warm.
CORRUPT = """
import runpy, sys, torch
calls, tanh = 0, torch.tanh
def wrong(values):
    global calls
    calls += 1
    result = tanh(values)
    return torch.nextafter(result, result + 1.0) if calls > 30 else result
torch.tanh = wrong
sys.argv = ["measure", "training_step"]
runpy.run_path(SCRIPT, run_name="__main__")
"""


def python(*arguments: str) -> Any:
    programs = torch_programs()
    if programs is None:
        pytest.fail("PyTorch is missing: run .ci/setup_torch")
    command = [str(Path(programs, "python")), "-W", "ignore", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_training_is_equal_to_the_last_bit() -> None:
    first, second = (python(SCRIPT, "training_step") for _ in range(2))
    assert first == second
    assert len(first["values"]) >= 1


def test_silent_data_corruption_fails() -> None:
    code = CORRUPT.replace("SCRIPT", repr(SCRIPT))
    result = python("-c", code)
    check = load_checks()["training_step"]
    (outcome,) = evaluate_measurement(check, 0, json.dumps(result))[0]
    assert outcome.status == "failed"
    assert "repeats of the same training differ" in outcome.text


def test_all_reduce_of_two_processes() -> None:
    ((slot, bandwidth),) = python(SCRIPT, "all_reduce")["values"]
    assert slot is None
    assert float(bandwidth) > 0.0
