"""The command `config check`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.errors import InputError
from forewarn.pipelines.cli.options import (
    Commands,
    OptionsError,
    add_command,
    add_config,
    add_group,
    add_json,
    load_config_option,
)
from forewarn.pipelines.cli.site_defaults import site_path
from forewarn.pipelines.runtime.terminal import print_error, write_line

if TYPE_CHECKING:
    from forewarn.pipelines.config.config_check import ConfigCheck
    from forewarn.pipelines.config.settings import Settings

__all__ = ["add_config_command"]


def add_config_command(commands: Commands) -> None:
    """Add `forewarn config` and its command."""
    group = add_group(commands, "config", "check a configuration")
    command = add_command(
        group,
        "check",
        _check,
        "print what a configuration sets, what is default, and what is doubtful",
        "forewarn config check --config my.toml",
    )
    add_config(command)
    add_json(command)


def _check(args: argparse.Namespace) -> int:
    from forewarn.pipelines.config.config_check import check_config
    from forewarn.pipelines.config.model_plugins import check_models

    if args.config is None:
        raise OptionsError("no configuration found, expected --config FILE or ./forewarn.toml.")
    settings = load_config_option(args)
    models = settings.models
    check_models(models.plugins, models.hyperparameters, models.catalogue)
    columns = _record_columns(args.config, settings)
    result = check_config(args.config, columns)
    if args.json:
        print(json.dumps(result.to_dict()))
    else:
        _print(result)
    return 0


def _record_columns(config: Path, settings: Settings) -> set[str] | None:
    """Return the columns of the site's records by our names; None if there are none."""
    from forewarn.pipelines.cli.options import records_location
    from forewarn.pipelines.prediction_job import open_store

    records = records_location(site_path(config, settings.site.records))
    if not records.exists():
        return None
    try:
        return open_store(records, settings).columns()
    except InputError as error:
        print_error(f"note: {error}")
        return None


def _print(result: ConfigCheck) -> None:
    write_line(f"set in {result.config}:")
    for key, value in result.settings.items():
        write_line(f"  {key} = {_toml(value)}")
    write_line("default:")
    for key, value in result.defaults.items():
        write_line(f"  {key} = {_toml(value)}")
    write_line("doubtful:" if result.doubts else "doubtful: nothing")
    for doubt in result.doubts:
        write_line(f"  ! {doubt.key}: {doubt.why}")
        write_line(f"    {doubt.todo}")


def _toml(value: Any) -> str:
    """Return a value as in a TOML file."""
    if isinstance(value, dict):
        pairs = ", ".join(f"{key} = {_toml(item)}" for key, item in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str)
