"""The command `study`: compares methods on data with ground truth."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forewarn.pipelines.cli.diagnosis_studies import add_diagnosis_studies
from forewarn.pipelines.cli.options import (
    Commands,
    Parser,
    add_command,
    add_detector_model,
    add_group,
    add_json,
    add_out,
    add_seed,
    integer_at_least,
    parse_names,
    positive_number,
)
from forewarn.pipelines.cli.prediction_studies import add_study_prediction
from forewarn.pipelines.cli.recovery_studies import add_study_recovery
from forewarn.pipelines.runtime.terminal import write_line

__all__ = ["add_study"]


def add_study(commands: Commands) -> None:
    """Add `forewarn study`."""
    parts = add_group(commands, "study", "compare methods on data with ground truth")
    _add_study_alarms(parts)
    _add_study_prior(parts)
    _add_study_several(parts)
    _add_study_thresholds(parts)
    _add_study_response(parts)
    _add_study_inspection(parts)
    add_diagnosis_studies(parts)
    add_study_prediction(parts)
    add_study_recovery(parts)
    command = add_command(
        parts,
        "detection",
        _study,
        "compare the detector with the paper's rules, their ablations and simple baselines",
        "forewarn study detection --data /tmp/incidents --model /tmp/detector --out /tmp/study",
        extra="train",
    )
    _add_set(command)
    add_out(command)
    _add_methods(command)


def _add_set(command: Parser) -> None:
    """Add options for the labelled pulls and the detector fitted to their training data."""
    command.add_argument(
        "--data", type=Path, required=True, help="folder in the format of `simulate incidents`"
    )
    add_detector_model(command, "folder written by `detect fit` for DATA/train")


def _add_run(command: Parser) -> None:
    """Add the seed and the output format."""
    add_seed(command)
    add_json(command)


def _add_methods(command: Parser) -> None:
    command.add_argument(
        "--methods",
        type=_methods,
        default=("forewarn", "minder", "means"),
        metavar="NAMES",
        help="separated by semicolons, or `all` (default: forewarn; minder; means)",
    )
    command.add_argument(
        "--false-alarms",
        type=positive_number,
        metavar="RATE",
        help="per task and day, the same for all methods (default: that of the detector)",
    )


def _add_study_several(parts: Commands) -> None:
    command = add_command(
        parts,
        "several",
        _study_several,
        "count identified machines if several fail together, and one after another",
        "forewarn study several --data /tmp/incidents --model /tmp/detector --tasks 10",
        extra="train",
    )
    _add_set(command)
    command.add_argument(
        "--tasks",
        type=integer_at_least(1),
        default=30,
        metavar="N",
        help="tasks per row (default: 30)",
    )
    _add_methods(command)
    _add_run(command)


def _add_study_alarms(parts: Commands) -> None:
    command = add_command(
        parts,
        "alarms",
        _study_alarms,
        "count false alarms on simulated healthy days, with and without wrong at-risk lists",
        "forewarn study alarms --model /tmp/detector --days 20",
        extra="train",
    )
    add_detector_model(command, "folder written by `detect fit`")
    command.add_argument(
        "--days", type=integer_at_least(1), default=20, metavar="N", help="task-days"
    )
    _add_run(command)


def _add_study_thresholds(parts: Commands) -> None:
    command = add_command(
        parts,
        "thresholds",
        _study_thresholds,
        "plot how the thresholds fall with the number of healthy pulls",
        "forewarn study thresholds --metrics /tmp/incidents/train --model /tmp/detector "
        "--out thresholds.png",
        extra="train",
    )
    command.add_argument(
        "--metrics", type=Path, required=True, help="folder of task=NAME/*.parquet, healthy"
    )
    add_detector_model(command, "folder written by `detect fit` for these tasks")
    command.add_argument("--out", type=Path, required=True, metavar="PNG", help="file to write")
    command.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def _add_study_prior(parts: Commands) -> None:
    command = add_command(
        parts,
        "prior",
        _study_prior,
        "measure how much sooner and more often faults are found with a correct at-risk list",
        "forewarn study prior --data /tmp/incidents --model /tmp/detector",
        extra="train",
    )
    _add_set(command)
    _add_run(command)


def _study_alarms(args: argparse.Namespace) -> int:
    from forewarn.pipelines.detection.stored_detector import open_detector
    from forewarn.pipelines.studies.prior_study import alarm_figures, alarm_text

    figures = alarm_figures(open_detector(args.model).detector, args.days, args.seed)
    print(json.dumps(figures) if args.json else alarm_text(figures))
    return 0


def _study_several(args: argparse.Namespace) -> int:
    from forewarn.pipelines.detection.stored_detector import open_detector
    from forewarn.pipelines.studies.detection_study import StudySet
    from forewarn.pipelines.studies.detector_variants import DetectorVariants
    from forewarn.pipelines.studies.multiple_faults import several_figures, several_text

    stored = open_detector(args.model)
    data = StudySet.open(args.data, stored.interval, stored.sampling)
    variants = DetectorVariants.from_stored(stored, data.train, args.false_alarms)
    figures = several_figures(variants, args.methods, args.tasks, args.seed)
    print(json.dumps(figures) if args.json else several_text(figures))
    return 0


def _study_thresholds(args: argparse.Namespace) -> int:
    from forewarn.models.detection.detector_file import load_detector
    from forewarn.pipelines.studies.threshold_study import (
        threshold_figures,
        threshold_picture,
        threshold_text,
    )

    figures = threshold_figures(args.metrics, load_detector(args.model))
    threshold_picture(figures, args.out)
    print(json.dumps(figures) if args.json else threshold_text(figures))
    return 0


def _study_prior(args: argparse.Namespace) -> int:
    from forewarn.pipelines.detection.stored_detector import open_detector
    from forewarn.pipelines.studies.detection_study import StudySet
    from forewarn.pipelines.studies.prior_study import prior_figures, prior_text

    stored = open_detector(args.model)
    data = StudySet.open(args.data, stored.interval, stored.sampling)
    figures = prior_figures(data, stored.detector, args.seed)
    print(json.dumps(figures) if args.json else prior_text(figures))
    return 0


def _methods(text: str) -> tuple[str, ...]:
    from forewarn.pipelines.studies.detector_variants import VARIANTS

    return tuple(VARIANTS) if text == "all" else parse_names(text, VARIANTS, ";")


def _study(args: argparse.Namespace) -> int:
    from forewarn.pipelines.detection.stored_detector import open_detector
    from forewarn.pipelines.studies.detection_study import StudySet, run_study, study_text

    stored = open_detector(args.model)
    data = StudySet.open(args.data, stored.interval, stored.sampling)
    study = run_study(data, stored, args.out, args.methods, args.false_alarms)
    print(study_text(study), end="\n\n")
    write_line(f"wrote {args.out}/study.json, study.csv and study.png")
    return 0


def _add_study_response(parts: Commands) -> None:
    command = add_command(
        parts,
        "response",
        _study_response,
        "simulate a month with and without actions on the at-risk list, and compare the scores",
        "forewarn study response --machines 200 --days 31 --controls 0,0.1,0.5",
        extra="server",
    )
    command.add_argument(
        "--machines", type=integer_at_least(8, 5000), default=200, metavar="N", help="(200)"
    )
    command.add_argument(
        "--days", type=integer_at_least(3, 366), default=31, metavar="D", help="(31)"
    )
    command.add_argument(
        "--controls",
        type=_shares,
        default=(0.0, 0.1, 0.5),
        metavar="SHARES",
        help="holdout shares to try, comma-separated (0,0.1,0.5)",
    )
    _add_run(command)


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = (-1.0,)
    if not all(0.0 <= share <= 1.0 for share in shares):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected shares such as 0,0.1,0.5")
    return shares


def _add_study_inspection(parts: Commands) -> None:
    command = add_command(
        parts,
        "inspection",
        _study_inspection,
        "compare which machines to inspect: none, all monthly, at random, oldest first, by the "
        "at-risk list, and an oracle, at equal node-hours",
        "forewarn study inspection --machines 500 --days 180 --seeds 5 --separation 2",
        extra="server",
    )
    for name, least, default in (("machines", 50, 500), ("days", 30, 180), ("seeds", 1, 5)):
        command.add_argument(
            f"--{name}",
            type=integer_at_least(least, 5000),
            default=default,
            metavar="N",
            help=f"({default})",
        )
    command.add_argument(
        "--separation",
        type=float,
        default=2.0,
        metavar="D",
        help="deviations by which the list's score of a defect exceeds that of others; 0: it knows "
        "nothing (2)",
    )
    add_json(command, "print one JSON object a strategy and seed on stdout")


def _study_inspection(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from forewarn.evaluation.simulation.inspections.inspected_fleet import FleetRates
    from forewarn.pipelines.studies.inspection_study import report_lines, run_study

    rates = FleetRates(machines=args.machines, separation=args.separation)
    rows = run_study(range(1, args.seeds + 1), rates=rates, days=args.days)
    for line in (asdict(row) for row in rows) if args.json else report_lines(rows):
        print(json.dumps(line) if args.json else line)
    return 0


def _study_response(args: argparse.Namespace) -> int:
    from forewarn.evaluation.simulation.operations.month_plan import plan_month
    from forewarn.features.time_units import Nanoseconds
    from forewarn.pipelines.runtime.timestamps import parse_moment
    from forewarn.pipelines.studies.response_study import (
        STRATEGIES,
        report_lines,
        run_strategy,
    )

    start = Nanoseconds(parse_moment("2025-01-01"))
    plan = plan_month(args.machines, args.days, seed=args.seed, start=start)
    names = (*STRATEGIES, *(f"forewarn, control {share:g}" for share in args.controls))
    outcomes = [run_strategy(plan, name, seed=args.seed) for name in names]
    for line in (o.line() for o in outcomes) if args.json else report_lines(plan, outcomes):
        print(json.dumps(line) if args.json else line)
    return 0
