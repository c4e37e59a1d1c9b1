"""Log knowledge base: the patterns of the package and the site's changes of them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_pattern import (
    Level,
    LogPattern,
    PatternError,
    PhaseMark,
    Role,
    Scope,
    compile_pattern,
)
from forewarn.pipelines.config.toml_tables import (
    SettingsError,
    StrictTable,
    describe_validation_error,
    read_toml,
)

__all__ = ["PatternTable", "load_patterns", "pattern_tables"]

_REQUIRED_KEYS = ("pattern", "role", "scope", "level", "says", "next")
Text = Annotated[str, Field(min_length=1, max_length=400)]
Lines = tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...]


class PatternTable(StrictTable):
    """A pattern, or the site's changes of one."""

    pattern: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    role: Role | None = None
    scope: Scope | None = None
    level: Level | None = None
    says: Text | None = None
    next: Text | None = None
    attempt: Annotated[bool, Field(strict=True)] = False
    by_kernel: Annotated[bool, Field(strict=True)] = False
    sees_all: Annotated[bool, Field(strict=True)] = False
    cancels: tuple[str, ...] = ()
    needs_repair: Annotated[bool, Field(strict=True)] = False
    phase: PhaseMark | None = None
    enabled: Annotated[bool, Field(strict=True)] = True
    examples: Lines = ()
    counterexamples: Lines = ()


class _KnowledgeTable(StrictTable):
    patterns: dict[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,60}$")], PatternTable] = (
        Field(default_factory=dict, max_length=1000)
    )


def load_patterns(overlays: Sequence[Path] = ()) -> LogMatcher:
    """Return the patterns of the package with the changes of site files; later files win.

    New patterns of a site precede those of the package, so that they win for the lines they match.

    Raises
    ------
    SettingsError
        If a file cannot be read, has an unknown key or an invalid value, contains an expression
        that is not valid in RE2, or contradicts its own examples or counterexamples.
    """
    return _changed_patterns(overlays) if overlays else _package_patterns()


@cache  # its expressions take a tenth of a second to compile
def _package_patterns() -> LogMatcher:
    return _changed_patterns(())


def _changed_patterns(overlays: Sequence[Path]) -> LogMatcher:
    tables = pattern_tables()
    for path in overlays:
        overlay = read_toml(path)
        changed = _validate_tables(overlay, str(path))
        tables = _merge_tables(tables, overlay.get("patterns", {}))
        _check_lines(_validate_tables({"patterns": tables}, str(path)), changed, str(path))
    knowledge = _validate_tables(
        {"patterns": tables}, str(overlays[-1]) if overlays else "knowledge base"
    )
    used = {name: table for name, table in knowledge.items() if table.enabled}
    try:
        return LogMatcher([_pattern(name, table) for name, table in used.items()])
    except PatternError as error:
        raise SettingsError(f"{overlays[-1]}: the patterns {error}.") from None


def pattern_tables() -> dict[str, Any]:
    """Return the tables of the package's file."""
    resource = files("forewarn.pipelines.diagnosis.parts") / "knowledge.toml"
    tables: dict[str, Any] = tomllib.loads(resource.read_text(encoding="utf-8"))["patterns"]
    return tables


def _validate_tables(values: Mapping[str, Any], name: str) -> dict[str, PatternTable]:
    try:
        return _KnowledgeTable.model_validate(values).patterns
    except ValidationError as error:
        text = describe_validation_error(error).replace(".[key]`", "`")
        text = text.replace("the example configuration", "the knowledge base")
        raise SettingsError(f"{name}: {text}.") from None


def _merge_tables(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables: new ones first, and keys of the overlay replace existing ones."""
    new = {name: table for name, table in overlay.items() if name not in base}
    return new | {name: {**table, **overlay.get(name, {})} for name, table in base.items()}


def _check_lines(
    tables: Mapping[str, PatternTable], changed: Mapping[str, PatternTable], name: str
) -> None:
    """Reject patterns that are incomplete or contradict their own examples."""
    for key in changed:
        table = tables[key]
        for part in _REQUIRED_KEYS:
            if getattr(table, part) is None:
                raise SettingsError(f"{name}: `patterns.{key}` has no `{part}`, expected one.")
        try:
            regular = compile_pattern(table.pattern or "")
        except PatternError as error:
            raise SettingsError(f"{name}: key `patterns.{key}.pattern`: {error}.") from None
        for part, expected in (("examples", True), ("counterexamples", False)):
            for line in getattr(table, part):
                if (regular.search(line.encode()) is not None) is not expected:
                    verb = "does not match" if expected else "matches"
                    raise SettingsError(
                        f"{name}: key `patterns.{key}.{part}`: the pattern {verb} {line[:100]!r}."
                    )


def _pattern(name: str, table: PatternTable) -> LogPattern:
    return LogPattern(
        id=name,
        expression=table.pattern or "",
        role=table.role or "advice",
        scope=table.scope or "application",
        level=table.level or "notice",
        says=table.says or "",
        next=table.next or "",
        attempt=table.attempt,
        by_kernel=table.by_kernel,
        sees_all=table.sees_all,
        cancels=table.cancels,
        needs_repair=table.needs_repair,
        phase=table.phase,
    )
