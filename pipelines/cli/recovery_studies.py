"""The commands `simulate recovery` and `study recovery`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.pipelines.cli.options import (
    Commands,
    OptionsError,
    Parser,
    add_command,
    add_json,
    add_seed,
    integer_at_least,
    positive_number,
)
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from forewarn.pipelines.studies.recovery_study import SimulatedSite

__all__ = ["add_simulate_recovery", "add_study_recovery"]

_gpus = integer_at_least(16, 10**6)
_MAX_DAYS = 3660


def _add_site(command: Parser) -> None:
    """Add options for the faults and predictions that a job meets."""
    command.add_argument(
        "--days",
        type=integer_at_least(30, _MAX_DAYS),
        default=360,
        metavar="D",
        help="days, a multiple of 30 (default: 360)",
    )
    command.add_argument(
        "--rate",
        type=positive_number,
        default=6.5,
        metavar="N",
        help="interruptions per 1,000 machine-days (default: 6.5, as on Meta's RSC-1)",
    )
    shares = (
        ("spares", 0.05, "spare machines, as a share of the job's"),
        ("precision", 0.078, "alerts that come true, by default of 20,000 simulated GPUs"),
        ("recall", 0.107, "faults of machines with an alert in the day before, of the same"),
    )
    for name, default, text in shares:
        command.add_argument(
            f"--{name}",
            type=_share,
            default=default,
            metavar="SHARE",
            help=f"{text} (default: {default:g})",
        )
    command.add_argument(
        "--review",
        type=Path,
        metavar="FILE",
        help="output of `review --json`: its precision and recall instead",
    )


def _share(text: str) -> float:
    number = positive_number(text)
    if number > 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a share of at most 1")
    return number


def _site(args: argparse.Namespace) -> SimulatedSite:
    from forewarn.evaluation.simulation.recovery.fault_plan import Predictions
    from forewarn.pipelines.recovery.job_advice import read_review
    from forewarn.pipelines.studies.recovery_study import SimulatedSite

    if args.days % 30:
        raise OptionsError(f"found `--days` {args.days}, expected a multiple of 30.")
    precision, recall = args.precision, args.recall
    if args.review is not None:
        precision, recall = read_review(args.review)
        if not precision or not recall:
            raise OptionsError(f"{args.review}: no alert came true, expected some that did.")
    return SimulatedSite(args.days, args.rate, args.spares, Predictions(precision, recall))


def add_simulate_recovery(kinds: Commands) -> None:
    """Add `forewarn simulate recovery`."""
    command = add_command(
        kinds,
        "recovery",
        _simulate,
        "simulate a large job that recovers from faults, and say what its time was used for",
        "forewarn simulate recovery --gpus 2048 --method '+ Young' --json",
    )
    command.add_argument(
        "--gpus", type=_gpus, default=2048, metavar="N", help="GPUs of the job (default: 2048)"
    )
    command.add_argument(
        "--method",
        default="+ escalation",
        metavar="NAME",
        help="last mechanism that it has, as `study recovery` lists them (default: + escalation)",
    )
    _add_site(command)
    add_seed(command)
    add_json(command)


def _simulate(args: argparse.Namespace) -> int:
    from forewarn.evaluation.simulation.recovery.recovery_method import MECHANISMS
    from forewarn.pipelines.studies.recovery_study import year_figures

    if args.method not in MECHANISMS:
        names = ", ".join(MECHANISMS)
        raise OptionsError(f"found `--method` {args.method[:60]!r}, expected one of: {names}.")
    figures = year_figures(_site(args), args.gpus, args.method, args.seed)
    if args.json:
        print(json.dumps(figures))
        return 0
    total = sum(figures["gpu_hours"].values())
    write_line(f"{figures['interruptions']} interruptions, {figures['planned_stops']} planned")
    for use, hours in figures["gpu_hours"].items():
        write_line(f"  {use:<11}{hours / total:>8.2%}  {hours:,.0f} GPU-hours")
    return 0


def add_study_recovery(parts: Commands) -> None:
    """Add `forewarn study recovery`."""
    command = add_command(
        parts,
        "recovery",
        _study,
        "measure what each mechanism of recovery saves simulated jobs, one added after another",
        "forewarn study recovery --gpus 128,2048,16384 --seeds 3 --out /tmp/recovery",
        extra="train",
    )
    command.add_argument(
        "--gpus",
        type=_sizes,
        default=(128, 2048, 16384),
        metavar="SIZES",
        help="of the jobs, comma-separated (default: 128,2048,16384)",
    )
    command.add_argument(
        "--seeds", type=integer_at_least(1, 100), default=3, metavar="N", help="years (default: 3)"
    )
    _add_site(command)
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for recovery.json and recovery.png"
    )
    add_json(command)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_gpus(part) for part in text.split(","))


def _study(args: argparse.Namespace) -> int:
    from forewarn.pipelines.studies.recovery_study import (
        SIZES,
        break_even_figures,
        mechanism_figures,
        rate_figures,
        study_lines,
    )

    site, seeds = _site(args), range(args.seeds)
    rows = mechanism_figures(site, args.gpus, seeds)
    break_even = break_even_figures(site, max(args.gpus), seeds)
    figures: dict[str, Any] = {"mechanisms": rows, "moves": break_even}
    if args.out is not None:
        from forewarn.pipelines.storage.files.atomic_files import write_atomic
        from forewarn.pipelines.studies.recovery_plot import recovery_picture

        figures["rates"] = rate_figures(site, SIZES, seeds)
        write_atomic(args.out / "recovery.json", json.dumps(figures).encode())
        recovery_picture(figures["rates"], break_even, args.out / "recovery.png")
    if args.json:
        print(json.dumps(figures))
        return 0
    for line in study_lines(rows, break_even):
        write_line(line)
    return 0
