"""Locations of records: a folder, or a URI of an object store without secrets.

`pyarrow.fs` opens the stores. It comes with Parquet support and reads without the GIL. fsspec and
universal-pathlib would need s3fs (45 MB, 29 of them botocore), a second S3 client. They would
replace only the joining of names, not the rejection of URIs, one-line messages, timeouts and atomic
writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from forewarn.features.errors import InputError
from forewarn.features.records.record_table import RecordsError

__all__ = ["Location", "LocationError", "RemotePath", "is_uri", "parse_location"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")
_OPTIONS = ("endpoint_override", "region", "scheme")
_SECRETS = ("access_key", "secret_key", "session_token", "password", "token")
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_REFUSALS = ("ACCESS_DENIED", "SIGNATURE", "INVALID_ACCESS_KEY", "INVALID_CLIENT", "EXPIRED")
_MAX_REASON = 160  # characters of a store's error message


class LocationError(InputError):
    """An invalid URI; the message contains no part of it that may be secret."""


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A name in an object store, with the methods of a path that records need.

    Attributes
    ----------
    store : pyarrow.fs.FileSystem
    key : str
        Bucket and name.
    shown : str
        For messages, without options.
    """

    store: Any = field(repr=False, compare=False)
    key: str
    shown: str

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.store, f"{self.key}/{name}", f"{self.shown}/{name}")

    def __str__(self) -> str:
        return self.shown

    def __lt__(self, other: RemotePath) -> bool:
        return self.key < other.key

    @property
    def name(self) -> str:
        """The last part of the name."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """The parent folder."""
        shown, key = self.shown.rpartition("/")[0], self.key.rpartition("/")[0]
        return RemotePath(self.store, key, shown)

    def exists(self) -> bool:
        """Tell whether a file or a folder of this name exists."""
        return bool(self._info().type != fs.FileType.NotFound)

    def is_dir(self) -> bool:
        """Tell whether anything exists below this name."""
        return bool(self._info().type == fs.FileType.Directory)

    def size_and_time(self) -> tuple[int, int]:
        """Return size in bytes and modification time in nanoseconds since 1970 UTC.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        """
        info = self._info()
        if info.type != fs.FileType.File:
            raise FileNotFoundError(self.shown)
        return int(info.size), int(info.mtime_ns)

    def children(self) -> list[RemotePath]:
        """Return the direct children of a folder, sorted by name."""
        with self._errors_in_one_line():
            infos = self.store.get_file_info(fs.FileSelector(self.key, allow_not_found=True))
        return sorted(self / info.base_name for info in infos)

    def opened(self) -> pa.NativeFile:
        """Open a file for reading.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        """
        with self._errors_in_one_line():
            return self.store.open_input_file(self.key)

    def put(self, local: Path) -> None:
        """Upload a file under a hidden name and rename it in the store."""
        hidden = self.parent / f"_{self.name}.tmp"
        with self._errors_in_one_line():
            fs.copy_files(str(local.absolute()), hidden.key, fs.LocalFileSystem(), self.store)
            if hidden.size_and_time()[0] != local.stat().st_size:
                raise RecordsError(f"{hidden}: was not uploaded completely.")
            self.store.move(hidden.key, self.key)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete a file."""
        try:
            with self._errors_in_one_line():
                self.store.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _info(self) -> Any:
        with self._errors_in_one_line():
            return self.store.get_file_info(self.key)

    @contextmanager
    def _errors_in_one_line(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            line = _first_line(error)
            # The store's own words are the last part of a long message.
            reason = line[max(line.find("AWS Error"), 0) :][:_MAX_REASON]
            if any(word in reason for word in _REFUSALS):
                raise RecordsError(
                    f"{self.shown}: the store rejects the credentials ({reason}), expected {_KEYS} "
                    "of an account with this permission."
                ) from None
            raise RecordsError(
                f"{self.shown}: the store reports an error ({reason}).", is_transient=True
            ) from None


Location: TypeAlias = Path | RemotePath


def is_uri(text: str) -> bool:
    """Tell whether a text is a URI and not a path.

    Examples
    --------
    >>> is_uri("s3://bucket/records"), is_uri("records"), is_uri("/data/s3:/x")
    (True, False, False)
    """
    return _SCHEME.match(text) is not None


def parse_location(text: str) -> Location:
    """Parse a path or `s3://bucket/records?endpoint_override=...&scheme=http&region=...`.

    `hdfs://`, which pyarrow opens as well, is not tested.

    Raises
    ------
    LocationError
        If a URI has a secret or an unknown option, or names no bucket.

    Examples
    --------
    >>> str(parse_location("/data/records"))
    '/data/records'
    """
    if not is_uri(text):
        return Path(text)
    try:
        parts = urlsplit(text)
    except ValueError:
        raise LocationError("found a URI that cannot be read, expected s3://bucket/...") from None
    if parts.scheme not in ("s3", "hdfs"):
        raise LocationError(
            f"found a URI of `{parts.scheme}`, expected a folder or s3://bucket/..."
        )
    if "@" in parts.netloc:
        raise LocationError(f"found a key or a name before the bucket, expected {_KEYS} to be set.")
    if not parts.netloc:
        raise LocationError("found a URI without a bucket, expected s3://bucket/...")
    options = _checked_options(parts.query)
    folder = unquote(parts.path).rstrip("/")
    shown = f"{parts.scheme}://{unquote(parts.netloc)}{folder}"
    if parts.scheme == "hdfs":
        return RemotePath(_hadoop(f"hdfs://{parts.netloc}"), folder, shown)
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=3)
    store = fs.S3FileSystem(
        connect_timeout=10, request_timeout=60, retry_strategy=retries, **options
    )
    return RemotePath(store, unquote(parts.netloc) + folder, shown)


def _checked_options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name.lower() in _SECRETS:
            raise LocationError(f"found `{name}` in a URI, expected {_KEYS} to be set.")
        if name not in _OPTIONS:
            raise LocationError(f"found option `{name}` in a URI, expected {', '.join(_OPTIONS)}.")
    if options.get("scheme", "https") not in ("http", "https"):
        raise LocationError("found an unknown `scheme` in a URI, expected http or https.")
    return options


def _hadoop(uri: str) -> Any:
    try:
        return fs.HadoopFileSystem.from_uri(uri)
    except OSError as error:
        reason = _first_line(error)[:_MAX_REASON]
        raise LocationError(f"{uri}: cannot be opened ({reason}).", is_transient=True) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
