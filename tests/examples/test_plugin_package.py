"""The example package, installed for real, and its README followed as written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from uv import find_uv_bin

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "hist_gradient_boosting"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
PREDICTOR = "predictor.json"


def blocks(language: str) -> list[str]:
    """Return the code blocks of the README."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)
    return [re.sub("^ {4}", "", block, flags=re.MULTILINE) for block in found]


def commands(*verbs: str) -> list[str]:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [line for line in lines if line.split()[:2] in [["forewarn", verb] for verb in verbs]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Install a copy of the package into a folder of its own; return the environment to use it."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "hist_gradient_boosting"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg"))
    install = [find_uv_bin(), "pip", "install", "--quiet", "--offline"]
    install += ["--no-deps", "--no-build-isolation", "--python", sys.executable]
    install += ["--target", str(folder / "site"), str(source)]
    subprocess.run(install, check=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(folder / "site"), "PATH": path}


@pytest.fixture(scope="module")
def site(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Follow the README up to the daily list."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "my.toml").write_text(blocks("toml")[0])
    for command in commands("simulate", "config", "train", "score"):
        subprocess.run(command.split(), check=True, cwd=folder, env=environment)
    return folder


def score(site: Path, environment: Mapping[str, str], *options: str) -> list[str]:
    """Score again; return the lines of the error."""
    (command,) = commands("score")
    words = [*command.replace("--out lists", "--out again").split(), *options]
    run = subprocess.run(words, cwd=site, env=environment, capture_output=True, text=True)
    assert run.returncode == 2
    assert not (site / "again").exists()
    return [line for line in run.stderr.splitlines() if "error" in line]


def test_list_is_made_as_written(site: Path) -> None:
    saved = json.loads((site / "model" / PREDICTOR).read_text())
    assert saved["packages"] == {"hist_gbdt": "forewarn-hist-gradient-boosting 0.1.0"}
    assert saved["facts"]["hyperparameters"] == {"hist_gbdt": {"max_iter": 100}}
    assert {"hist_gbdt", "gbdt", "cascade_first"} <= set(saved["models"])
    assert (site / "lists" / "date=2025-01-24" / "at_risk.csv").exists()


def test_package_meets_contract(environment: Mapping[str, str]) -> None:
    tests = Path(environment["PYTHONPATH"]).parent / "hist_gradient_boosting" / "tests"
    pytest_options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    subprocess.run([sys.executable, *pytest_options], check=True, env=environment)


def test_other_version_is_refused(
    site: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    installed = Path(environment["PYTHONPATH"])
    newer = shutil.copytree(installed, tmp_path / "site")
    (metadata,) = newer.glob("*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("Version: 0.1.0", "Version: 0.2.0"))
    (line,) = score(site, {**environment, "PYTHONPATH": str(newer)})
    assert "trained by forewarn-hist-gradient-boosting 0.1.0, found" in line
    assert "forewarn-hist-gradient-boosting 0.2.0" in line


def test_missing_package_is_refused(site: Path, environment: Mapping[str, str]) -> None:
    without = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    (line,) = score(site, without)
    assert "model `hist_gbdt` needs the package forewarn-hist-gradient-boosting 0.1.0" in line


def test_package_not_allowed_is_refused(
    site: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text("")
    (line,) = score(site, environment, "--config", str(tmp_path / "other.toml"))
    assert "`hist_gbdt` in `models.plugins` of the configuration" in line


def test_wrong_hyperparameter_is_refused(site: Path, environment: Mapping[str, str]) -> None:
    wrong = site / "wrong.toml"
    wrong.write_text((site / "my.toml").read_text().replace("max_iter = 100", "trees = 100"))
    (command,) = commands("train")
    words = command.replace("my.toml", "wrong.toml").replace("--model model", "--model other")
    run = subprocess.run(words.split(), cwd=site, env=environment, capture_output=True, text=True)
    assert run.returncode == 2
    assert "`models.hist_gbdt`: unknown key `trees`, expected one of max_iter" in run.stderr
    assert not (site / "other").exists()
