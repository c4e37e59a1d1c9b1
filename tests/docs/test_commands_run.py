"""The commands of README and of the pages run as they stand, in a folder of a simulated fleet."""

from __future__ import annotations

import datetime as dt
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from tests.docs.test_quoted_output import PAGES, shell_commands

from forewarn.pipelines.cli.main import main

CONFIG = """
[training]
select_by = "gbdt"
lengths = ["15d"]
strategy = "sliding"
tree_negatives = 3.0
[ensembles]
parallel = ["gbdt"]
cascade = [["gbdt", 0.02]]
linear = 0.0
"""
DONE: set[str] = set()  # a command that several pages show runs once
LAST_DAY = dt.date(2025, 3, 2)  # the pages score 2025-03-01 and 2025-03-02
SIMULATED_DAYS = (LAST_DAY - dt.date(2025, 1, 1)).days
# Commands that need more than a folder, by their first words. Their own tests run them.
NOT_RUN = {
    "start --prometheus": "a server: tests/pipelines/cli/test_start.py",
    "ingest --raw": "files of hosts: tests/pipelines/ingest/test_host_file_ingest.py",
    "detect": "metrics of tasks, minutes: tests/pipelines/detection",
    "diagnose watch": "runs until it is stopped: tests/pipelines/diagnosis",
    "diagnose collect": "a running job: tests/gloo_jobs",
    "backtest": "minutes: tests/pipelines/backtest",
    "tune": "minutes: tests/pipelines/training/test_tuning.py",
    "collect": "a service: tests/pipelines/collector",
    "agent": "a host: tests/pipelines/agent",
    "ready": "the file of an agent: tests/pipelines/cli/test_ready.py",
    "blocks": "a job: tests/pipelines/incidents/loop/test_job_blocks.py",
    "console": "runs until it is stopped: tests/pipelines/console",
    "respond --watch": "runs until it is stopped: tests/pipelines/incidents",
    "respond --slurm-history --config": "Slurm: tests/pipelines/incidents",
    "respond --slurm-history": "Slurm: tests/pipelines/incidents",
    "messages test": "a receiver: tests/pipelines/incidents/messages",
    "inspect": "machines, minutes: tests/pipelines/inspection",
    "lost": "runs of a scheduler: tests/pipelines/recovery",
    "advise": "a file of a job: tests/pipelines/recovery",
    "launch": "hosts: tests/gloo_jobs/test_launched_job.py",
    "models": "registered models: tests/pipelines/cli/test_models.py",
    "retrain": "a registry: tests/pipelines/training",
    "up": "runs until it is stopped: tests/pipelines/sandbox",
    "simulate incidents": "a minute: tests/pipelines/sandbox",
}
# Commands whose arguments exist only at a site: a number of an incident, a file of its own.
OF_A_SITE = (
    "17",
    "events.txt",
    "results.csv",
    "records-copy",
    "theirs",
    "models:/",
    "incidents.csv",
)
SMALLER = {"400": "6", "500": "6", "45": "3"}  # GPUs and days


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Change to a folder with what the pages take for granted."""
    folder = tmp_path_factory.mktemp("site")
    before = Path.cwd()
    os.chdir(folder)
    days = str(SIMULATED_DAYS)
    assert main(["simulate", "fleet", "--out", "fleet", "--gpus", "120", "--days", days]) == 0
    Path("records").symlink_to("fleet/records")
    failures = pd.read_csv("fleet/truth.csv")
    failures.to_parquet("records/failures.parquet")
    failures.head(3).to_csv("tickets.csv", columns=["gpu_serial", "failed_at"], index=False)
    for name in ("my.toml", "forewarn.toml"):
        Path(name).write_text(CONFIG)
    Path("respond.toml").write_text('[site]\nrecords = "fleet/records"\nlists = "lists"\n')
    Path("site.toml").write_text("")
    list_day = ["--at", LAST_DAY.isoformat(), "--out", "lists"]
    assert main(["score", "--records", "records", "--model", "builtin:rules", *list_day]) == 0
    assert main(["simulate", "job", "--out", "tmp-job", "--ranks", "4", "--fault", "loader"]) == 0
    yield folder
    os.chdir(before)


def not_run(words: list[str]) -> bool:
    line = shlex.join(words)
    return any(line.startswith(start) for start in NOT_RUN) or any(
        word == name or word.startswith("models:/") for word in words for name in OF_A_SITE
    )


def adapted(words: list[str]) -> list[str]:
    """Return the words for this folder: now is the last simulated day, fleets are small."""
    words = [LAST_DAY.isoformat() if word == "now" else word for word in words]
    if words[:2] == ["simulate", "fleet"]:
        return [*words[:2], *(SMALLER.get(w, w).replace("fleet", "small") for w in words[2:])]
    if words[0] == "avoid":
        words = [*words, "--at", LAST_DAY.isoformat()]
    return [word.replace("/tmp/", "tmp-") for word in words]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_the_page_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = []
    for words in shell_commands(page):
        if not_run(words) or (line := shlex.join(adapted(words))) in DONE:
            continue
        DONE.add(line)
        if "--new-ledger" in words:
            Path("ledger.db").unlink(missing_ok=True)  # it was lost
        if words[:2] == ["simulate", "job"]:
            shutil.rmtree("tmp-job")  # the fixture's
        code = main(adapted(words))
        if code != 0:
            failed.append(f"forewarn {line}: exit {code}: {capsys.readouterr().err[-300:]}")
    assert not failed, "\n".join(failed)


def test_only_commands_of_pages_are_left_out() -> None:
    lines = [shlex.join(words) for page in PAGES for words in shell_commands(page)]
    unused = [start for start in NOT_RUN if not any(line.startswith(start) for line in lines)]
    assert not unused
    assert sum(not not_run(words) for page in PAGES for words in shell_commands(page)) > 40
