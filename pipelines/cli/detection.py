"""The command `detect` and its subcommands."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.pipelines.cli.options import (
    Commands,
    Parser,
    add_command,
    add_config,
    add_detector_model,
    load_config_option,
    require_start_before_end,
    time_argument,
)
from forewarn.pipelines.runtime.terminal import escape_text, print_error, write_line

if TYPE_CHECKING:
    from forewarn.models.detection.detector_file import StoredDetector
    from forewarn.pipelines.config.settings import WatchTable
    from forewarn.pipelines.detection.task_result import TaskVerdict, UnjudgedTask
    from forewarn.pipelines.storage.evidence.host_events import HostEvents

__all__ = ["add_detect"]

_OBSERVE_ONLY_TEXT = """The model is observe-only while fewer than 29 tasks were judged by a
detector fitted without their job, while a task excluded as suspected faulty
has no label, or after exit code 1."""


def add_detect(commands: Commands) -> None:
    """Add `forewarn detect` and its commands."""
    detect = commands.add_parser("detect", help="detect the faulty machine of a running task")
    parts = detect.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    _add_fit(parts)
    _add_run(parts)
    _add_watch(parts)
    _add_pull(parts)
    _add_metrics(parts)


def _add_metrics_folder(command: Parser) -> None:
    command.add_argument(
        "--metrics", type=Path, required=True, help="folder of task=NAME/*.parquet"
    )


def _add_context(command: Parser, state: str) -> None:
    """Add options for additional knowledge about the machines."""
    command.add_argument(
        "--at-risk", type=Path, metavar="AT_RISK", help="lists of `forewarn score`, as a prior"
    )
    command.add_argument(
        "--events", type=Path, metavar="RECORDS", help="folder of `collect`: adds Xids to verdicts"
    )
    command.add_argument("--state", type=Path, metavar="DIR", help=state)


def _add_fit(parts: Commands) -> None:
    command = add_command(
        parts,
        "fit",
        _fit,
        "fit thresholds to mostly healthy tasks; exit code 1 if they cannot be trusted",
        "forewarn detect fit --metrics /tmp/incidents/train --model /tmp/detector",
        extra="train",
    )
    command.description = f"{command.description}\n\n{_OBSERVE_ONLY_TEXT}"
    _add_metrics_folder(command)
    add_config(command)
    add_detector_model(command, "folder to write")
    command.add_argument(
        "--incidents",
        type=Path,
        metavar="CSV",
        help="known faults as task,machine,start,end, used to rank the metrics; a row without a "
        "machine labels its task as healthy",
    )
    command.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def _add_run(parts: Commands) -> None:
    command = add_command(
        parts,
        "run",
        _run,
        "judge every task of a folder and report its faulty machine, if there is one",
        "forewarn detect run --metrics /tmp/incidents/pulls --model /tmp/detector --json",
    )
    _add_metrics_folder(command)
    add_config(command, "configuration, TOML; fitted parameters come from the model")
    add_detector_model(command, "folder written by `detect fit`")
    _add_context(command, "folder of machine baselines, updated")
    command.add_argument("--plot", type=Path, metavar="DIR", help="plot each verdict as a PNG")
    command.add_argument("--json", action="store_true", help="print one JSON object per task")


def _add_watch(parts: Commands) -> None:
    command = add_command(
        parts,
        "watch",
        _watch,
        "judge running tasks repeatedly and report each new verdict once",
        "forewarn detect watch --prometheus http://127.0.0.1:9090 --model /tmp/detector "
        "--state /tmp/watch",
    )
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--metrics", type=Path, help="folder of task=NAME/*.parquet, updated")
    source.add_argument(
        "--prometheus", metavar="URL", help="server (token: FOREWARN_PROMETHEUS_TOKEN)"
    )
    add_config(command)
    add_detector_model(command, "folder written by `detect fit`")
    _add_context(command, "folder of baselines and verdicts, to continue after a restart")
    command.add_argument("--once", action="store_true", help="judge all tasks once and exit")
    command.add_argument("--json", action="store_true", help="print one JSON object per verdict")


def _add_pull(parts: Commands) -> None:
    command = add_command(
        parts,
        "pull",
        _pull,
        "write the metrics of tasks from Prometheus or files, for `detect fit` and `detect run`",
        "forewarn detect pull --prometheus http://127.0.0.1:9090 --out /tmp/metrics",
    )
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prometheus", metavar="URL", help="server (token: FOREWARN_PROMETHEUS_TOKEN)"
    )
    source.add_argument(
        "--raw", type=Path, metavar="DIR", help="HOST/FILE: exporters' text, sysfs, `ethtool -S`"
    )
    add_config(command)
    command.add_argument(
        "--start",
        type=time_argument,
        metavar="TIME",
        help="default: the last 15 minutes; of files, all",
    )
    command.add_argument("--end", type=time_argument, metavar="TIME", help="default: now, or all")
    command.add_argument(
        "--out", type=Path, required=True, metavar="METRICS", help="folder of task=NAME/*.parquet"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object per file")


def _add_metrics(parts: Commands) -> None:
    command = add_command(
        parts,
        "metrics",
        _metrics,
        "list the metrics of a detector in order of priority, or change the order",
        "forewarn detect metrics --model /tmp/detector --order cpu_usage,power_draw",
    )
    add_detector_model(command, "folder written by `detect fit`")
    command.add_argument("--order", metavar="NAMES", help="metrics to put first, comma-separated")
    command.add_argument("--json", action="store_true", help="print one JSON object per metric")


def _fit(args: argparse.Namespace) -> int:
    from forewarn.pipelines.detection.detection_text import fit_report_lines
    from forewarn.pipelines.detection.detector_fit import fit_detector, read_incidents, save_fitted

    settings = load_config_option(args).detection
    incidents = [] if args.incidents is None else read_incidents(args.incidents)
    stored, judgement = fit_detector(args.metrics, settings, incidents)
    save_fitted(stored, args.model)
    names = [model.name for model in stored.detector.metrics]
    if args.json:
        print(json.dumps(judgement.figures()))
    else:
        write_line(f"{len(names)} metrics, in order: {', '.join(names)}")
        for line in fit_report_lines(judgement):
            write_line(line)
        write_line(f"wrote {args.model}")
    return 0 if judgement.passed else 1


def _run(args: argparse.Namespace) -> int:
    from forewarn.pipelines.detection.detection_run import detect_pulls
    from forewarn.pipelines.detection.stored_detector import open_detector

    load_config_option(args)
    stored = open_detector(args.model)
    options = {"at_risk": args.at_risk, "state": args.state, "events": _events(args)}
    _print_call(_drawn(detect_pulls(args.metrics, stored, **options), stored, args.plot), args.json)
    return 0


def _drawn(
    results: Iterable[TaskVerdict | UnjudgedTask], stored: StoredDetector, plot: Path | None
) -> Iterator[dict[str, Any]]:
    """Yield the output line of every task; plot the judged ones if a folder is given."""
    from forewarn.pipelines.detection.task_result import TaskVerdict

    for result in results:
        yield result.line()
        if plot is not None and isinstance(result, TaskVerdict):
            from forewarn.pipelines.detection.verdict_plot import plot_verdict

            plot_verdict(result, stored, plot)


def _print_line(line: dict[str, Any], as_json: bool) -> None:
    from forewarn.pipelines.detection.detection_text import verdict_text

    if as_json:
        print(json.dumps(line), flush=True)
    else:
        write_line(verdict_text(line))


def _print_call(lines: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print all lines of a call; in text, tasks that could not be judged come last.

    If no task could be judged, the call ends with an error, and only that is printed as text.
    """
    bad = []
    for line in lines:
        if line["not_judged"] is None or as_json:
            _print_line(line, as_json)
        else:
            bad.append(line)
    for line in bad:
        _print_line(line, as_json)


def _events(args: argparse.Namespace) -> HostEvents | None:
    from forewarn.pipelines.storage.evidence.host_events import HostEvents

    return None if args.events is None else HostEvents.open(args.events)


def _watch(args: argparse.Namespace) -> int:
    from forewarn.pipelines.detection.detection_watch import DetectionWatch
    from forewarn.pipelines.detection.live_metrics import LiveMetrics
    from forewarn.pipelines.detection.stored_detector import open_detector
    from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
    from forewarn.pipelines.runtime.interruption import stop_on_signals

    settings, stored = load_config_option(args).watch, open_detector(args.model)
    with ExitStack() as resources:
        source: Path | LiveMetrics = args.metrics
        if args.prometheus is not None:
            server = resources.enter_context(
                closing(PrometheusClient.from_environment(args.prometheus))
            )
            tasks = _tasks_table(args, settings)
            source = LiveMetrics(server, settings, stored.interval, tasks, stored.sampling)
        watch = DetectionWatch(stored, settings, source, args.state, args.at_risk, _events(args))
        stop = stop_on_signals()
        if args.once:
            _print_call(watch.call(), args.json)
        else:
            for line in watch.run(stop):
                _print_line(line, args.json)
    return 0


def _tasks_table(args: argparse.Namespace, settings: WatchTable) -> Path | None:
    """Return the table of tasks; relative paths in a configuration start at its folder."""
    folder = args.config.parent if args.config else Path()
    return folder / settings.tasks if settings.tasks else None


def _pull(args: argparse.Namespace) -> int:
    from forewarn.features.detection.sampling import Sampling
    from forewarn.features.time_units import MINUTE
    from forewarn.pipelines.detection.exporter_files import ExporterFiles
    from forewarn.pipelines.detection.live_metrics import LiveMetrics
    from forewarn.pipelines.detection.metric_export import export_metrics, exported_text
    from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
    from forewarn.pipelines.runtime.clock import SystemClock

    require_start_before_end(args)
    settings = load_config_option(args)
    table = settings.detection
    counters = frozenset(metric.name for metric in table.metrics if metric.kind == "counter")
    with ExitStack() as resources:
        if args.raw is not None:
            files = ExporterFiles(args.raw)
            source: ExporterFiles | PrometheusClient = files
            first, last = files.times
            first -= table.interval
        else:
            server = PrometheusClient.from_environment(args.prometheus)
            resources.callback(server.close)
            source, last = server, SystemClock().now()
            first = (last if args.end is None else args.end) - 15 * MINUTE
        start, end = (args.start or first), (args.end or last)
        tasks = _tasks_table(args, settings.watch)
        live = LiveMetrics(source, settings.watch, table.interval, tasks, Sampling(1, counters))
        names = [metric.name for metric in table.metrics]
        for line in export_metrics(live, names, args.out, start, end):
            write_line(json.dumps(line) if args.json else exported_text(line))
    return 0


def _metrics(args: argparse.Namespace) -> int:
    from forewarn.pipelines.detection.detection_text import metric_lines, reorder_metrics
    from forewarn.pipelines.detection.detector_fit import save_fitted
    from forewarn.pipelines.detection.stored_detector import open_detector

    stored = open_detector(args.model)
    if args.order is not None:
        stored = reorder_metrics(stored, [name.strip() for name in args.order.split(",")])
        save_fitted(stored, args.model)
        print_error(f"wrote {args.model}")
    lines = metric_lines(stored)
    print("\n".join(map(json.dumps, lines) if args.json else map(escape_text, _table(lines))))
    return 0


def _table(lines: list[dict[str, Any]]) -> list[str]:
    head = f"   {'metric':26}{'limits':>18}  {'threshold at 4, 100, 1500 machines':36}importance"
    rows = [
        f"{i:<3}{line['metric']:26}{line['limits']:>18}  "
        f"{'  '.join(f'{t:.2f}' for t in line['thresholds']):36}"
        f"{'' if line['importance'] is None else round(line['importance'], 3)}"
        for i, line in enumerate(lines, 1)
    ]
    return [head, *rows]
