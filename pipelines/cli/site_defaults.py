"""Options that default to the site: the configuration file, and the paths of its `[site]` table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.features.errors import InputError
from forewarn.pipelines.config import CONFIG_VARIABLE
from forewarn.pipelines.runtime.terminal import print_error

__all__ = [
    "CONFIG_VARIABLE",
    "SiteDefault",
    "fill_site_defaults",
    "find_config",
    "metrics_folder",
    "site_path",
]

_LOCAL_CONFIG = Path("forewarn.toml")
_SYSTEM_CONFIG = Path("/etc/forewarn/forewarn.toml")


class SiteDefaultError(InputError):
    """A path of the `[site]` table that the command cannot use."""


@dataclass(frozen=True, slots=True)
class SiteDefault:
    """The default of an option: a path of the `[site]` table.

    Attributes
    ----------
    key : str
        Key of the table.
    parse : callable
        Parser of the option.
    file : str
        File in that folder, if the option names a file.
    """

    key: str
    parse: Callable[[str], Any]
    file: str = ""


def find_config() -> Path | None:
    """Return the configuration to use without --config; None if there is none.

    It is the file that FOREWARN_CONFIG names, which has to exist, else `forewarn.toml` of the
    working folder, else `/etc/forewarn/forewarn.toml`.
    """
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    return next((path for path in (_LOCAL_CONFIG, _SYSTEM_CONFIG) if os.path.exists(path)), None)


def site_path(config: Path | None, text: str) -> str:
    """Return a path of a configuration; a relative one starts at the folder of the file."""
    from forewarn.pipelines.storage.files.location import is_uri

    folder = Path() if config is None else config.parent
    return text if is_uri(text) else str(folder / text)


def metrics_folder(config: Path | None) -> Path | None:
    """Return the folder for metrics of commands that end; None if the site has none."""
    from forewarn.pipelines.config.settings import load_settings

    folder = load_settings(config).site.metrics
    return Path(site_path(config, folder)) if folder else None


def fill_site_defaults(args: argparse.Namespace) -> None:
    """Set --config and the paths that were not given, and name them on stderr.

    Raises
    ------
    SettingsError
        If the configuration is invalid.
    SiteDefaultError
        If the command cannot use a path of the `[site]` table.
    """
    if not hasattr(args, "config"):
        return
    explicit = args.config is not None
    args.config = args.config or find_config()
    paths = _fill_paths(args)
    if args.config is None:
        source = "no configuration" if paths else ""
    else:
        source = f"configuration {args.config}" if not explicit or paths else ""
    if source:
        print_error(f"note: {'; '.join([source, *paths])}")


def _fill_paths(args: argparse.Namespace) -> list[str]:
    """Replace each site default by its path; return the options as text."""
    from forewarn.pipelines.config.settings import load_settings

    defaults = {name: item for name, item in vars(args).items() if isinstance(item, SiteDefault)}
    if not defaults:
        return []
    site = load_settings(args.config).site
    for name, default in defaults.items():
        path = site_path(args.config, getattr(site, default.key))
        setattr(args, name, _parsed(name, default, path))
    return [f"{_option(name)} {getattr(args, name)}" for name in defaults]


def _parsed(name: str, default: SiteDefault, path: str) -> Any:
    if default.file:
        path = f"{path}/{default.file}"
        if not os.path.exists(path):
            raise SiteDefaultError(f"{path}: does not exist, expected {_option(name)} FILE.")
    try:
        return default.parse(path)
    except argparse.ArgumentTypeError as error:
        raise SiteDefaultError(f"`site.{default.key}`: {error}.") from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
