"""`forewarn study diagnosis` and `study false-hangs`: simulated jobs with ground truth."""

from __future__ import annotations

import argparse
import json

from forewarn.pipelines.cli.options import (
    Commands,
    add_command,
    add_json,
    add_seed,
    integer_at_least,
)

__all__ = ["add_diagnosis_studies"]


def add_diagnosis_studies(parts: Commands) -> None:
    """Add both studies."""
    _add_study_diagnosis(parts)
    _add_study_false_hangs(parts)


def _add_study_diagnosis(parts: Commands) -> None:
    command = add_command(
        parts,
        "diagnosis",
        _study_diagnosis,
        "simulate faulty and healthy jobs, and count how often the culprit is identified",
        "forewarn study diagnosis --jobs 20 --ranks 8,64 --seed 1",
        extra="train",
    )
    command.add_argument(
        "--jobs", type=integer_at_least(1, 10_000), default=20, metavar="N", help="faulty jobs (20)"
    )
    command.add_argument(
        "--ranks", type=_sizes, default=(8, 64), metavar="LIST", help="multiples of 4 (8,64)"
    )
    command.add_argument(
        "--hangs", action="store_true", help="only hangs, diagnosed minutes after they began"
    )
    add_seed(command)
    add_json(command)


def _add_study_false_hangs(parts: Commands) -> None:
    command = add_command(
        parts,
        "false-hangs",
        _study_false_hangs,
        "simulate healthy jobs that save, evaluate, compile and are restarted, and count how often "
        "one is classified as a hang",
        "forewarn study false-hangs --days 60 --ranks 8,16 --seed 1",
        extra="train",
    )
    command.add_argument(
        "--days", type=integer_at_least(1, 1000), default=1, metavar="N", help="job-days (1)"
    )
    command.add_argument(
        "--ranks", type=_sizes, default=(8, 16), metavar="LIST", help="multiples of 4 (8,16)"
    )
    add_seed(command)
    add_json(command)


def _study_false_hangs(args: argparse.Namespace) -> int:
    from forewarn.pipelines.studies.false_hang_study import false_hang_figures, false_hang_text

    figures = false_hang_figures(args.days, args.ranks, args.seed)
    print(json.dumps(figures) if args.json else false_hang_text(figures))
    return 0


def _sizes(text: str) -> tuple[int, ...]:
    size = integer_at_least(4, 4096)
    sizes = tuple(size(part) for part in text.split(","))
    if any(number % 4 for number in sizes):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected multiples of 4")
    return sizes


def _study_diagnosis(args: argparse.Namespace) -> int:
    from forewarn.pipelines.studies.diagnosis_study import (
        diagnosis_figures,
        diagnosis_text,
        hang_figures,
    )

    measure = hang_figures if args.hangs else diagnosis_figures
    figures = measure(args.jobs, args.ranks, args.seed)
    print(json.dumps(figures) if args.json else diagnosis_text(figures))
    return 0
