"""Commands that need no fleet: demo, simulate and up."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from forewarn.pipelines.cli.diagnosis import add_simulate_job
from forewarn.pipelines.cli.extras import require_extra
from forewarn.pipelines.cli.inspection_results import add_checks
from forewarn.pipelines.cli.options import (
    Commands,
    Parser,
    add_command,
    add_gpus,
    add_group,
    add_out,
    add_seed,
    integer_at_least,
    positive_number,
)
from forewarn.pipelines.cli.recovery_studies import add_simulate_recovery
from forewarn.pipelines.runtime.terminal import write_line

__all__ = ["add_demo", "add_simulate", "add_up"]

_port = integer_at_least(1, 65535)
_MAX_PULLS = 100_000
_DEMO = Path("demo")


def add_demo(commands: Commands) -> None:
    """Add `forewarn demo`."""
    command = add_command(
        commands,
        "demo",
        _demo,
        "simulate a fleet, backtest, train, and make a list, in a few minutes",
        "forewarn demo --out /tmp/demo\n"
        "  forewarn demo --live --out /tmp/live   (a month of operations behind the console)",
        extra="train",
    )
    add_out(command, "folder (default: demo, or live with --live)", default=_DEMO)
    add_gpus(command, None)
    command.add_argument(
        "--days", type=integer_at_least(1, 10_000), metavar="D", help="days (45, live 30)"
    )
    add_seed(command)
    command.add_argument(
        "--live",
        action="store_true",
        help="train for some minutes, then play a month behind the console, which stays until "
        "Ctrl-C; without a terminal it ends with the month",
    )
    command.add_argument(
        "--speed",
        type=positive_number,
        default=6.0,
        metavar="H",
        help="with --live: simulated hours a second, as far as the machine keeps up (default: 6)",
    )
    command.add_argument(
        "--port",
        type=integer_at_least(0, 65535),
        default=8471,
        metavar="P",
        help="with --live: port of the console on loopback",
    )
    command.add_argument(
        "--full",
        action="store_true",
        help="all models, strategies and baselines; takes many times longer",
    )


def _demo(args: argparse.Namespace) -> int:
    if args.live:
        return _live(args)
    from forewarn.pipelines.sandbox.demo import run_demo

    n_gpus, n_days = args.gpus or 4000, args.days or 45
    run_demo(args.out, n_gpus=n_gpus, n_days=n_days, seed=args.seed, full=args.full)
    return 0


def _live(args: argparse.Namespace) -> int:
    require_extra("demo --live", "server")
    from forewarn.pipelines.sandbox.live_demo import LiveOptions, run_live

    options = LiveOptions(
        gpus=args.gpus or 2000,
        days=args.days or 30,
        seed=args.seed,
        speed=args.speed,
        port=args.port,
        stay=sys.stdout.isatty(),
    )
    run_live(Path("live") if args.out == _DEMO else args.out, options)
    return 0


def add_simulate(commands: Commands) -> None:
    """Add `forewarn simulate`."""
    kinds = add_group(commands, "simulate", "simulate data to try forewarn on")
    command = add_command(
        kinds,
        "fleet",
        _simulate_fleet,
        "simulate a GPU fleet with several failure mechanisms, some without precursors",
        "forewarn simulate fleet --out /tmp/fleet --gpus 200 --days 30 --seed 1",
    )
    add_out(command)
    _fleet_options(command, 500, 45)
    _add_incidents(kinds)
    _add_inspections(kinds)
    add_simulate_job(kinds)
    add_simulate_recovery(kinds)


def _simulate_fleet(args: argparse.Namespace) -> int:
    from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

    simulate_fleet_to(args.out, n_gpus=args.gpus, n_days=args.days, seed=args.seed)
    write_line(f"wrote {args.out}/records, {args.out}/cmdb.csv and {args.out}/truth.csv")
    return 0


def _add_incidents(kinds: Commands) -> None:
    command = add_command(
        kinds,
        "incidents",
        _simulate_incidents,
        "simulate training tasks sampled once a second, some with a faulty machine",
        "forewarn simulate incidents --out /tmp/incidents --faulty 20 --healthy 20 --seed 1",
    )
    add_out(command)
    for name in ("faulty", "healthy"):
        command.add_argument(
            f"--{name}",
            type=integer_at_least(0, _MAX_PULLS),
            default=20,
            metavar="N",
            help=f"{name} pulls (default: 20)",
        )
    add_seed(command)
    command.add_argument(
        "--vary",
        action="store_true",
        help="also draw the site's conditions from the seed: noise, step time, sizes, cadence",
    )


def _simulate_incidents(args: argparse.Namespace) -> int:
    from forewarn.pipelines.sandbox.simulate_tasks import simulate_incidents_to

    counts = {"n_faulty": args.faulty, "n_healthy": args.healthy}
    simulate_incidents_to(args.out, **counts, seed=args.seed, vary=args.vary)
    config = f", {args.out}/detect.toml" if args.vary else ""
    write_line(f"wrote {args.out}/train, {args.out}/pulls{config} and {args.out}/truth.csv")
    return 0


def _add_inspections(kinds: Commands) -> None:
    command = add_command(
        kinds,
        "inspections",
        _simulate_inspections,
        "simulate two weekly runs of checks on machines, some with a defect",
        "forewarn simulate inspections --out /tmp/inspections --machines 40 --seed 1",
    )
    add_out(command)
    for name, least, default in (("machines", 1, 40), ("defects", 0, 8)):
        command.add_argument(
            f"--{name}",
            type=integer_at_least(least, 5000),
            default=default,
            metavar="N",
            help=f"{name} (default: {default})",
        )
    add_checks(command)
    add_seed(command)


def _simulate_inspections(args: argparse.Namespace) -> int:
    from forewarn.pipelines.inspection.check_files import load_checks
    from forewarn.pipelines.sandbox.simulate_inspections import simulate_inspections_to

    counts = {"n_machines": args.machines, "n_defects": args.defects}
    simulate_inspections_to(args.out, load_checks(args.checks), **counts, seed=args.seed)
    write_line(f"wrote {args.out}/results and {args.out}/truth.csv")
    return 0


def _fleet_options(command: Parser, gpus: int, days: int) -> None:
    add_gpus(command, gpus)
    command.add_argument(
        "--days", type=integer_at_least(1, 10_000), default=days, metavar="D", help="days"
    )
    add_seed(command)


def add_up(commands: Commands) -> None:
    """Add `forewarn up`."""
    command = add_command(
        commands,
        "up",
        _up,
        "start local Airflow and MLflow with a continuously simulated fleet",
        "forewarn up --folder /tmp/up",
        extra="airflow",
    )
    command.add_argument("--folder", type=Path, default=Path("up"), help="folder (default: up)")
    add_gpus(command, 300)
    add_seed(command)
    command.add_argument("--airflow-port", type=_port, default=8080, metavar="P", help="port")
    command.add_argument("--mlflow-port", type=_port, default=5000, metavar="P", help="port")


def _up(args: argparse.Namespace) -> int:
    from forewarn.pipelines.sandbox.local_services import run_up

    run_up(
        args.folder,
        n_gpus=args.gpus,
        seed=args.seed,
        airflow_port=args.airflow_port,
        mlflow_port=args.mlflow_port,
    )
    return 0
