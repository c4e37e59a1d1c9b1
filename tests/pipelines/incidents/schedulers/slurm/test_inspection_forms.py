"""Forms of `forewarn inspect forms` in a real Slurm: a prolog and a health program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.inspection.inspection_forms import FORMS

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
