"""Forms of `forewarn inspect forms` in a real Slurm: prolog, health program, and a job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.inspection.inspection_forms import FORMS
from forewarn.pipelines.inspection.result_files import read_results

NODE, DRAINED = "node-00004", "node-00005"
FOREWARN = """#!/bin/sh
echo "$@" >> {folder}/calls
exec {python} -c 'import sys; from forewarn.pipelines.cli.entry import main; sys.exit(main())' "$@"
"""


@pytest.fixture
def configure(slurm: Any, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Return a function that adds lines to slurm.conf; the configuration is restored."""
    before = slurm.conf.read_text()
    program = tmp_path / "forewarn"
    program.write_text(FOREWARN.format(folder=tmp_path, python=sys.executable))
    program.chmod(0o755)

    def add(name: str, *lines: str) -> Path:
        text = FORMS[name].replace("/opt/forewarn/bin", str(tmp_path))
        script = tmp_path / name
        script.write_text(text.replace("/var/lib/forewarn/inspections", str(tmp_path / "results")))
        script.chmod(0o755)
        slurm.conf.write_text(before + "".join(f"{line}\n" for line in lines).format(script))
        assert slurm.call("scontrol", "reconfigure") == ""
        return tmp_path

    yield add
    slurm.call("scancel", "-u", slurm.user)
    slurm.until(lambda: slurm.call("squeue", "-h") == "", "jobs")
    slurm.conf.write_text(before)
    slurm.call("scontrol", "reconfigure")


def test_prolog_inspects_and_lets_the_job_start(slurm: Any, configure: Callable[..., Path]) -> None:
    folder = configure("slurm-prolog", "Prolog={}", "PrologFlags=Alloc")
    slurm.submit("-w", NODE)
    calls = folder / "calls"

    def inspects() -> bool:
        return calls.exists() and "inspect run --set quick" in calls.read_text()

    slurm.until(inspects, "the prolog inspects")
    assert f"ready --machine {NODE} --for prolog" in calls.read_text()
    assert "DRAIN" not in slurm.line(NODE)


def test_health_program_runs_on_all_nodes_and_drains_none(
    slurm: Any, configure: Callable[..., Path]
) -> None:
    slurm.call("scontrol", "update", f"nodename={DRAINED}", "state=drain", "reason=by hand")
    folder = configure("slurm-health", "HealthCheckProgram={}", "HealthCheckInterval=5")
    slurm.until(lambda: (folder / "calls").exists(), "Slurm runs the health program")
    assert "by hand" in slurm.line(DRAINED)
    assert "DRAIN" not in slurm.line(NODE)
    slurm.call("scontrol", "update", f"nodename={DRAINED}", "state=resume")


CHECKS = """
[check.short]
command = ["true"]
when = ["two"]
[check.waits]
command = ["{folder}/waits"]
timeout = "10min"
when = ["two"]
"""
WAITS = """#!/bin/sh
echo waits >> {folder}/started
while [ ! -e {folder}/go_on ]; do sleep 0.1; done
"""


@pytest.fixture
def preemption(slurm: Any) -> Iterator[None]:
    """Configure what the form asks for; Slurm reads it at its start only."""
    before = slurm.conf.read_text()
    asked = [line[4:] for line in FORMS["slurm-job"].splitlines() if line.startswith("#   P")]

    def restart(text: str) -> None:
        slurm.stop_controller()
        slurm.conf.write_text(text)
        slurm.start_controller()
        slurm.call("scontrol", "reconfigure")

    restart(before + "".join(f"{line}\n" for line in asked))
    yield
    slurm.call("scancel", "-u", slurm.user)
    slurm.until(lambda: slurm.call("squeue", "-h") == "", "jobs")
    restart(before)


@pytest.mark.usefixtures("preemption")
def test_inspection_job_yields_to_a_job_and_goes_on_after_it(slurm: Any, tmp_path: Path) -> None:
    folder = tmp_path
    for name, text in (("forewarn", FOREWARN), ("waits", WAITS)):
        (folder / name).write_text(text.format(folder=folder, python=sys.executable))
        (folder / name).chmod(0o755)
    (folder / "checks.toml").write_text(CHECKS.format(folder=folder))
    form = FORMS["slurm-job"].replace("/opt/forewarn/bin", str(folder))
    form = form.replace("--set weekly", f"--set two --checks {folder}/checks.toml")
    script = folder / "inspection.sh"
    script.write_text(form.replace("/shared/forewarn/inspections", str(folder / "results")))

    def runs(what: str, number: int) -> bool:
        path = folder / what
        return path.exists() and len(path.read_text().splitlines()) == number

    inspection = slurm.call(
        *("sbatch", "--parsable", f"--nodelist={NODE}", "-o", str(folder / "out"), str(script))
    ).strip()
    slurm.until(lambda: runs("started", 1), "the inspection")
    job = slurm.submit("-w", NODE, "--exclusive")  # returns when it runs
    assert slurm.jobs()[inspection] == "PD"

    slurm.update(NODE, "state=drain", "reason=by hand")
    slurm.call("scancel", job)
    slurm.until(lambda: job not in slurm.jobs(), "the job ends")
    # Slurm holds a requeued job for two minutes, until its old credential has expired.
    slurm.call("scontrol", "update", f"jobid={inspection}", "StartTime=now")
    (folder / "go_on").touch()
    other = slurm.submit("-w", DRAINED)  # a round of the scheduler
    assert slurm.jobs() == {inspection: "PD", other: "R"}
    assert "by hand" in slurm.line(NODE)

    slurm.update(NODE, "state=resume")
    slurm.until(lambda: inspection not in slurm.jobs(), "the inspection ends")
    assert runs("calls", 2)
    assert runs("started", 2)
    rows = read_results(folder / "results").to_pylist()
    assert {row["check"]: row["status"] for row in rows} == {"short": "ok", "waits": "ok"}
    assert {row["machine"] for row in rows} == {NODE}
    assert len({row["run"] for row in rows}) == 1
