"""Commands that collect records: agent, collect and ingest."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.features.time_units import MINUTE
from forewarn.pipelines.cli.options import (
    Commands,
    OptionsError,
    Parser,
    add_command,
    add_config,
    add_out,
    integer_at_least,
    load_config_option,
    require_start_before_end,
    time_argument,
)
from forewarn.pipelines.cli.site_defaults import metrics_folder, site_path
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from forewarn.features.telemetry.parsers.gpu_reading import Unread
    from forewarn.pipelines.ingest.landing import Landing
    from forewarn.pipelines.ingest.landing_counts import LandingCounts

__all__ = ["add_agent", "add_collect", "add_ingest"]

_MAX_EXAMPLES = 3


def add_ingest(commands: Commands) -> None:
    """Add `forewarn ingest`."""
    command = add_command(
        commands,
        "ingest",
        _ingest,
        "convert files dropped by hosts, or metrics of a Prometheus server, to records",
        "forewarn ingest --raw /data/drops --cmdb cmdb.csv --repairs tickets.csv --out records\n"
        "  forewarn ingest --prometheus http://localhost:9090 --cmdb cmdb.csv --out records",
    )
    command.add_argument(
        "--raw",
        type=Path,
        metavar="DIR",
        help="folder HOST/... of nvidia-smi output (CSV, XML), kernel logs, dcgm-exporter text "
        "or agent batches; plain or .gz",
    )
    command.add_argument(
        "--prometheus",
        metavar="URL",
        help="server with dcgm-exporter metrics (token: FOREWARN_PROMETHEUS_TOKEN); without "
        "--raw, --prometheus and --repairs those of [site] are read",
    )
    command.add_argument(
        "--cmdb",
        type=Path,
        metavar="FILE",
        help="CSV or Parquet: gpu_serial, ... (default: [site])",
    )
    command.add_argument(
        "--repairs",
        type=Path,
        metavar="FILE",
        help="repair tickets: gpu_serial, failed_at, repaired_at, cause, known_at",
    )
    _add_ingest_span(command)


def _add_ingest_span(command: Parser) -> None:
    add_out(command, "folder of records", site="records")
    add_config(command)
    command.add_argument(
        "--start",
        type=time_argument,
        metavar="TIME",
        help="start for --prometheus (default: 15 days ago)",
    )
    command.add_argument(
        "--end", type=time_argument, metavar="TIME", help="end for --prometheus (default: now)"
    )
    command.add_argument(
        "--query-gpu",
        action="append",
        default=[],
        type=_fields,
        metavar="FIELDS",
        help="of CSV files in --raw without a header, as `nvidia-smi --query-gpu` was called "
        "(may be repeated; adds to `[site] query_gpu`)",
    )
    command.add_argument(
        "--utc-offset",
        type=_offset,
        default=0,
        metavar="+HH:MM",
        help="offset of timestamps without a zone in --raw (default: UTC)",
    )


def _offset(text: str) -> int:
    import re

    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected an offset such as +02:00")
    minutes = int(match[2]) * 60 + int(match[3])
    return (-1 if match[1] == "-" else 1) * minutes * MINUTE


def _fields(text: str) -> tuple[str, ...]:
    from forewarn.pipelines.config.site_tables import query_gpu_fields

    try:
        return query_gpu_fields(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _ingest(args: argparse.Namespace) -> int:
    from forewarn.pipelines.ingest.host_file_ingest import open_landing
    from forewarn.pipelines.ingest.repair_tickets import read_tickets
    from forewarn.pipelines.metrics.job_textfile import write_job
    from forewarn.pipelines.metrics.job_values import ingest_metrics
    from forewarn.pipelines.runtime.progress import note

    if args.raw is not None and args.prometheus is not None:
        raise OptionsError("found `--raw` and `--prometheus`, expected only one of them.")
    require_start_before_end(args)
    _use_site_inputs(args)
    settings = load_config_option(args)
    landing = open_landing(settings, args.out, args.cmdb)
    tickets = None
    if args.repairs is not None:
        read = read_tickets(args.repairs, settings.tickets.reader)
        tickets = read.table
        for line in read.notes():
            note(line)
    landed = _land(args, landing, tickets)
    _notes(landed)
    values = ingest_metrics(landed.readings, landed.events, landed.failures)
    write_job(metrics_folder(args.config), "ingest", values)
    write_line(
        f"{landed.readings} readings and {landed.events} events are new, {landed.doubled} were "
        f"known; wrote {landed.records} records to {args.out}; known failures: "
        f"{landed.failures}"
    )
    return 0


def _use_site_inputs(args: argparse.Namespace) -> None:
    """Take the fields of `[site]`, its CMDB if none was given, its sources if none was given."""
    site = load_config_option(args).site
    args.query_gpu = (*args.query_gpu, *site.query_gpu)
    sources = ("raw", "prometheus", "repairs")
    has_source = any(getattr(args, name) is not None for name in sources)
    for name in ("cmdb", *(() if has_source else sources)):
        if getattr(args, name) is None and (value := getattr(site, name)):
            path = Path(site_path(args.config, value))
            setattr(args, name, value if name == "prometheus" else path)
    if all(getattr(args, name) is None for name in sources):
        raise OptionsError(
            "no input given, expected `--raw`, `--prometheus` or `--repairs`, or their keys in "
            "[site]."
        )


def _land(args: argparse.Namespace, landing: Landing, tickets: object) -> LandingCounts:
    """Land the files of hosts, the metrics of the server, or both, and the tickets once."""
    if args.prometheus is None:
        return _raw(args, landing, tickets)
    if args.raw is None:
        return _pull(args, landing, tickets)
    landed = _raw(args, landing, tickets)
    landed.join(_pull(args, landing, None))
    return landed


def _raw(args: argparse.Namespace, landing: Landing, tickets: object) -> LandingCounts:
    from forewarn.pipelines.ingest.host_file_ingest import ingest_host_files
    from forewarn.pipelines.runtime.progress import note

    if args.raw is None:
        return landing.land_tickets(tickets)
    result = ingest_host_files(
        args.raw, landing, tickets, offset=args.utc_offset, csv_fields=args.query_gpu
    )
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result.files.items())) or "none"
    note(f"{args.raw}: files of {result.hosts} hosts: {kinds}")
    _note_unread(result.unread)
    _note_doubled(result.doubled)
    return result.landed


def _pull(args: argparse.Namespace, landing: Landing, tickets: object) -> LandingCounts:
    import time

    from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
    from forewarn.pipelines.ingest.prometheus_ingest import pull
    from forewarn.pipelines.runtime.progress import note
    from forewarn.pipelines.runtime.timestamps import format_iso

    now = time.time_ns()
    # Intervals in the future have no samples yet, and a later call would not query them again.
    end = now if args.end is None else min(args.end, now)
    with closing(PrometheusClient.from_environment(args.prometheus)) as server:
        result = pull(server, landing, start=args.start, end=end)
    note(
        f"{server.url}: queried intervals that end from {format_iso(result.start)} to "
        f"{format_iso(result.end)}"
    )
    if result.parts:
        n_gpus = len({gpu for gpu, _ in result.parts})
        note(
            f"{n_gpus} GPUs have no series of their own; their {len(result.parts)} parts (MIG) are "
            "joined"
        )
    if result.nameless:
        some = ", ".join(sorted(result.nameless)[:_MAX_EXAMPLES])
        note(
            f"{len(result.nameless)} GPUs have no machine label; their machine_id is taken from "
            f"the CMDB or null: {some}, ..."
        )
    _note_unread(result.unread)
    if tickets is not None:
        result.landed.join(landing.land_tickets(tickets))
    return result.landed


def _note_unread(unread: Unread) -> None:
    from forewarn.pipelines.runtime.progress import note

    for why, count in unread.counts.most_common():
        note(_unread_line(why, count, unread.examples[why]))


def _unread_line(why: str, count: int, example: str) -> str:
    """Return the line that says what was not read, or how it was read."""
    from forewarn.features.telemetry.parsers.exporter_text import PARTS_JOINED

    more = f" ({count} files)" if count > 1 else ""
    if why.startswith("looks like "):
        return f"ignored: {example} {why}{more}"
    if why.startswith("read by "):
        return f"{example} is {why}{more}"
    text = f"{count} times {why}, such as {example!r}"
    return text if why == PARTS_JOINED else f"ignored: {text}"


def _note_doubled(doubled: Counter[tuple[str, str]]) -> None:
    """Note which rows occur twice in the input; each counts once."""
    from forewarn.pipelines.runtime.progress import note

    for (name, first), rows in doubled.most_common(_MAX_EXAMPLES):
        where = "repeated in it" if name == first else f"also in {first}"
        note(f"{name}: {rows} of its rows are {where}; each counts once")
    if len(doubled) > _MAX_EXAMPLES:
        rows = sum(count for _, count in doubled.most_common()[_MAX_EXAMPLES:])
        note(
            f"{rows} more rows are repeated, in {len(doubled) - _MAX_EXAMPLES} more pairs of files"
        )


def _notes(landed: LandingCounts) -> None:
    from forewarn.pipelines.ingest.landing_counts import serial_notes
    from forewarn.pipelines.runtime.progress import note

    if landed.unknown:
        some = ", ".join(sorted(landed.unknown)[:_MAX_EXAMPLES])
        note(
            f"{len(landed.unknown)} serials are not in the CMDB; their records lack its columns: "
            f"{some}, ..."
        )
    conflicts = sorted(landed.conflicts.items(), key=lambda item: str(item[0]))
    for conflict, rows in conflicts[:_MAX_EXAMPLES]:
        host, holder = conflict.machine_id, conflict.holder
        note(
            f"{host} and {holder} both report GPU {conflict.gpu_serial}; {rows} readings of {host} "
            f"were dropped because {holder} had the GPU first"
        )
    if (more := len(landed.conflicts) - _MAX_EXAMPLES) > 0:
        note(f"{more} more such pairs of hosts")
    if landed.unknown_machines:
        some = ", ".join(sorted(landed.unknown_machines)[:_MAX_EXAMPLES])
        note(
            f"{len(landed.unknown_machines)} machines are not in the CMDB; the records of their "
            f"GPUs lack its columns: {some}, ..."
        )
    if landed.nameless:
        note(
            f"{landed.nameless} readings identify no GPU (no serial, no UUID, or no UUID for the "
            "serial of a board with several GPUs) and give no record; the output of "
            "`nvidia-smi -L`, `amd-smi list` or `npu-smi info -t board -i NPU -c CHIP` of the same "
            "host tells the UUIDs"
        )
    for line in serial_notes(landed):
        note(line)
    if landed.ahead:
        note(f"ignored: {landed.ahead} rows with future times; check the clock of the sender")
    for moved in landed.quarantined:
        note(moved)
    if landed.unplaced:
        note(f"{landed.unplaced} events belong to an address at which no GPU was seen")


def add_collect(commands: Commands) -> None:
    """Add `forewarn collect`."""
    command = add_command(
        commands,
        "collect",
        _collect,
        "receive batches from agents and write records; FOREWARN_TOKENS holds SITE=TOKEN,... or, "
        "for certain hosts only, SITE:HOSTLIST=TOKEN,...",
        "FOREWARN_TOKENS=site-a=SECRET forewarn collect --out records --cmdb cmdb.csv\n"
        "  FOREWARN_TOKENS='rack1:node-[01-16]=SECRET' forewarn collect --out records",
        extra="server",
    )
    add_out(command, "folder of records", site="records")
    add_config(command)
    command.add_argument("--cmdb", type=Path, metavar="FILE", help="reloaded when it changes")
    command.add_argument("--repairs", type=Path, metavar="FILE", help="reloaded when it changes")
    command.add_argument("--host", help="address to listen on (default: from the configuration)")
    command.add_argument(
        "--port", type=integer_at_least(0, 65_535), help="port (default: from the configuration)"
    )


def _collect(args: argparse.Namespace) -> int:
    from forewarn.pipelines.collector.collector_service import run_collector

    run_collector(
        load_config_option(args),
        args.out,
        cmdb=args.cmdb,
        repairs=args.repairs,
        tokens=os.environ.get("FOREWARN_TOKENS", ""),
        host=args.host,
        port=args.port,
    )
    return 0


def add_agent(commands: Commands) -> None:
    """Add `forewarn agent`."""
    command = add_command(
        commands,
        "agent",
        _agent,
        "collect telemetry on this host according to a policy file (token: FOREWARN_TOKEN)",
        "forewarn agent --policy agent.toml --once",
        extra="",
    )
    command.add_argument("--policy", type=Path, required=True, metavar="FILE", help="TOML")
    command.add_argument(
        "--once",
        action="store_true",
        help="take one reading, print it as JSON, send it if there is a collector, and exit",
    )


def _agent(args: argparse.Namespace) -> int:
    from forewarn.pipelines.agent.agent_service import run_agent
    from forewarn.pipelines.config.agent_policy import load_policy

    policy = load_policy(args.policy)
    token = os.environ.get("FOREWARN_TOKEN")
    return run_agent(policy, token, once=args.once, out=sys.stdout)
