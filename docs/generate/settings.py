"""The reference of the configuration.

Types and defaults come from the classes of the settings, meanings from the comments of the example
files: a comment above a key, or above its table, says what it means.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from docs.generate.markdown import escaped, table
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from forewarn.features.time_units import DAY, HOUR, MINUTE
from forewarn.models.prediction.hyperparameters import hyperparameters_of
from forewarn.models.prediction.model_catalogue import BUILTIN
from forewarn.pipelines.config.agent_policy import AgentPolicy
from forewarn.pipelines.config.prediction_tables import ModelsTable
from forewarn.pipelines.config.settings import Settings, parse_duration

__all__ = ["Comments", "configuration_page", "documented_keys", "read_comments"]

ROOT = Path(__file__).parents[2]
FILES: Mapping[str, tuple[type[BaseModel], str]] = {
    "forewarn.example.toml": (
        Settings,
        "Pass the file with `--config`. Every key has a default; a file holds only what differs.",
    ),
    "deploy/agent.toml": (
        AgentPolicy,
        "The file of `forewarn agent --policy` and `forewarn diagnose collect --policy`.",
    ),
}
HEAD = """# Configuration

Every key of the two configuration files with its type, default and meaning, for people who set up
forewarn at a site. An unknown key or a wrong value ends a command with exit code 2 and one line
that names the key. Durations are written as `"10min"`, `"4h"` or `"3d"`. Secrets are never in a
file; they come from the environment ([formats](formats.md#2-configuration)).

"""
DURATIONS = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", 10**9))
Comments = dict[tuple[str, str], str]


def configuration_page() -> str:
    """Return the page of all keys as Markdown."""
    sections = [HEAD]
    for name, (model, text) in FILES.items():
        comments = read_comments((ROOT / name).read_text(encoding="utf-8"))
        sections.append(f"## {Path(name).name}\n\n{text}\n")
        sections += [_table_section(part, comments) for part in _tables(model)]
    return "\n".join(sections)


# --- meanings -------------------------------------------------------------------------------------


def read_comments(text: str) -> Comments:
    r"""Return (table, key) -> meaning; the key of a table's own meaning is empty.

    A table or key that is commented out counts, too.

    >>> read_comments("# Spans.\n[windows]\n# In records.\nlength = 18\n# Apart.\n# step = 3")
    {('windows', ''): 'Spans.', ('windows', 'length'): 'In records.', ('windows', 'step'): 'Apart.'}
    """
    meanings: Comments = {}
    where: str = ""
    above: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            above = []
        elif header := re.match(r"(?:# )?\[\[?([\w.]+)\]\]?", line):
            where = header[1]
            meanings[where, ""] = " ".join(above)
            above = []
        elif key := re.match(r"(?:# )?(\w+) = ", line):
            meanings[where, key[1]] = " ".join(above)
            above = []
        elif line.startswith("#"):
            above.append(line.lstrip("# "))
    return meanings


def documented_keys(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield each (table, key) of a model of settings."""
    for part in _tables(model):
        for name in part.fields:
            yield part.name, name


# --- types and defaults ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a TOML file: its name, and its keys that are no tables themselves."""

    name: str
    fields: Mapping[str, FieldInfo]
    defaults: BaseModel | None  # where a table's defaults are not those of its fields


def _tables(
    model: type[BaseModel], name: str = "", defaults: BaseModel | None = None
) -> Iterator[_Table]:
    """Yield a table and all tables in it, in the order of the fields."""
    inner = {key: _inner_table(field, key, name) for key, field in model.model_fields.items()}
    values = {
        field.alias or key: field
        for key, field in model.model_fields.items()
        if inner[key] is None or get_origin(field.annotation) is tuple
    }
    if values:
        yield _Table(name, values, defaults)
    if model is ModelsTable:
        yield from _hyperparameter_tables(name)
    for key, table_model in inner.items():
        if table_model is not None:
            value = model.model_fields[key].default
            yield from _tables(*table_model, value if isinstance(value, BaseModel) else None)


def _hyperparameter_tables(name: str) -> Iterator[_Table]:
    """Yield a table of each kind of model; all networks have those of the CNN."""
    for kind in ("gbdt", "linear", "cnn"):
        declared = hyperparameters_of(BUILTIN.class_of(kind))
        fields = {
            key: FieldInfo(annotation=item.kind, default=item.default)
            for key, item in declared.items()
        }
        yield _Table(f"{name}.{kind}", fields, None)


def _inner_table(field: FieldInfo, key: str, above: str) -> tuple[type[BaseModel], str] | None:
    """Return the model and the name of the table that a field is; None for a plain value."""
    name = f"{above}.{key}" if above else key
    kind = field.annotation
    if get_origin(kind) is dict:
        kind, name = get_args(kind)[1], f"{name}.NAME"
    elif get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    return (kind, name) if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _table_section(part: _Table, comments: Comments) -> str:
    meaning = comments.get((part.name, ""), "")
    rows = [
        (
            f"`{name}`",
            _type_words(field.annotation, field.metadata),
            _default(field, getattr(part.defaults, name, field.default)),
            escaped(comments.get((part.name, name), "")),
        )
        for name, field in part.fields.items()
    ]
    title = f"### `[{part.name}]`" if part.name else "### Top level"
    return f"{title}\n\n{escaped(meaning)}\n\n{table(('key', 'type', 'default', 'meaning'), rows)}"


PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}


def _type_words(kind: Any, metadata: list[Any]) -> str:
    """Return a type in words, with its bounds."""
    if any(isinstance(entry, BeforeValidator) for entry in metadata):
        return "duration"
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _type_words(inner, [*metadata, *_constraints(more)])
    if get_origin(kind) is Literal:
        return ", ".join(f'`"{value}"`' for value in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        return f"{_type_words(options[0], metadata)}, optional"
    if get_origin(kind) is dict:
        return "table of lists of text"
    if get_origin(kind) is tuple:
        first, *others = get_args(kind)
        if others == [...]:
            return f"list of {_type_words(first, [])}"
        return f"\\[{', '.join(_type_words(entry, []) for entry in (first, *others))}\\]"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "tables, see below"
    return f"{PLAIN.get(kind, str(kind))}{_bounds(metadata)}"


def _constraints(metadata: list[Any]) -> list[Any]:
    """Return the constraints in what `Annotated` holds, those of a `Field` among them."""
    found: list[Any] = []
    for entry in metadata:
        found += entry.metadata if isinstance(entry, FieldInfo) else [entry]
    return found


def _bounds(metadata: list[Any]) -> str:
    """Return bounds in words; very large ones only keep a number from overflowing."""
    words = []
    for entry in metadata:
        if isinstance(entry, Gt):
            words.append(f"above {entry.gt}")
        elif isinstance(entry, Ge):
            words.append(f"at least {entry.ge}")
        elif isinstance(entry, Le) and float(str(entry.le)) < 10**6:
            words.append(f"at most {entry.le}")
        elif isinstance(entry, Lt) and float(str(entry.lt)) < 10**6:
            words.append(f"below {entry.lt}")
        elif isinstance(entry, MinLen) and entry.min_length == 1:
            words.append("not empty")
    return f" ({', '.join(words)})" if words else ""


def _default(field: FieldInfo, value: Any) -> str:
    if field.default_factory is not None:
        return "" if field.annotation is not str else "the host's name"
    if field.is_required():
        return "required"
    if value is None:
        return "none"
    return f"`{_toml(value, _is_duration(field.annotation, field.metadata))}`"


def _is_duration(kind: Any, metadata: list[Any]) -> bool:
    return "duration" in _type_words(kind, metadata)


def _toml(value: Any, duration: bool) -> str:
    """Write a default as TOML has it."""
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(entry, duration) for entry in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if duration:
        unit, length = next(pair for pair in DURATIONS if value % pair[1] == 0)
        assert parse_duration(f"{value // length}{unit}") == value
        return f'"{value // length}{unit}"'
    return f'"{value}"' if isinstance(value, str | Path) else str(value)
