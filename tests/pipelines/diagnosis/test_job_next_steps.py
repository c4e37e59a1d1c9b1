"""Next steps of whole jobs: on the command line, as JSON, and on a page for a phone."""

from __future__ import annotations

import csv
import html
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.models.diagnosis.verdict.next_steps import next_steps
from forewarn.models.diagnosis.verdict.restart_point import RestartPoint
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.diagnosis.diagnosis_page import render_diagnosis_page
from forewarn.pipelines.runtime.timestamps import parse_moment

STARTS = {
    "nvlink-uncorrectable": "Replace node-2, then restart from the last checkpoint",
    "slurm-node-fail": "Replace node-2, then restart",
    "exception-then-blocked": "Fix the error of rank 5: ValueError: unexpected batch shape",
    "kubectl-prefix": "Fix the error of rank 5: ValueError: unexpected batch shape",
    "cuda-oom-all": "Fix the error of the program: torch.OutOfMemoryError",
    "stacks-loader-three-rounds": "Fix the data loader: rank 0 blocks in __next__",
    "size-mismatch-recorder": "Check the program for a branch",
    "deepspeed-minus9": "Solve this error: the launcher reports a process that failed; look for",
    "mpirun-signal9": "Rank 5 on node-1: check the kernel log of the machine",
    "k8s-oomkilled": "On node-2: request more memory",
    "preempted-launcher-log": "No fault; `squeue` shows",
    "time-limit-said-in-one-file": "Ask for more time",
    "uneven-data": "Find out what rank 0 on node-1 did last",
    "recorder-all-entered": "Add logs and stacks before you cancel the job",
    "recorder-and-logs-eight-hours-apart": "Diagnose the job again with `--at TIME`",
}
PAGES = (
    "../flight_recorder/nccl_gpu_error",  # two culprits
    "nvlink-uncorrectable",
    "recorder-named-rankN-pkl",
    "stacks-loader-three-rounds",
    "time-limit-said-in-one-file",
    "recorder-and-logs-eight-hours-apart",
)
PHONE_WIDTH = 400  # pixels


@pytest.fixture(scope="module")
def cases(shared_data: Path) -> dict[str, dict[str, str]]:
    with (shared_data / "job_cases" / "truth.csv").open() as file:
        return {row["case"]: row for row in csv.DictReader(file)}


def verdict(shared_data: Path, case: str, at: str, capsys: Any) -> dict[str, Any]:
    options = ["--at", at] if at else []
    job = shared_data / "job_cases" / case
    assert main(["diagnose", "run", "--job", str(job), *options, "--json"]) == 0
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    return line


@pytest.mark.parametrize("case", STARTS)
def test_known_cases_have_their_steps(
    shared_data: Path, cases: dict[str, dict[str, str]], case: str, capsys: Any
) -> None:
    line = verdict(shared_data, case, cases[case]["at"], capsys)
    assert line["next"][0].startswith(STARTS[case])


def put_log(folder: Path, text: str) -> Path:
    (folder / "logs").mkdir()
    (folder / "logs" / "0.log").write_text(text)
    return folder


def test_last_checkpoint_is_in_the_steps(tmp_path: Path, capsys: Any) -> None:
    lines = []
    for step in range(1, 9):
        stamp = f"2026-03-04 12:0{step}:00"
        lines.append(f"{stamp} iteration {step * 100}/ 9000 | lm loss: 2.5 | lr: 1e-4 |")
        if step % 3 == 0:
            lines.append(f"{stamp} saving checkpoint at iteration {step * 100} to /ckpt")
            lines.append(f"{stamp} successfully saved checkpoint from iteration {step * 100}")
    lines += ["Traceback (most recent call last):", "  File a.py", "ValueError: empty batch"]
    job = put_log(tmp_path, "\n".join(lines) + "\n")
    assert main(["diagnose", "run", "--job", str(job)]) == 0
    out = capsys.readouterr().out
    assert "next: Then restart from step 600, the last checkpoint." in out
    assert "files: 1 read, 0 not read" in out
    early = diagnose(job, at=parse_moment("2026-03-04T12:05:30Z"))
    assert early.diagnosis.restart == RestartPoint(300, is_saved=True)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (
            "(raylet) A worker died or was killed while executing a task by an unexpected system "
            "error. Worker IP address: 10.0.7.57 Worker port: 10046 Worker PID: 89513 Worker exit "
            "type: SYSTEM_ERROR",
            "On 10.0.7.57: check why process 89513 ended",
        ),
        ("srun: error: Node failure on node-7", "Replace node-7, then restart"),
    ],
)
def test_machine_of_a_lost_process_is_not_replaced(tmp_path: Path, line: str, step: str) -> None:
    job = put_log(tmp_path, f"{line}\n")
    assert next_steps(diagnose(job).diagnosis)[0].startswith(step)


@pytest.mark.parametrize("case", PAGES)
def test_page_fits_a_phone(
    shared_data: Path,
    cases: dict[str, dict[str, str]],
    case: str,
    require_program: Callable[[str, str], Path],
    tmp_path: Path,
    capsys: Any,
) -> None:
    at = cases[case]["at"] if case in cases else "2027-01-01T00:00:00Z"
    page = render_diagnosis_page(verdict(shared_data, case, at, capsys))
    assert "What to do next" in page
    opened = page.replace("<details>", "<details open>")
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe id="phone" style="width: {PHONE_WIDTH}px; height: 800px; border: 0"'
        f' srcdoc="{html.escape(opened)}"></iframe><output></output><script>onload = () => {{'
        "const root = document.getElementById('phone').contentDocument.documentElement;"
        "const sizes = `${root.scrollWidth} ${root.clientWidth}`;"
        "document.querySelector('output').textContent = sizes; };</script>"
    )
    browser = str(require_program("chromium", "chromium"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'p'}"]
    dump = [browser, *options, "--virtual-time-budget=5000", "--dump-dom", frame.as_uri()]
    shown = subprocess.run(dump, capture_output=True, text=True, check=True, timeout=120).stdout
    scroll, client = map(int, shown.split("<output>")[1].split("</output>")[0].split())
    assert 0 < scroll <= client <= PHONE_WIDTH
