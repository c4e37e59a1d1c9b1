"""The command `tune`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forewarn.pipelines.cli.options import (
    Commands,
    add_at,
    add_command,
    add_config,
    add_json,
    add_records,
    integer_at_least,
    load_config_option,
    model_names,
    positive_number,
)
from forewarn.pipelines.runtime.terminal import write_line

__all__ = ["add_tune"]


def add_tune(commands: Commands) -> None:
    """Add `forewarn tune`."""
    command = add_command(
        commands,
        "tune",
        _tune,
        "search hyperparameters and the history of features, and judge them on later windows",
        "forewarn tune --records /tmp/fleet/records --at 2025-03-20 --models gbdt --trials 30 "
        "--minutes 20 --out tuned.toml",
        extra="tune",
    )
    add_records(command, remote=True)
    add_config(command)
    add_at(command)
    command.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="fragment of a configuration, TOML"
    )
    command.add_argument(
        "--models",
        type=model_names,
        metavar="NAMES",
        help="models to train and tune; networks take minutes a trial (default: those of the "
        "ensembles)",
    )
    command.add_argument(
        "--trials", type=integer_at_least(2), default=30, metavar="N", help="trials at most (30)"
    )
    command.add_argument(
        "--minutes",
        type=positive_number,
        default=30.0,
        metavar="M",
        help="no trial starts after so many minutes (30)",
    )
    command.add_argument(
        "--windows",
        type=integer_at_least(1, 1000),
        default=4,
        metavar="N",
        help="test windows for choosing, and later ones for judging (4)",
    )
    add_json(command)


def _tune(args: argparse.Namespace) -> int:
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.runtime.progress import note
    from forewarn.pipelines.storage.files.atomic_files import replacing
    from forewarn.pipelines.training.tuning import TuningBudget, tune
    from forewarn.pipelines.training.tuning_report import toml_fragment, tuning_dict, tuning_text

    settings = load_config_option(args)
    job = open_job(args.records, settings, args.models)
    for text in job.notes:
        note(text)
    tuning = tune(job, args.at, TuningBudget(args.trials, args.minutes, args.windows))
    with replacing(args.out) as path:
        path.write_text(toml_fragment(tuning, settings), encoding="utf-8")
    if args.json:
        print(json.dumps(tuning_dict(tuning)))
    else:
        print(tuning_text(tuning), end="\n\n")
        write_line(f"wrote {args.out}")
    return 0
