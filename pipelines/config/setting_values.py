"""The keys of a configuration with their values: those that are set, and the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator

from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.config.toml_tables import parse_duration

__all__ = ["all_values", "default_values", "given_values"]

_MILLISECOND = 10**6
_UNITS = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND), ("ms", _MILLISECOND))


def given_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a TOML file by `table.key`.

    Examples
    --------
    >>> given_values({"windows": {"length": 18}, "list": {"share": 0.01}})
    {'windows.length': 18, 'list.share': 0.01}
    """
    return dict(_flattened(values, ""))


def _flattened(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key != "columns":
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def all_values(settings: Settings) -> dict[str, Any]:
    """Return the values of all keys by `table.key`, as a TOML file writes them.

    Keys without a value are left out.
    """
    return dict(_defaults(settings, "", set()))


def default_values(settings: Settings) -> dict[str, Any]:
    """Return the values of all keys that were not set by `table.key`, as a TOML file writes them.

    Keys without a default are left out.
    """
    return dict(_defaults(settings, "", settings.model_fields_set))


def _defaults(table: BaseModel, prefix: str, keys_set: set[str]) -> Iterator[tuple[str, Any]]:
    plain = table.model_dump(mode="json")
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if isinstance(value, BaseModel):
            inner = value.model_fields_set if name in keys_set else set()
            yield from _defaults(value, f"{prefix}{name}.", inner)
        elif name not in keys_set and value is not None:
            is_duration = any(map(_parses_duration, (*field.metadata, *get_args(field.annotation))))
            yield f"{prefix}{name}", _durations(value) if is_duration else plain[name]


def _parses_duration(mark: object) -> bool:
    """Tell whether a part of an annotation is that of a duration."""
    validators = (mark, *getattr(mark, "__metadata__", ()))
    return any(isinstance(v, BeforeValidator) and v.func is parse_duration for v in validators)


def _durations(value: int | tuple[int, ...]) -> str | list[str]:
    """Return durations as text.

    Examples
    --------
    >>> _durations((86_400 * 10**9, 5400 * 10**9))
    ['1d', '90min']
    """
    if isinstance(value, tuple):
        return [_duration(item) for item in value]
    return _duration(value)


def _duration(nanoseconds: int) -> str:
    name, unit = next(u for u in _UNITS if nanoseconds % u[1] == 0 or u[1] == _MILLISECOND)
    return f"{nanoseconds / unit:g}{name}"
