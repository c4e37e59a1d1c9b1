"""The command line: one verb for each stage, no logic of its own."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from forewarn.evaluation.prediction.strategies import Strategy
from forewarn.features.errors import InputError
from forewarn.pipelines.cli.collection import add_agent, add_collect, add_ingest
from forewarn.pipelines.cli.detection import add_detect, add_simulate_incidents
from forewarn.pipelines.cli.models import add_models, add_retrain, add_up
from forewarn.pipelines.cli.options import (
    Parser,
    add_at,
    add_command,
    add_config,
    add_records,
    integer_at_least,
    moment,
    names_of,
    settings_of,
)
from forewarn.pipelines.cli.studies import add_study
from forewarn.pipelines.runtime.terminal import complain, say

__all__ = ["main"]

_LONGEST = 500  # characters of what is wrong
_STRATEGIES = tuple(Strategy)


def _strategies(text: str) -> tuple[str, ...]:
    return names_of(text, _STRATEGIES)


def _models(text: str) -> tuple[str, ...]:
    from forewarn.models.prediction.catalogue import MODEL_NAMES

    return names_of(text, MODEL_NAMES)


def _simulate_fleet(args: argparse.Namespace) -> int:
    from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

    simulate_fleet_to(args.out, n_gpus=args.gpus, n_days=args.days, seed=args.seed)
    say(f"wrote {args.out}/records, {args.out}/cmdb.csv and {args.out}/truth.csv")
    return 0


def _backtest(args: argparse.Namespace) -> int:
    from forewarn.pipelines.backtest.run import run_backtest
    from forewarn.pipelines.backtest.sentences import left_out_words
    from forewarn.pipelines.backtest.summary import backtest_summary
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.runtime.progress import note

    job = open_job(args.records, settings_of(args), args.models)
    report = run_backtest(job, args.out, start=args.start, end=args.end, strategies=args.strategies)
    for text in (*report["notes"], left_out_words(report)):
        if text:
            note(text)
    print(backtest_summary(report), end="\n\n")
    say(f"wrote {args.out}/report.html, report.json and the scores")
    return 0


def _train(args: argparse.Namespace) -> int:
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.runtime.progress import note
    from forewarn.pipelines.training.train import train_predictor

    job = open_job(args.records, settings_of(args))
    for text in job.notes:
        note(text)
    predictor = train_predictor(job, args.at, args.model)
    days = predictor.facts["train_length_days"]
    say(f"wrote {args.model}: version {predictor.version}, trained on {days:g} days")
    return 0


def _score(args: argparse.Namespace) -> int:
    from forewarn.pipelines.at_risk.score import (
        BUILTIN_RULES,
        load_predictor,
        score_with,
        score_with_rules,
    )
    from forewarn.pipelines.at_risk.summary import list_summary
    from forewarn.pipelines.runtime.progress import note

    if args.model == BUILTIN_RULES:
        made = score_with_rules(settings_of(args), args.records, args.at)
    else:
        predictor = load_predictor(args.model, settings_of(args).registry)
        made = score_with(predictor, args.model, args.records, args.at, hindsight=args.hindsight)
    if made.hindsight:
        note("made in hindsight: the model was trained after that moment and knows what followed")
    folder = made.write(args.out)
    print(list_summary(made), end="\n\n")
    say(f"wrote {folder}/at_risk.html, .csv, .json, .parquet and unscored.csv")
    return 0


def _review(args: argparse.Namespace) -> int:
    from forewarn.evaluation.prediction.list_review import review_figures
    from forewarn.pipelines.at_risk.review import review_lists, review_text

    figures = review_figures(review_lists(args.at_risk, args.failures, args.until))
    print(json.dumps(figures) if args.json else review_text(figures))
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from forewarn.pipelines.doctor.examination import examine, write_report
    from forewarn.pipelines.doctor.findings import doctor_text

    found = examine(args.records, settings_of(args))
    print(json.dumps(found) if args.json else doctor_text(found))
    if args.out is not None:
        write_report(args.out, found)
        complain(f"wrote {args.out}/doctor.html and doctor.json")
    return 0


def _demo(args: argparse.Namespace) -> int:
    from forewarn.pipelines.sandbox.demo import run_demo

    run_demo(args.out, n_gpus=args.gpus, n_days=args.days, seed=args.seed)
    return 0


def _fleet_options(command: Parser, gpus: int, days: int) -> None:
    command.add_argument(
        "--gpus", type=integer_at_least(1, 1_000_000), default=gpus, metavar="N", help="GPUs"
    )
    command.add_argument(
        "--days", type=integer_at_least(1, 10_000), default=days, metavar="D", help="days"
    )
    command.add_argument("--seed", type=integer_at_least(0), default=0, metavar="S", help="seed")


def _add_simulate(commands: argparse._SubParsersAction[Parser]) -> None:
    parent = commands.add_parser("simulate", help="make data to try things on")
    kinds = parent.add_subparsers(required=True, metavar="WHAT", parser_class=Parser)
    command = add_command(
        kinds,
        "fleet",
        _simulate_fleet,
        "simulate a fleet of GPUs that fail in several ways, some without a sign",
        "forewarn simulate fleet --out /tmp/fleet --gpus 200 --days 30 --seed 1",
    )
    command.add_argument("--out", type=Path, required=True, help="folder to write")
    _fleet_options(command, 500, 45)
    add_simulate_incidents(kinds)


def _add_backtest(commands: argparse._SubParsersAction[Parser]) -> None:
    command = add_command(
        commands,
        "backtest",
        _backtest,
        "walk through past records as production would and report how good the lists were",
        "forewarn backtest --records /tmp/fleet/records --out /tmp/backtest",
    )
    add_records(command)
    add_config(command)
    command.add_argument("--out", type=Path, required=True, help="folder to write")
    command.add_argument("--start", type=moment, metavar="DATE", help="first retraining")
    command.add_argument("--end", type=moment, metavar="DATE", help="retrainings end before")
    command.add_argument(
        "--models",
        type=_models,
        metavar="NAMES",
        help="of cnn,mlp,gbdt,lstm (default: those that the ensembles name)",
    )
    command.add_argument(
        "--strategies",
        type=_strategies,
        default=_STRATEGIES[:3],
        metavar="NAMES",
        help=f"of {','.join(_STRATEGIES)} (default: all but the last, which pools "
        "training.select_over windows)",
    )


def _add_train(commands: argparse._SubParsersAction[Parser]) -> None:
    command = add_command(
        commands,
        "train",
        _train,
        "train the whole predictor as of a moment",
        "forewarn train --records /tmp/fleet/records --at 2025-02-10 --model /tmp/model",
    )
    add_records(command)
    add_config(command)
    add_at(command)
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder to write")


def _add_score(commands: argparse._SubParsersAction[Parser]) -> None:
    command = add_command(
        commands,
        "score",
        _score,
        "make the daily at-risk list",
        "forewarn score --records /tmp/fleet/records --model /tmp/model --at 2025-02-10 "
        "--out /tmp/at-risk",
    )
    add_records(command)
    add_config(command, "for builtin:rules, and for the registry; a model brings its own")
    command.add_argument(
        "--model",
        required=True,
        help="folder of `forewarn train`, models:/gpu-failure@champion (of the registry that the "
        "configuration names), or builtin:rules, which needs no training",
    )
    add_at(command)
    command.add_argument("--out", type=Path, required=True, help="folder to write date=... into")
    command.add_argument(
        "--hindsight",
        action="store_true",
        help="also if the model was trained after TIME; the list says so then",
    )


def _add_review(commands: argparse._SubParsersAction[Parser]) -> None:
    command = add_command(
        commands,
        "review",
        _review,
        "score past lists against what then happened",
        "forewarn review --at-risk /tmp/at-risk --failures /tmp/fleet/truth.csv",
    )
    command.add_argument(
        "--at-risk", type=Path, required=True, help="folder of date=.../at_risk.parquet"
    )
    command.add_argument(
        "--failures",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV or Parquet with gpu_serial and failed_at",
    )
    command.add_argument(
        "--until",
        type=moment,
        metavar="TIME",
        help="up to when the failures are complete (default: the newest one)",
    )
    command.add_argument("--json", action="store_true", help="one JSON object on stdout")


def _add_doctor(commands: argparse._SubParsersAction[Parser]) -> None:
    command = add_command(
        commands,
        "doctor",
        _doctor,
        "say whether records can be trained on, and what is wrong with them",
        "forewarn doctor /tmp/fleet/records --out /tmp/doctor",
    )
    command.add_argument("records", type=Path, help="folder of date=YYYY-MM-DD/*.parquet")
    add_config(command)
    command.add_argument("--out", type=Path, metavar="DIR", help="write doctor.html and .json")
    command.add_argument("--json", action="store_true", help="one JSON object on stdout")


def _add_demo(commands: argparse._SubParsersAction[Parser]) -> None:
    command = add_command(
        commands,
        "demo",
        _demo,
        "simulate a small fleet, backtest, train, and make a list, in a few minutes",
        "forewarn demo --out /tmp/demo",
    )
    command.add_argument("--out", type=Path, default=Path("demo"), help="folder (default: demo)")
    _fleet_options(command, 450, 31)


def _parser() -> Parser:
    parser = Parser(
        prog="forewarn",
        description="Tells which GPUs of a fleet will fail within a day, and why.",
        epilog="example:\n  forewarn demo            (everything once, on a simulated fleet)\n"
        "  forewarn backtest --help  (each command has an example)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for add in (
        _add_demo,
        _add_simulate,
        add_agent,
        add_collect,
        add_ingest,
        _add_doctor,
        _add_backtest,
        _add_train,
        add_retrain,
        add_models,
        add_up,
        _add_score,
        _add_review,
        add_detect,
        add_study,
    ):
        add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, after one line where the input is wrong."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses, secrets and all
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that an old terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        args = _parser().parse_args(argv)
        run: Callable[[argparse.Namespace], int] = args.run
        code = run(args)
        if sys.stdout is not None:
            sys.stdout.flush()  # here an error of it can be said; at the exit it cannot
    except BrokenPipeError:  # whoever read our output has enough, such as `head`
        _drop_output()
        return 128 + signal.SIGPIPE
    except (InputError, OSError) as error:
        said = _described(error)  # a cell may be a file's worth of text
        complain(f"forewarn: error: {said if len(said) <= _LONGEST else said[:_LONGEST] + '...'}")
        return 2
    except KeyboardInterrupt:
        complain("forewarn: interrupted")
        return 128 + signal.SIGINT
    return code


def _described(error: InputError | OSError) -> str:
    """Say in one line what is wrong, and with which file."""
    if not isinstance(error, OSError):
        return str(error)
    why = os.strerror(error.errno) if error.errno else str(error)
    return f"{error.filename or 'the output'}: {why}."


def _drop_output() -> None:
    """Let what is still to be written go nowhere, or the exit would complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
