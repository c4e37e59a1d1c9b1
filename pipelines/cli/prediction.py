"""Commands for the daily list: doctor, backtest, train, score, review."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.pipelines.cli.options import (
    Commands,
    add_at,
    add_at_risk,
    add_command,
    add_config,
    add_json,
    add_out,
    add_records,
    load_config_option,
    model_names,
    parse_names,
    records_location,
    require_start_before_end,
    time_argument,
)
from forewarn.pipelines.cli.site_defaults import SiteDefault, metrics_folder
from forewarn.pipelines.runtime.terminal import print_error, write_line
from forewarn.pipelines.runtime.timestamps import format_iso

__all__ = ["add_backtest", "add_doctor", "add_review", "add_score", "add_train"]

_STRATEGIES = tuple(Strategy)


def _strategies(text: str) -> tuple[str, ...]:
    return parse_names(text, _STRATEGIES)


def add_doctor(commands: Commands) -> None:
    """Add `forewarn doctor`."""
    command = add_command(
        commands,
        "doctor",
        _doctor,
        "check whether records are fit for training, and report problems",
        "forewarn doctor /tmp/fleet/records --out /tmp/doctor",
    )
    command.add_argument(
        "records",
        nargs="?",
        type=records_location,
        default=SiteDefault("records", records_location),
        help="folder of date=YYYY-MM-DD/*.parquet, or s3://bucket/folder (default: `records` of "
        "[site])",
    )
    add_config(command)
    command.add_argument("--out", type=Path, metavar="DIR", help="write doctor.html and .json")
    add_json(command)


def _doctor(args: argparse.Namespace) -> int:
    from forewarn.pipelines.doctor.data_problems import doctor_text
    from forewarn.pipelines.doctor.examination import examine, write_report

    report = examine(args.records, load_config_option(args))
    print(json.dumps(report) if args.json else doctor_text(report))
    if args.out is not None:
        write_report(args.out, report)
        print_error(f"wrote {args.out}/doctor.html and doctor.json")
    return 0


def add_backtest(commands: Commands) -> None:
    """Add `forewarn backtest`."""
    command = add_command(
        commands,
        "backtest",
        _backtest,
        "run a walk-forward backtest on past records and report the quality of the lists",
        "forewarn backtest --records /tmp/fleet/records --out /tmp/backtest",
        extra="train",
    )
    add_records(command, remote=True)
    add_config(command)
    add_out(command, site="backtests")
    command.add_argument("--start", type=time_argument, metavar="DATE", help="first retraining")
    command.add_argument("--end", type=time_argument, metavar="DATE", help="end of the retrainings")
    command.add_argument(
        "--models",
        type=model_names,
        metavar="NAMES",
        help="among cnn,mlp,gbdt,lstm,linear and those of `models.plugins` "
        "(default: those of the ensembles)",
    )
    command.add_argument(
        "--strategies",
        type=_strategies,
        default=_STRATEGIES[:3],
        metavar="NAMES",
        help="judged after the configured one, among "
        f"{','.join(_STRATEGIES)} (default: the first three, from the paper; "
        "steady pools training.select_over windows, expanding trains on all earlier data)",
    )


def _backtest(args: argparse.Namespace) -> int:
    from forewarn.pipelines.backtest.backtest_run import run_backtest
    from forewarn.pipelines.backtest.backtest_sentences import excluded_text
    from forewarn.pipelines.backtest.backtest_summary import backtest_summary
    from forewarn.pipelines.backtest.blend_section import blend_text
    from forewarn.pipelines.backtest.calibration_section import calibration_monitor_text
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.runtime.progress import note

    require_start_before_end(args)
    job = open_job(args.records, load_config_option(args), args.models)
    report = run_backtest(job, args.out, start=args.start, end=args.end, strategies=args.strategies)
    if left_out := excluded_text(report.left_out):
        note(left_out)
    for strategy, monitor in report.promise.items():
        if monitor and monitor.broken:
            note(f"{strategy}: {' '.join(calibration_monitor_text(monitor))}")
    print(backtest_summary(report), end="\n\n")
    for text in blend_text(report.blend.get(report.configured)):
        write_line(text)
    write_line(f"wrote {args.out}/report.html, report.json and the scores")
    return 0


def add_train(commands: Commands) -> None:
    """Add `forewarn train`."""
    command = add_command(
        commands,
        "train",
        _train,
        "train the predictor as of a time",
        "forewarn train --records /tmp/fleet/records --at 2025-01-26 --model /tmp/model",
        extra="train",
    )
    add_records(command, remote=True)
    add_config(command)
    add_at(command)
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder to write")
    command.add_argument(
        "--start-from",
        metavar="MODEL",
        help="predictor of another site or of a simulated fleet (a folder, or models:/NAME@ALIAS), "
        "combined with equal weight, for a site with few failures",
    )


def _train(args: argparse.Namespace) -> int:
    from forewarn.pipelines.at_risk.fleet_scoring import load_predictor
    from forewarn.pipelines.doctor.data_problems import MIN_FAILURES_TO_TRAIN
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.runtime.progress import note
    from forewarn.pipelines.training.train import train_predictor

    job = open_job(args.records, load_config_option(args))
    for text in job.notes:
        note(text)
    start = None
    if args.start_from:
        start = load_predictor(args.start_from, job.settings, "--start-from")
    predictor = train_predictor(job, args.at, args.model, start)
    span, recorded = predictor.facts.train_length_days, predictor.facts.days_of_records
    days = f"{min(span, recorded):.3g} days"
    if recorded < span:
        days += f" (all available; `training.lengths` asks for {span:.3g})"
    write_line(f"wrote {args.model}: version {predictor.version}, trained on {days}")
    n_failures = predictor.facts.failures_known
    write_line(
        f"failures known at {predictor.facts.trained_at} in the training span: {n_failures:,}"
    )
    if n_failures < MIN_FAILURES_TO_TRAIN:
        write_line(
            f"warning: with fewer than {MIN_FAILURES_TO_TRAIN} failures the built-in rules rank "
            f"at least as well as a model; make the list with `{_rules_command(args)}`"
        )
    return 0


def _rules_command(args: argparse.Namespace) -> str:
    """Return the command that makes the list of the built-in rules for the same records."""
    command = ["forewarn", "score", "--records", str(args.records)]
    command += ["--config", str(args.config)] if args.config else []
    command += ["--model", "builtin:rules", "--at", format_iso(args.at), "--out", "lists"]
    return shlex.join(command)


def add_score(commands: Commands) -> None:
    """Add `forewarn score`."""
    command = add_command(
        commands,
        "score",
        _score,
        "make the daily at-risk list",
        "forewarn score --records /tmp/fleet/records --model /tmp/model --at 2025-01-26 "
        "--out /tmp/at-risk",
    )
    add_records(command, remote=True)
    add_config(command, "for builtin:rules, the registry and costs; the rest is in the model")
    command.add_argument(
        "--model",
        required=True,
        help="folder of `forewarn train`, models:/gpu-failure@champion (in the configured "
        "registry), or builtin:rules, which needs no training",
    )
    add_at(command)
    add_out(command, "folder that receives date=...", site="lists")
    command.add_argument(
        "--hindsight",
        action="store_true",
        help="make the list even if the model was trained after TIME; the list is marked",
    )


def _score(args: argparse.Namespace) -> int:
    from forewarn.pipelines.at_risk.at_risk_list import list_summary
    from forewarn.pipelines.at_risk.fleet_scoring import (
        BUILTIN_RULES,
        load_predictor,
        score_with,
        score_with_rules,
    )
    from forewarn.pipelines.at_risk.list_metrics import write_list_metrics
    from forewarn.pipelines.runtime.progress import note

    if args.model == BUILTIN_RULES:
        made = score_with_rules(load_config_option(args), args.records, args.at)
    else:
        settings = load_config_option(args)
        predictor = load_predictor(args.model, settings)
        made = score_with(
            predictor,
            args.model,
            args.records,
            args.at,
            hindsight=args.hindsight,
            costs=settings.list.costs,
            lists=args.out,
            names=settings.records.names,
        )
    if made.hindsight:
        note("made in hindsight: the model was trained after that time on data of what followed")
    for text in made.sentences:
        note(text)
    folder = made.write(args.out)
    write_list_metrics(metrics_folder(args.config), made, args.out)
    print(list_summary(made), end="\n\n")
    write_line(f"wrote {folder}/at_risk.html, .csv, .json, .parquet and unscored.csv")
    return 0


def add_review(commands: Commands) -> None:
    """Add `forewarn review`."""
    command = add_command(
        commands,
        "review",
        _review,
        "evaluate past lists against the failures that followed",
        "forewarn review --at-risk /tmp/at-risk --failures /tmp/fleet/truth.csv",
    )
    add_at_risk(command)
    command.add_argument(
        "--failures",
        type=Path,
        default=SiteDefault("records", Path, "failures.parquet"),
        metavar="FILE",
        help="CSV or Parquet with gpu_serial and failed_at (default: failures.parquet of `records` "
        "of [site])",
    )
    command.add_argument(
        "--until",
        type=time_argument,
        metavar="TIME",
        help="time up to which the failures are complete (default: the newest failure)",
    )
    add_config(command, "for costs in [list], to count GPU-hours")
    add_json(command)


def _review(args: argparse.Namespace) -> int:
    from forewarn.evaluation.prediction.metrics.list_review import review_metrics
    from forewarn.pipelines.at_risk.list_metrics import recent_review_metrics
    from forewarn.pipelines.at_risk.review_report import review_lists, review_text
    from forewarn.pipelines.metrics.job_textfile import write_job

    settings = load_config_option(args)
    names = settings.records.names
    reviewed = review_lists(args.at_risk, args.failures, args.until, names)
    figures = review_metrics(reviewed, costs=settings.list.costs)
    write_job(metrics_folder(args.config), "review", recent_review_metrics(reviewed))
    print(json.dumps(figures) if args.json else review_text(figures))
    return 0
