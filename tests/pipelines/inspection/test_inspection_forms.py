"""Forms for schedulers: each is valid in its language, and no prolog fails because of us."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.inspection.inspection_forms import FORMS

SCRIPTS = [name for name in FORMS if name.startswith("slurm-")]


@pytest.mark.parametrize("name", FORMS)
def test_form_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "forms", name]) == 0
    assert capsys.readouterr().out == FORMS[name]


@pytest.mark.parametrize("name", ["kubernetes-job", "kubernetes-daemonset"])
def test_manifest_is_valid_yaml(name: str) -> None:
    kinds = [document["kind"] for document in yaml.safe_load_all(FORMS[name])]
    assert kinds[-1] in ("Job", "DaemonSet")


def test_node_condition_is_valid_json() -> None:
    content = json.loads(FORMS["node-condition"])
    condition, rule = content["conditions"][0], content["rules"][0]
    assert condition["type"] == rule["condition"]


def run(name: str, folder: Path, forewarn: str) -> tuple[int, str]:
    """Run a script with a stub of forewarn that logs its words."""
    for program, body in (("forewarn", forewarn), ("logger", "cat > /dev/null")):
        stub = folder / program
        stub.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{body}\n')
        stub.chmod(0o755)
    script = folder / name
    script.write_text(FORMS[name].replace("/opt/forewarn/bin", str(folder)))
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(["sh", str(script)], env=environment, check=False)
    calls = folder / "calls"
    return done.returncode, calls.read_text() if calls.exists() else ""


@pytest.mark.parametrize("name", ["slurm-health", "slurm-prolog", "slurm-epilog"])
def test_failed_or_broken_inspection_does_not_fail_the_script(name: str, tmp_path: Path) -> None:
    code, calls = run(name, tmp_path, '[ "$1" = ready ] || exit 2')
    assert code == 0
    assert "inspect run --set" in calls


def test_prolog_fails_for_damage_that_the_agent_has_reported(tmp_path: Path) -> None:
    code, calls = run("slurm-prolog", tmp_path, '[ "$1" != ready ]')
    assert code == 1
    assert "inspect run" not in calls


def test_prolog_that_is_too_slow_lets_the_job_start(tmp_path: Path) -> None:
    code, calls = run("slurm-prolog", tmp_path, '[ "$1" != ready ] || sleep 9')
    assert code == 0
    assert "inspect run" in calls


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_parses(name: str) -> None:
    subprocess.run(["sh", "-n"], input=FORMS[name].encode(), check=True)
