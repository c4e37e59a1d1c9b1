"""The commands that need no fleet: a demo, simulated data, services on loopback."""

from __future__ import annotations

import argparse
from pathlib import Path

from forewarn.pipelines.cli.detection import add_simulate_incidents
from forewarn.pipelines.cli.diagnosis import add_simulate_job
from forewarn.pipelines.cli.options import (
    Commands,
    Parser,
    add_command,
    add_gpus,
    add_group,
    add_out,
    add_seed,
    integer_at_least,
)
from forewarn.pipelines.runtime.terminal import say

__all__ = ["add_demo", "add_simulate", "add_up"]

_port = integer_at_least(1, 65535)


def add_demo(commands: Commands) -> None:
    """Add `forewarn demo`."""
    command = add_command(
        commands,
        "demo",
        _demo,
        "simulate a small fleet, backtest, train, and make a list, in a few minutes",
        "forewarn demo --out /tmp/demo",
    )
    add_out(command, "folder (default: demo)", default=Path("demo"))
    _fleet_options(command, 450, 31)


def _demo(args: argparse.Namespace) -> int:
    from forewarn.pipelines.sandbox.demo import run_demo

    run_demo(args.out, n_gpus=args.gpus, n_days=args.days, seed=args.seed)
    return 0


def add_simulate(commands: Commands) -> None:
    """Add `forewarn simulate`."""
    kinds = add_group(commands, "simulate", "make data to try things on")
    command = add_command(
        kinds,
        "fleet",
        _simulate_fleet,
        "simulate a fleet of GPUs that fail in several ways, some without a sign",
        "forewarn simulate fleet --out /tmp/fleet --gpus 200 --days 30 --seed 1",
    )
    add_out(command)
    _fleet_options(command, 500, 45)
    add_simulate_incidents(kinds)
    add_simulate_job(kinds)


def _simulate_fleet(args: argparse.Namespace) -> int:
    from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

    simulate_fleet_to(args.out, n_gpus=args.gpus, n_days=args.days, seed=args.seed)
    say(f"wrote {args.out}/records, {args.out}/cmdb.csv and {args.out}/truth.csv")
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
        "start Airflow and MLflow on loopback, with a simulated fleet that lives on",
        "forewarn up --folder /tmp/up",
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
