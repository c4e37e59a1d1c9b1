"""Files before they are recognised: divided into their outputs, and with the headers they lack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from forewarn.features.telemetry.host_files.file_forms import detect_form
from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.nvidia_smi.appended_outputs import split_outputs
from forewarn.features.telemetry.nvidia_smi.bug_report import is_bug_report, read_bug_report
from forewarn.features.telemetry.nvidia_smi.headerless_csv import (
    csv_header_line,
    find_header,
    is_headerless_csv,
)
from forewarn.features.telemetry.nvidia_smi.query_csv import measured_fields
from forewarn.features.telemetry.parsers.gpu_reading import Unread

__all__ = ["split_host_file", "with_csv_headers"]

_MISFIT = " (the file has {columns} columns, which do not fit the fields of `--query-gpu`)"
_NOTES = {
    "file": "read by the header of another file of its host: {line}",
    "guess": "read by what its values show: {line} (each `?` may be several fields and is left "
    "out; `--query-gpu` tells the fields)",
}
_REFUSED = (
    "looks like CSV of nvidia-smi without a header, which is not read: its fields are {line}, and "
    "`?` may be several; with `--query-gpu FIELDS`, the same as for nvidia-smi, it would be"
)


# What mail and Markdown put before each line, or around the whole.
_QUOTING = re.compile(r"^(?:> ?)+|^`{1,3}(?:[a-z]*(?=\r?\n))?|`{1,3}\s*\Z", re.MULTILINE)


def split_host_file(file: HostFileText) -> list[HostFileText]:
    """Return the outputs of a file, one each; those of a bug report have its host and time."""
    content = _unquoted(file.text)
    if not is_bug_report(content):
        return [replace(file, text=text) for text in split_outputs(content)]
    report = read_bug_report(content)
    return [
        replace(
            file,
            text=text,
            time=report.time if file.time is None else file.time,
            host=report.host,
            offset=report.offset,
        )
        for text in report.parts
    ]


def _unquoted(text: str) -> str:
    """Return a text that was copied out of a mail or a ticket as the tool printed it."""
    is_quoted = text.lstrip("\ufeff \r\n").startswith((">", "`"))
    return _QUOTING.sub("", text) if is_quoted else text


def with_csv_headers(
    files: Sequence[HostFileText], csv_fields: Sequence[Sequence[str]], unread: Unread
) -> list[HostFileText]:
    """Return the files of one host, CSV files with the header that they lack.

    Parameters
    ----------
    files : sequence of HostFileText
    csv_fields : sequence of sequence of str
        Fields of `nvidia-smi --query-gpu`, as the user named them.
    unread : Unread
        Says which headers the user did not name, and which files are left out for that.
    """
    known = [fields for file in files if (fields := csv_header_line(file.text)) is not None]
    readable = (_with_header(file, csv_fields, known, unread) for file in files)
    return [file for file in readable if file is not None]


def _with_header(
    file: HostFileText,
    csv_fields: Sequence[Sequence[str]],
    known: Sequence[Sequence[str]],
    unread: Unread,
) -> HostFileText | None:
    """Return a file with its header; None if its fields are not certain."""
    if detect_form(file.text) is not None or not is_headerless_csv(file.text, csv_fields):
        return file
    header = find_header(file.text, csv_fields, known)
    misfit = _MISFIT.format(columns=len(header.fields)) if csv_fields else ""
    if header.source == "guess" and not measured_fields(header.fields):
        unread.add(_REFUSED.format(line=header.line) + misfit, file.name)
        return None
    if header.source != "user":
        unread.add(_NOTES[header.source].format(line=header.line) + misfit, file.name)
    return replace(file, text=f"{header.line}\n{file.text}")
