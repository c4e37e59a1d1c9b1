"""`forewarn start`: from a Prometheus server to today's list, and what to run daily."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tomllib
from collections.abc import Sequence
from contextlib import closing, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.errors import InputError
from forewarn.features.time_units import HOUR
from forewarn.pipelines.cli.options import Commands, add_command, add_json, add_out
from forewarn.pipelines.runtime.terminal import print_error, write_line

if TYPE_CHECKING:
    from forewarn.pipelines.ingest.prometheus_survey import ServerSurvey

__all__ = ["add_start"]

_RULES = "builtin:rules"
_CONFIG = "forewarn.toml"
_MAX_NAMED_COLUMNS = 20


class StartError(InputError):
    """A server from which no records can be made."""


def add_start(commands: Commands) -> None:
    """Add `forewarn start`."""
    command = add_command(
        commands,
        "start",
        _start,
        "make records, a configuration and today's list from a Prometheus server",
        "forewarn start --prometheus http://prometheus:9090 --cmdb cmdb.csv",
    )
    command.add_argument(
        "--prometheus",
        required=True,
        metavar="URL",
        help="server with dcgm-exporter metrics (token: FOREWARN_PROMETHEUS_TOKEN)",
    )
    command.add_argument(
        "--cmdb", type=Path, metavar="FILE", help="CSV or Parquet, also of NetBox or ServiceNow"
    )
    command.add_argument("--repairs", type=Path, metavar="FILE", help="repair tickets")
    add_out(command, "folder of the site (default: the working folder)", default=Path())
    add_json(command)


@dataclass(frozen=True, slots=True)
class _Site:
    """The folder of a site.

    Attributes
    ----------
    folder : Path
        Absolute.
    survey : ServerSurvey
    """

    folder: Path
    survey: ServerSurvey

    @property
    def config(self) -> Path:
        """The configuration."""
        return self.folder / _CONFIG

    @property
    def page(self) -> Path:
        """The page of the newest list."""
        return max((self.folder / "lists").glob("date=*/at_risk.html"))

    def crontab(self) -> list[str]:
        """Return the lines for records each hour, a list each day and a review each week."""
        program = _program()
        config = shlex.quote(str(self.config))
        return [
            f"7 * * * * {program} ingest --config {config}",
            f"20 0 * * * {program} score --model {_RULES} --at now --config {config}",
            f"40 0 * * 1 {program} review --until now --config {config}",
        ]


def _program() -> str:
    """Return the command by its full path, as crontab needs it."""
    path = Path(sys.executable).with_name("forewarn")
    return shlex.quote(str(path)) if path.exists() else "forewarn"


def _start(args: argparse.Namespace) -> int:
    site = _Site(args.out.resolve(), _survey(args, args.out.resolve() / _CONFIG))
    # Only the result is printed on stdout if it is JSON.
    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        _describe(site.survey)
        _write_config(site, args)
        _run("ingest", *_inputs(args), "--config", str(site.config))
        if not any((site.folder / "records").glob("date=*")):
            raise StartError(
                f"{site.survey.url}: gives no record; the notes above say what its series lack."
            )
        _run("doctor", "--config", str(site.config), "--out", str(site.folder / "doctor"))
        at = _list_time(site.survey)
        _run("score", "--model", _RULES, "--at", at, "--config", str(site.config))
    if args.json:
        print(json.dumps(_summary(site)))
    else:
        _say_next(site)
    return 0


def _survey(args: argparse.Namespace, config: Path) -> ServerSurvey:
    """Check the inputs and survey the server; nothing is written yet."""
    from forewarn.pipelines.config.settings import load_settings
    from forewarn.pipelines.ingest.cmdb import read_cmdb
    from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
    from forewarn.pipelines.ingest.prometheus_survey import survey_server
    from forewarn.pipelines.ingest.repair_tickets import read_tickets
    from forewarn.pipelines.runtime.clock import SystemClock

    settings = load_settings(config if config.exists() else None)
    if args.cmdb is not None:
        read_cmdb(args.cmdb, settings.cmdb.reader)
    if args.repairs is not None:
        read_tickets(args.repairs, settings.tickets.reader)
    with closing(PrometheusClient.from_environment(args.prometheus)) as server:
        return survey_server(server, SystemClock().now())


def _describe(survey: ServerSurvey) -> None:
    write_line(f"{survey.url}: {survey.gpus} GPUs, {len(survey.names)} metrics of dcgm-exporter")
    if survey.ports:
        write_line(
            f"  {len(survey.ports)} metrics of network ports: rising error counters become events, "
            "and `forewarn detect watch` computes PFC and RDMA traffic from them"
        )
    else:
        write_line("  no metric of network ports (node_infiniband_..., node_ethtool_...)")
    for column, fields in [*survey.missing.items()][:_MAX_NAMED_COLUMNS]:
        write_line(f"  no series for {column}: switch on {', '.join(fields)}")


def _write_config(site: _Site, args: argparse.Namespace) -> None:
    """Write the configuration; of an existing one, only a missing `[site]` is added."""
    from forewarn.pipelines.config.first_configuration import first_configuration
    from forewarn.pipelines.storage.files.atomic_files import replacing

    existing = site.config.read_text(encoding="utf-8") if site.config.exists() else ""
    if "site" in tomllib.loads(existing):
        print_error(f"note: {site.config} exists and is not changed")
        return
    cmdb, repairs = (
        "" if path is None else str(path.resolve()) for path in (args.cmdb, args.repairs)
    )
    text = first_configuration(site.survey.url, cmdb, repairs, site.survey.missing, existing)
    site.folder.mkdir(parents=True, exist_ok=True)
    with replacing(site.config) as path:
        path.write_text(text, encoding="utf-8")
    write_line(f"wrote {site.config}")


def _inputs(args: argparse.Namespace) -> list[str]:
    """Return the options of `ingest`; an existing configuration may have others."""
    words = ["--prometheus", args.prometheus]
    for name in ("cmdb", "repairs"):
        if (path := getattr(args, name)) is not None:
            words += [f"--{name}", str(path)]
    return words


def _list_time(survey: ServerSurvey) -> str:
    """Return the time of the list: now, or after the last sample if there is no later one."""
    from forewarn.pipelines.runtime.clock import SystemClock
    from forewarn.pipelines.runtime.timestamps import format_iso

    if survey.last >= SystemClock().now() - HOUR:
        return "now"
    at = format_iso(survey.last)
    print_error(
        f"note: {survey.url} has no sample after {at}, so the list is of that time. Check the "
        "exporters."
    )
    return at


def _run(*words: str) -> None:
    """Run a command in this process, as a user would, and name it."""
    from forewarn.pipelines.cli.main import build_parser
    from forewarn.pipelines.ingest.prometheus_client import strip_credentials

    shown = [strip_credentials(word) or word if "://" in word else word for word in words]
    write_line("")
    write_line(f"$ forewarn {shlex.join(shown)}")
    args = build_parser(words[0]).parse_args(words)
    _fill(args)
    args.run(args)


def _fill(args: argparse.Namespace) -> None:
    from forewarn.pipelines.cli.site_defaults import fill_site_defaults

    fill_site_defaults(args)


def _summary(site: _Site) -> dict[str, Any]:
    return {
        "config": str(site.config),
        "records": str(site.folder / "records"),
        "list": str(site.page),
        "doctor": str(site.folder / "doctor/doctor.html"),
        "gpus": site.survey.gpus,
        "missing": {column: list(fields) for column, fields in site.survey.missing.items()},
        "crontab": site.crontab(),
    }


def _say_next(site: _Site) -> None:
    lines: Sequence[str] = (
        "",
        "Look at:",
        f"  {site.page}  (today's list, by rules)",
        f"  {site.folder / 'doctor/doctor.html'}  (what the records lack)",
        f"  {site.config}  (the configuration)",
        "Run daily (`crontab -e`; set FOREWARN_PROMETHEUS_TOKEN there if this call needed it):",
        *(f"  {line}" for line in site.crontab()),
        f"or the Airflow DAGs, with the Variable forewarn_config = {site.config}",
    )
    for line in lines:
        write_line(line)
