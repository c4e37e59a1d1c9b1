"""Lines of files of verdicts: one JSON object per line, in a file that may be being written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from forewarn.features.errors import InputError
from forewarn.pipelines.runtime.progress import note

__all__ = ["VerdictsError", "parse_verdict_lines"]

Item = TypeVar("Item")
_MAX_BYTES_READ: Final = 16 * 2**20  # from the end of the file: about ten thousand verdicts


class VerdictsError(InputError):
    """A verdicts file that cannot be used."""


def parse_verdict_lines(
    path: Path, parse: Callable[[dict[str, Any]], Item], command: str
) -> list[Item]:
    """Parse the complete lines at the end of a file; invalid ones are skipped with one note.

    Parameters
    ----------
    path : Path
        A missing file has no verdicts.
    parse : callable
        Takes the object of a line. It may raise KeyError, TypeError, ValueError or AttributeError.
    command : str
        Command that writes such lines, for messages.

    Raises
    ------
    VerdictsError
        If the file cannot be read, or none of its lines is a verdict.
    """
    lines = _last_lines(path)
    items, bad = list[Item](), 0
    for line in lines:
        try:
            items.append(parse(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            bad += 1
    if bad == len(lines) > 0:
        raise VerdictsError(f"{path}: contains no verdict, expected lines of `{command}`.")
    if bad:
        note(f"{path}: {bad} of {len(lines)} lines skipped, not verdicts")
    return items


def _last_lines(path: Path) -> list[bytes]:
    try:
        if path.exists() and not path.is_file():
            raise VerdictsError(f"{path}: cannot be read (not a regular file).")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _MAX_BYTES_READ, 0))
            text = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise VerdictsError(f"{path}: cannot be read ({error.strerror}).") from None
    whole = text[: text.rfind(b"\n") + 1].split(b"\n")
    return [line for line in (whole[1:] if size > _MAX_BYTES_READ else whole) if line.strip()]
