"""Reads TOML tables: checks every key, parses durations, and describes errors in one line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from forewarn.features.duration import parse_duration
from forewarn.features.errors import InputError

__all__ = [
    "ColumnName",
    "Count",
    "Duration",
    "Positive",
    "Seed",
    "SettingsError",
    "Share",
    "StrictTable",
    "check_distinct",
    "describe_validation_error",
    "parse_duration",
    "read_toml",
]

_MAX_FILE_BYTES = 65_536  # the parser is quadratic in the depth of a key


class SettingsError(InputError):
    """Invalid configuration; the message names file, key, found and expected values."""


class StrictTable(BaseModel):
    """A table in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Share = Annotated[float, Field(gt=0.0, le=1.0, strict=True)]
Positive = Annotated[float, Field(gt=0.0, strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=10**9, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
ColumnName = Annotated[str, Field(min_length=1)]
Duration = Annotated[int, BeforeValidator(parse_duration)]


def check_distinct(key: str, columns: Mapping[str, str]) -> None:
    """Reject a column of the data that is mapped twice.

    Raises
    ------
    ValueError
        If it is.
    """
    theirs = list(columns.values())
    twice = next((name for name in theirs if theirs.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"`{key}` maps `{twice}` twice, expected each column once")


def describe_validation_error(error: ValidationError) -> str:
    """Return in one line which key is wrong, what was found and what is expected."""
    problem = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(str(part) for part in problem["loc"])
    value = _truncate(problem["input"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key `{key}` (found {value}), expected a key of the example configuration"
    text: str = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if problem["type"] == "value_error" and not text.startswith("expected"):
        return text
    return f"key `{key}`: found {value}, expected {text.removeprefix('expected ')}"


def _truncate(value: object) -> str:
    """Return a value as text, truncated to fit into a line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits or brackets
        return "something very long"
    return text if len(text) < 60 else text[:57] + "..."


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file.

    Raises
    ------
    SettingsError
        If it cannot be read or parsed.
    """
    try:
        if path.exists() and not path.is_file():  # opening a FIFO would block forever
            raise SettingsError(f"{path}: cannot be read (not a regular file).")
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise SettingsError(
                f"{path}: has over {_MAX_FILE_BYTES} bytes, expected a configuration."
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}).") from None
    except RecursionError:
        raise SettingsError(f"{path}: is nested too deeply, expected tables of keys.") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number with thousands of digits
        if isinstance(error, SettingsError):
            raise
        detail = str(error).splitlines()[0][:200]
        raise SettingsError(f"{path}: is not a TOML file ({detail}).") from None
