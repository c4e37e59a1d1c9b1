"""`forewarn ingest`: records from files of hosts and repair tickets."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from forewarn.features.records.record_table import RecordsError
from forewarn.features.telemetry.gpu_identity import PLACES
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.local_clock import clock_time
from forewarn.features.telemetry.telemetry_rows import is_host_name
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import SECOND
from forewarn.pipelines.ingest.cmdb import Cmdb, read_cmdb
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.landing_counts import LandingCounts
from forewarn.pipelines.runtime.clock import MAX_CLOCK_SKEW, SystemClock
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.storage.files.regular_files import files_below

if TYPE_CHECKING:
    from forewarn.pipelines.config.settings import Settings

__all__ = [
    "Ingested",
    "host_in_name",
    "ingest_host_files",
    "open_landing",
    "read_host_texts",
    "time_in_name",
]

_MAX_FILE_BYTES = 1 << 30  # unpacked; larger files are rejected

_CLOCK_IN_NAME = re.compile(
    r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)[T_ -]?"
    r"([0-2]\d)[-:.h]?([0-5]\d)(?:[-:.m]?([0-5]\d))?(?!\d)"
)
_EPOCH_IN_NAME = re.compile(r"(?<!\d)(1[5-9]\d{8}|2[01]\d{8})(?:\d{3})?(?!\d)")
# Words of a file name that describe its content and not its host.
_WORDS = re.compile(
    r"nvidia[-_]?smi|smi|dmesg|kmsg|kern(?:el)?|log|messages|metrics|dcgm|proc|stat|"
    r"journal(?:d|ctl)?|fluent[-_]?bit|vector|loki|logcli|promtail|alloy"
)


@dataclass(slots=True)
class Ingested:
    """The result of ingesting a folder of host files.

    Attributes
    ----------
    files : dict of str to int
        Number of files read, by kind.
    hosts : int
    unread : Unread
    landed : LandingCounts
    tickets : int
    doubled : Counter of (str, str)
        Rows of a file that an earlier file, or the same file, has as well.
    """

    files: dict[str, int] = field(default_factory=dict)
    hosts: int = 0
    unread: Unread = field(default_factory=Unread)
    landed: LandingCounts = field(default_factory=LandingCounts)
    tickets: int = 0
    doubled: Counter[tuple[str, str]] = field(default_factory=Counter)


def ingest_host_files(
    folder: Path,
    landing: Landing,
    tickets: pa.Table | None = None,
    *,
    offset: int = 0,
    now: int | None = None,
    csv_fields: Sequence[Sequence[str]] = (),
) -> Ingested:
    """Read all files below a folder and land their rows.

    Parameters
    ----------
    folder : Path
        `HOST/...`, or files whose names contain the host; names can also contain a time.
    landing : Landing
    tickets : pyarrow.Table, optional
        TICKETS.
    offset : int
        Nanoseconds by which clocks without a zone are ahead of UTC.
    now : int, optional
        Nanoseconds since 1970 UTC, by default the clock of this machine. Rows more than five
        minutes later have a wrong clock and count as unread.

    csv_fields : sequence of sequence of str
        Fields of `nvidia-smi --query-gpu` of CSV files without a header.

    Raises
    ------
    RecordsError
        If the folder does not exist or has no file. Unreadable files are only counted.
    UnreadableFolderError
        If the folder or one below it cannot be listed.
    """
    until = (SystemClock().now() if now is None else now) + MAX_CLOCK_SKEW
    by_host = _files_by_host(folder)
    done, parts = Ingested(hosts=len(by_host)), []
    with progress_bar(sum(map(len, by_host.values())), "read", "file") as bar:
        for host, paths in sorted(by_host.items(), key=lambda item: item[0] or ""):
            texts = _texts(folder, paths, done.unread)
            dropped = read_host_files(
                host, texts, offset=offset, until=until, csv_fields=csv_fields
            )
            parts.append(_tables(dropped))
            _count(done, dropped)
            bar.update(len(paths))
    readings, events, boards = (pa.concat_tables(tables) for tables in zip(*parts, strict=True))
    done.landed = landing.land(readings, events, tickets, boards)
    done.landed.doubled -= done.doubled.total()  # the remaining ones were stored before
    done.tickets = 0 if tickets is None else len(tickets)
    return done


def open_landing(settings: Settings, out: Path, cmdb: Path | None) -> Landing:
    """Return the landing of a site with its rules and its CMDB.

    Raises
    ------
    RecordsError
        If the CMDB cannot be read.
    """
    known = Cmdb() if cmdb is None else read_cmdb(cmdb, settings.cmdb.reader)
    if known.note:
        note(f"{cmdb}: {known.note}")
    if known.doubled:
        note(f"{cmdb}: {known.doubled} rows with a repeated serial; the last row wins")
    return Landing(out, settings.records.interval, settings.failures.rules, known)


def _files_by_host(folder: Path) -> dict[str | None, list[Path]]:
    if not folder.is_dir():
        raise RecordsError(f"{folder}: no such folder, expected a folder of host files.")
    by_host: dict[str | None, list[Path]] = defaultdict(list)
    for path in files_below(folder):
        parts = path.relative_to(folder).parts
        host = parts[0] if len(parts) > 1 else host_in_name(path.name)
        by_host[host if host and is_host_name(host) else None].append(path)
    if not by_host:
        raise RecordsError(f"{folder}: holds no file, expected files of hosts.")
    return by_host


def read_host_texts(folder: Path) -> Iterator[tuple[str | None, HostFileText]]:
    """Yield the host and the text of each file below a folder; note those that cannot be read.

    Raises
    ------
    RecordsError
        If the folder does not exist or has no file.
    """
    unread = Unread()
    for host, paths in sorted(_files_by_host(folder).items(), key=lambda item: item[0] or ""):
        for file in _texts(folder, paths, unread):
            yield host, file
    for why, count in unread.counts.items():
        note(f"{why} ({count} files), such as {unread.examples[why]}")


def _texts(folder: Path, paths: list[Path], unread: Unread) -> list[HostFileText]:
    texts = []
    for path in paths:
        name = str(path.relative_to(folder))
        try:
            data = _bytes(path)
        except (OSError, EOFError, zlib.error) as error:
            unread.add(f"a file that cannot be read ({error})", name)
            continue
        if len(data) > _MAX_FILE_BYTES:
            unread.add("a file of more than 1 GiB", name)
        else:
            texts.append(HostFileText(name, _decoded(data), time_in_name(path.name)))
    return texts


def _decoded(data: bytes) -> str:
    """Decode text as UTF-8, or as UTF-16 with a byte order mark, which PowerShell writes."""
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if is_wide else "utf-8", errors="replace")


def _bytes(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES + 1)


def _tables(dropped: HostFileRows) -> tuple[pa.Table, pa.Table, pa.Table]:
    # Only a collector sets `vouched`; files belong to the site itself.
    events = [{**row, "vouched": None} for row in dropped.events]
    return (
        build_table(dropped.readings, READINGS),
        build_table(events, EVENTS),
        pa.Table.from_pylist(dropped.boards, schema=PLACES),
    )


def _count(done: Ingested, dropped: HostFileRows) -> None:
    for kind, count in dropped.files.items():
        done.files[kind] = done.files.get(kind, 0) + count
    done.unread.join(dropped.unread)
    done.doubled += dropped.doubled


def time_in_name(name: str) -> int | None:
    """Return the time in a file name in nanoseconds since 1970; None if there is none.

    Examples
    --------
    >>> time_in_name("smi_19700101.csv"), time_in_name("smi-2025-01-01T00:10.csv")
    (None, 1735690200000000000)
    """
    if match := _CLOCK_IN_NAME.search(name):
        year, month, day, hour, minute, second = (part or "00" for part in match.groups())
        return clock_time(f"{year}/{month}/{day} {hour}:{minute}:{second}")
    if match := _EPOCH_IN_NAME.search(name):
        return int(match[1]) * SECOND
    return None


def host_in_name(name: str) -> str | None:
    """Return the host in a file name: what remains without time and content words.

    Examples
    --------
    >>> host_in_name("node-7_smi_2025-01-01T00:10.csv"), host_in_name("dmesg.log")
    ('node-7', None)
    """
    stem = re.sub(r"(?:\.[A-Za-z]{1,5})+$", "", name)
    stem = _EPOCH_IN_NAME.sub("", _CLOCK_IN_NAME.sub("", stem))
    parts = [part for part in re.split(r"[_ ]+|--+", stem) if not _WORDS.fullmatch(part)]
    host = next((part.strip(".-Z") for part in parts if part.strip(".-Z")), "")
    return host if is_host_name(host) and not _WORDS.fullmatch(host) else None
