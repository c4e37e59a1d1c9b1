"""The shipped checks, and the files in which a site changes them and adds its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from forewarn.features.inspection.check_table import ChecksFile, CheckTable
from forewarn.features.inspection.nhc_files import parse_nhc_file
from forewarn.pipelines.config.toml_tables import (
    SettingsError,
    describe_validation_error,
    read_toml,
)
from forewarn.pipelines.inspection.host_measurements import MEASUREMENTS
from forewarn.pipelines.inspection.torch_measurements import MEASUREMENTS as TORCH_MEASUREMENTS
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.regular_files import require_regular

__all__ = ["SHIPPED_CHECKS", "load_checks", "load_nhc_checks", "select_checks"]

SHIPPED_CHECKS: Final = Path(__file__).with_name("checks.toml")


def load_checks(overlays: Sequence[Path] = ()) -> dict[str, CheckTable]:
    """Return the shipped checks with the changes of a site, by name.

    Parameters
    ----------
    overlays : sequence of Path
        TOML files of tables `[check.NAME]`. A key replaces that of an earlier file; `when = []`
        takes a check out of all sets.

    Raises
    ------
    SettingsError
        If a file cannot be read, a key is unknown, or a value is invalid.
    """
    tables: dict[str, dict[str, Any]] = {}
    checks: dict[str, CheckTable] = {}
    for path in (SHIPPED_CHECKS, *overlays):
        content = read_toml(path)
        named = content.get("check", {})
        if isinstance(named, dict):
            for name, table in named.items():
                if isinstance(table, dict):
                    named[name] = tables[name] = {**tables.get(name, {}), **table}
        try:
            checks |= ChecksFile.model_validate(content).check
        except ValidationError as error:
            raise SettingsError(f"{path}: {describe_validation_error(error)}.") from None
    for name, check in checks.items():
        if check.value.builtin not in (None, *MEASUREMENTS, *TORCH_MEASUREMENTS):
            known = ", ".join(sorted((*MEASUREMENTS, *TORCH_MEASUREMENTS)))
            raise SettingsError(
                f"check.{name}: `builtin` is {check.value.builtin!r}, expected one of {known}."
            )
    return checks


def load_nhc_checks(path: Path, machine: str) -> dict[str, CheckTable]:
    """Return the checks of a file of Node Health Check; a note lists lines that do not run.

    Raises
    ------
    SettingsError
        If the file cannot be read.
    """
    require_regular(path, SettingsError)
    try:
        result = parse_nhc_file(path.read_text(encoding="utf-8"), machine)
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not text in UTF-8.") from None
    for line in result.others:
        note(f"{path}: {line}: not understood, does not run")
    return result.checks


def select_checks(checks: dict[str, CheckTable], name: str) -> dict[str, CheckTable]:
    """Return the checks of a set; `full` is the set of all.

    Raises
    ------
    SettingsError
        If no check belongs to it.
    """
    if name == "full":
        return dict(checks)
    chosen = {key: check for key, check in checks.items() if name in check.when}
    if not chosen:
        known = sorted({occasion for check in checks.values() for occasion in check.when})
        raise SettingsError(f"--set: found {name!r}, expected one of full, {', '.join(known)}.")
    return chosen
