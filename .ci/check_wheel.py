"""Check an installed wheel next to foreign packages `models` and `features`; run by .ci/run.

Arguments: the source folder, the wheel file. It runs in an environment in which the wheel is
installed and a foreign `models` and `features` can be imported.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
import zipfile
from pathlib import Path


def packages(source: Path) -> dict[str, Path]:
    """Return the folder of every top-level package in pyproject.toml."""
    settings = tomllib.loads((source / "pyproject.toml").read_text())["tool"]["setuptools"]
    return {name: source / folder for name, folder in settings["package-dir"].items()}


def expected_files(source: Path) -> set[str]:
    """Return the required contents of the wheel: code, pages and type markers of every package."""
    return {
        f"{name.replace('.', '/')}/{path.relative_to(folder).as_posix()}"
        for name, folder in packages(source).items()
        for path in folder.rglob("*")
        if path.suffix in {".py", ".html"} or path.name == "py.typed"
    }


def check_contents(source: Path, wheel: Path) -> None:
    """Fail if a file is missing from the wheel, or if it contains a name other than `forewarn`."""
    names = set(zipfile.ZipFile(wheel).namelist())
    if missing := expected_files(source) - names:
        sys.exit(f"missing from {wheel.name}: {sorted(missing)}")
    tops = {name.split("/")[0] for name in names}
    if strangers := {top for top in tops if top != "forewarn" and not top.endswith(".dist-info")}:
        sys.exit(f"{wheel.name} installs more than `forewarn`: {sorted(strangers)}")


def check_imports(source: Path) -> None:
    """Fail unless our packages come from the wheel and foreign ones stay foreign."""
    foreign = [importlib.import_module("models")]
    for name, folder in packages(source).items():
        where = Path(importlib.import_module(name).__file__ or "")
        if not where.is_relative_to(sys.prefix) or where.is_relative_to(folder):
            sys.exit(f"{name} comes from {where}, expected it from the wheel under {sys.prefix}")
    foreign.append(importlib.import_module("features"))
    if stolen := [module.__name__ for module in foreign if module.__dict__.get("OWNER") is None]:
        sys.exit(f"the wheel hides the foreign package: {stolen}")


if __name__ == "__main__":
    check_contents(Path(sys.argv[1]), Path(sys.argv[2]))
    check_imports(Path(sys.argv[1]))
