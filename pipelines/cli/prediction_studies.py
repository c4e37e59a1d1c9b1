"""The command `study prediction`."""

from __future__ import annotations

import argparse
import json

from forewarn.models.prediction.model_names import MODEL_NAMES
from forewarn.pipelines.cli.options import (
    Commands,
    add_command,
    add_config,
    add_json,
    add_out,
    integer_at_least,
    load_config_option,
    parse_names,
)
from forewarn.pipelines.runtime.terminal import print_error

__all__ = ["add_study_prediction"]


def add_study_prediction(parts: Commands) -> None:
    """Add `forewarn study prediction`."""
    command = add_command(
        parts,
        "prediction",
        _study_prediction,
        "compare methods, strategies, training lengths and retraining intervals on simulated "
        "fleets, as in the paper",
        "forewarn study prediction --gpus 400 --days 108 --seeds 1,2,3 --out /tmp/prediction",
        extra="train",
    )
    command.add_argument(
        "--gpus", type=integer_at_least(8, 1_000_000), default=400, metavar="N", help="(400)"
    )
    command.add_argument(
        "--days",
        type=integer_at_least(2, 3660),
        default=108,
        metavar="D",
        help="days of records; the first training needs the longest length (108)",
    )
    command.add_argument(
        "--seeds",
        type=_seeds,
        default=(1,),
        metavar="LIST",
        help="seeds, one fleet each, comma-separated (1)",
    )
    command.add_argument(
        "--models",
        type=_models,
        default=MODEL_NAMES,
        metavar="NAMES",
        help=f"among {','.join(MODEL_NAMES)} (default: all)",
    )
    add_config(command)
    add_out(command)
    add_json(command)


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(integer_at_least(0)(part) for part in text.split(",")))


def _models(text: str) -> tuple[str, ...]:
    return parse_names(text, MODEL_NAMES)


def _study_prediction(args: argparse.Namespace) -> int:
    from forewarn.pipelines.studies.prediction_study import (
        prediction_figures,
        write_prediction_study,
    )
    from forewarn.pipelines.studies.prediction_text import prediction_text

    settings = load_config_option(args)
    figures = prediction_figures(settings, args.models, args.gpus, args.days, args.seeds)
    write_prediction_study(figures, args.out)
    print(json.dumps(figures) if args.json else prediction_text(figures))
    print_error(f"wrote {args.out}/study.json, study.csv and study.png")
    return 0
