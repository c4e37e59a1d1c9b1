"""`forewarn config check`: what a configuration sets, what is default, what is doubtful."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forewarn.features.duration import format_duration
from forewarn.features.time_units import DAY, SECOND
from forewarn.pipelines.config.setting_values import default_values, given_values
from forewarn.pipelines.config.settings import Settings, parse_settings
from forewarn.pipelines.config.toml_tables import read_toml

__all__ = ["ConfigCheck", "Doubt", "check_config"]

_SECRET = "(not shown)"
_FILES = ("cmdb", "repairs", "raw")
_MAX_SHARE = 0.05  # of the fleet on a daily list
_MIN_HORIZON_DAYS, _MAX_HORIZON_DAYS = 0.25, 7.0


@dataclass(frozen=True, slots=True)
class Doubt:
    """A setting that is valid and probably not meant.

    Attributes
    ----------
    key : str
    why, todo : str
    """

    key: str
    why: str
    todo: str


@dataclass(frozen=True, slots=True)
class ConfigCheck:
    """The result for a configuration.

    Attributes
    ----------
    config : Path
    settings, defaults : dict
        Values by `table.key`.
    doubts : list of Doubt
    """

    config: Path
    settings: dict[str, Any]
    defaults: dict[str, Any]
    doubts: list[Doubt]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON value."""
        return {
            "config": str(self.config),
            "set": self.settings,
            "default": self.defaults,
            "doubtful": [asdict(doubt) for doubt in self.doubts],
        }


def check_config(config: Path, columns: set[str] | None) -> ConfigCheck:
    """Check a configuration.

    Parameters
    ----------
    config : Path
    columns : set of str or None
        Columns of the records, by our names; None if there are no records yet.

    Raises
    ------
    SettingsError
        If it cannot be read or is invalid.
    """
    values = read_toml(config)
    settings = parse_settings(values, name=str(config))
    shown = {key: _without_secret(key, value) for key, value in given_values(values).items()}
    doubts = [
        *_of_site(settings, config.parent, columns),
        *_of_columns(settings, columns or set()),
        *_of_spans(settings),
        *_of_servers(settings),
    ]
    return ConfigCheck(config, shown, default_values(settings), doubts)


def _without_secret(key: str, value: Any) -> Any:
    """Hide the salt, and an address with a user name or a password."""
    has_user = isinstance(value, str) and re.search(r"://[^/]*@|^[^/]*:[^/]*@", value)
    return _SECRET if has_user or key == "respond.salt" else value


def _of_site(settings: Settings, folder: Path, columns: set[str] | None) -> Iterator[Doubt]:
    site = settings.site
    for name in _FILES:
        if (text := getattr(site, name)) and not (folder / text).exists():
            yield Doubt(f"site.{name}", f"{folder / text} does not exist.", "Correct the path.")
    if "@" in site.prometheus:
        yield Doubt(
            "site.prometheus",
            "The address holds a user name or a password.",
            "Remove it, and set FOREWARN_PROMETHEUS_TOKEN or use a proxy without one.",
        )
    if columns is None and not (site.raw or site.prometheus or site.repairs):
        yield Doubt(
            "site.records",
            f"{folder / site.records} holds no records, and no source is set.",
            "Set `prometheus` or `raw`, or the folder that another program writes.",
        )
    for name in ("cmdb", "tickets"):
        table, source = getattr(settings, name), "cmdb" if name == "cmdb" else "repairs"
        if table != type(table)() and not getattr(site, source):
            yield Doubt(
                f"site.{source}",
                f"[{name}] is set, and no file is.",
                f"Set `site.{source}`, or give --{source} each time.",
            )


def _of_columns(settings: Settings, columns: set[str]) -> Iterator[Doubt]:
    table = settings.features
    used = {"gpu_serial", "timestamp", "failure", "machine_id", "slot", "rack"}
    used |= {*table.kinds.names, *table.peers}
    for ours, theirs in settings.records.columns.items():
        if ours not in used:
            yield Doubt(
                f"records.columns.{ours}",
                f"`{theirs}` is mapped to a column that nothing reads.",
                "Add it to [features], or correct the name.",
            )
    if "features" in settings.model_fields_set:
        for name in sorted({*table.kinds.names} - columns) if columns else ():
            yield Doubt(
                "features",
                f"The records have no column `{name}`.",
                "Remove it, or map it in `records.columns`.",
            )
        if "xid" not in table.code:
            yield Doubt(
                "features.code",
                "[features] leaves out `xid`, by which failures announce themselves most clearly.",
                'Add code = ["xid"] if the records have Xids, under any name.',
            )


def _of_spans(settings: Settings) -> Iterator[Doubt]:
    days = settings.horizon / DAY
    if not _MIN_HORIZON_DAYS <= days <= _MAX_HORIZON_DAYS:
        yield Doubt(
            "windows.horizon",
            f"{settings.windows.horizon} intervals of "
            f"{format_duration(settings.records.interval / SECOND)} are a horizon of "
            f"{format_duration(settings.horizon / SECOND)}; a day is usual.",
            f"Set it to {max(1, round(DAY / settings.records.interval))} for a day; `length` and "
            "`step` count intervals too.",
        )
    if settings.list.share > _MAX_SHARE:
        yield Doubt(
            "list.share",
            f"{settings.list.share:.0%} of the fleet is flagged each day.",
            "Usual are 0.001 to 0.01; most flagged GPUs do not fail.",
        )


def _of_servers(settings: Settings) -> Iterator[Doubt]:
    for name in ("collector", "respond"):
        table = getattr(settings, name)
        if table.host not in ("127.0.0.1", "::1", "localhost") and not table.certificate:
            yield Doubt(
                f"{name}.host",
                f"{table.host} is open to other machines, without TLS.",
                "Set `certificate` and `key`.",
            )
    held_out = any(pool.control for pool in settings.respond.pools.values())
    if held_out and "salt" not in settings.respond.model_fields_set:
        yield Doubt(
            "respond.salt",
            "The default salt makes the choice of holdout machines predictable.",
            "Set a secret text.",
        )
