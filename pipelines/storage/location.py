"""Where records lie: a folder, or the URI of an object store without any secret in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from forewarn.features.errors import InputError

if TYPE_CHECKING:
    from forewarn.pipelines.storage.remote_path import Location, RemotePath

__all__ = ["LocationError", "is_uri", "parse_location"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")
_OPTIONS = ("endpoint_override", "region", "scheme")
_SECRETS = ("access_key", "secret_key", "session_token", "password", "token")
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


class LocationError(InputError):
    """A URI that cannot be used; the message holds nothing of it that may be a secret."""


def is_uri(text: str) -> bool:
    """Tell whether a text is a URI rather than a path.

    Examples
    --------
    >>> is_uri("s3://bucket/records"), is_uri("records"), is_uri("/data/s3:/x")
    (True, False, False)
    """
    return _SCHEME.match(text) is not None


def parse_location(text: str) -> Location:
    """Read a path, or `s3://bucket/records?endpoint_override=...&scheme=http&region=...`.

    `hdfs://` is opened by pyarrow, too; no test of ours covers it.

    Parameters
    ----------
    text : str

    Raises
    ------
    LocationError
        If a URI has a secret or an option that is not known, or names no bucket.

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
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name.lower() in _SECRETS:
            raise LocationError(f"found `{name}` in a URI, expected {_KEYS} to be set.")
        if name not in _OPTIONS:
            raise LocationError(f"found option `{name}` in a URI, expected {', '.join(_OPTIONS)}.")
    return _remote(parts, options)


def _remote(parts: SplitResult, options: dict[str, str]) -> RemotePath:
    from forewarn.pipelines.storage.remote_path import RemotePath

    key = unquote(f"{parts.netloc}{parts.path}").rstrip("/")
    shown = f"{parts.scheme}://{key}"
    if not parts.netloc:
        raise LocationError("found a URI without a bucket, expected s3://bucket/...")
    if parts.scheme == "s3":
        return RemotePath(_s3(options), key, shown)
    return RemotePath(_hadoop(parts), unquote(parts.path).rstrip("/"), shown)


def _s3(options: dict[str, str]) -> Any:
    """Open a store; its keys come from the environment."""
    from pyarrow import fs

    scheme = options.pop("scheme", "https")
    if scheme not in ("http", "https"):
        raise LocationError("found another `scheme` in a URI, expected http or https.")
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=3)
    return fs.S3FileSystem(
        scheme=scheme, connect_timeout=10, request_timeout=60, retry_strategy=retries, **options
    )


def _hadoop(parts: SplitResult) -> Any:
    from pyarrow import fs

    try:
        return fs.HadoopFileSystem.from_uri(f"{parts.scheme}://{parts.netloc}")
    except OSError as error:
        detail = (str(error).splitlines() or [""])[0][:160]
        raise LocationError(
            f"{parts.scheme}://{parts.netloc}: cannot be opened ({detail})."
        ) from None
