from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]


def module_names() -> list[str]:
    names = []
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT / folder).with_suffix("").parts
            names.append(".".join((package, *(part for part in inside if part != "__init__"))))
    return names


def pins() -> dict[str, list[str]]:
    """Return the entries of the lock by name; one entry is a requirement with its hashes."""
    entries: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=[a-z0-9])", (ROOT / "requirements.lock").read_text()):
        if not entry.startswith("#"):
            entries.setdefault(entry.split("==")[0], []).append(entry)
    return entries


def declared() -> list[Requirement]:
    project = PROJECT["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    requirements = map(Requirement, dict.fromkeys(lines))
    return [requirement for requirement in requirements if requirement.name != "forewarn"]


@pytest.mark.parametrize("name", module_names())
def test_docstring_examples(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert result.failed == 0, capsys.readouterr().out


def test_no_module_uses_bare_folder_name() -> None:
    for name in module_names():
        importlib.import_module(name)
    bare = set(FOLDERS.values())
    assert len(bare) >= 5
    assert not {name.split(".")[0] for name in sys.modules} & bare


def test_every_code_folder_is_listed_package() -> None:
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    found = {
        ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert found == listed


@pytest.mark.parametrize(("package", "folder"), FOLDERS.items())
def test_type_checkers_find_each_package(package: str, folder: str) -> None:
    link = ROOT / "typings" / Path(*package.split("."))
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == (ROOT / folder).resolve()
    assert (link / "py.typed").is_file()


def test_lock_holds_no_download_address() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_locked_entries_have_version_and_hashes() -> None:
    entries = [entry for versions in pins().values() for entry in versions]
    assert len(entries) > 50
    pattern = re.compile(r"[a-z0-9-]+==[\w.!+]+( ; [^\n]+)? \\\n    --hash=sha256:[0-9a-f]{64}")
    assert [entry for entry in entries if not pattern.match(entry)] == []


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_lock_satisfies_declared_requirements(requirement: Requirement) -> None:
    entries = pins()[canonicalize_name(requirement.name)]
    versions = [re.split(r"[ \\]", entry.split("==")[1])[0] for entry in entries]
    assert all(requirement.specifier.contains(version) for version in versions), versions


def test_command_works_from_any_folder(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("forewarn")
    run = subprocess.run([command, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "backtest" in run.stdout


@pytest.mark.parametrize(
    ("required", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_absent_program_skips_or_fails(
    required: str,
    outcome: type[BaseException],
    require_program: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOREWARN_REQUIRE_SYSTEM", required)
    with pytest.raises(outcome, match="apt-get install some-package"):
        require_program("no-such-command", "some-package")
