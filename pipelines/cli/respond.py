"""The command `respond`: runs the responder, its API, and the response score."""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.console import api_context, open_console
from forewarn.pipelines.cli.options import Commands, OptionsError, add_command, add_config, add_json
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from fastapi import FastAPI

    from forewarn.pipelines.incidents.api.api_context import ApiContext
    from forewarn.pipelines.incidents.ledger.ledger import Ledger
    from forewarn.pipelines.incidents.loop.leader_election import TermLease
    from forewarn.pipelines.incidents.loop.responder import LoopDecision, Responder
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite

__all__ = ["add_respond"]

_QUERY_SACCTMGR = ""  # query sacctmgr instead of reading a file


class SchedulerError(InputError):
    """The scheduler does not respond, or its output cannot be parsed."""


def add_respond(commands: Commands) -> None:
    """Add `forewarn respond`."""
    command = add_command(
        commands,
        "respond",
        _respond,
        "process findings and take (or only report) the actions that the policy prescribes",
        "forewarn respond --once --config my.toml   (observes unless [respond] permits actions)\n"
        "  forewarn respond --watch --config my.toml --serve   (repeatedly, with the API)\n"
        "  forewarn respond --score --config my.toml   (results of the actions so far)\n"
        "  forewarn respond --slurm-history --config my.toml   (initially: import past failures)",
        extra="server",
    )
    add_config(command)
    how = command.add_argument_group("mode")
    how.add_argument("--once", action="store_true", help="process findings once and exit")
    how.add_argument("--watch", action="store_true", help="repeat at the interval [respond] every")
    how.add_argument("--serve", action="store_true", help="serve API and console, also alone")
    how.add_argument("--score", action="store_true", help="print the response score and exit")
    how.add_argument(
        "--slurm-history",
        nargs="?",
        const=_QUERY_SACCTMGR,
        metavar="FILE",
        help="import past outages for retraining from the output of `TZ=UTC sacctmgr -n -P show "
        "event event=node start=DATE format=NodeName,Start,End,State,User,Reason`, or without a "
        "file query sacctmgr for the last year; then exit",
    )
    how.add_argument(
        "--new-ledger",
        action="store_true",
        help="create an empty ledger and exit, or continue with --once; required if a pool permits "
        "actions and the ledger does not exist yet or was lost without a backup",
    )
    how.add_argument(
        "--new-token",
        metavar="NAME:ROLE[:HOSTLIST]",
        help="print a new API token and its entry for FOREWARN_RESPOND_TOKENS, and exit; with the "
        "role `report` and a HOSTLIST such as node-[01-16] it may report for these hosts; without "
        "one for any host, but then its findings lead at most to `avoid`",
    )
    add_json(command, "print one JSON object per decision on stdout")


def _respond(args: argparse.Namespace) -> int:
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite

    if args.new_token is not None:
        return _new_token(args.new_token)
    history = args.slurm_history is not None
    chosen = args.once + args.score + history + (args.watch or args.serve)
    if chosen > 1 or chosen + args.new_ledger == 0:
        raise OptionsError("expected --once, --score, --slurm-history, or --watch and --serve.")
    if args.new_ledger and chosen > args.once:
        raise OptionsError("--new-ledger can be used alone or with --once only.")
    site = ResponseSite.from_config(args.config)
    if args.new_ledger:
        with site.new_ledger() as ledger:
            return _once(site, ledger, args.json) if args.once else _say_new(site)
    if history:
        return _learn_history(site, args.slurm_history, args.json)
    if args.score:
        with site.ledger_to_look_at() as ledger:
            return _score(site, ledger, args.json)
    with _opened(site) as ledger:
        if args.once:
            return _once(site, ledger, args.json)
        return _run_on(site, ledger, args)


def _say_new(site: ResponseSite) -> int:
    write_line(f"created an empty ledger: {site.ledger_url}")
    return 0


def _opened(site: ResponseSite) -> Ledger:
    """Open the ledger; if it was lost, send an alert about machines drained by forewarn."""
    from forewarn.pipelines.incidents.ledger.database import MissingLedgerError

    try:
        return site.ledger()
    except MissingLedgerError:
        _alert_marks(site)
        raise


def _alert_marks(site: ResponseSite) -> None:
    from forewarn.pipelines.incidents.schedulers.driver import DriverError
    from forewarn.pipelines.runtime.alerts import alert
    from forewarn.response.follow_up.unknown_marks import find_unknown_marks, unknown_marks_alert

    driver = site.driver()
    with suppress(DriverError):
        words = unknown_marks_alert(
            find_unknown_marks(driver.read().machines, ()) if driver else ()
        )
        if words:
            alert("respond", words)


def _responder(site: ResponseSite, ledger: Ledger) -> Responder:
    from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
    from forewarn.pipelines.incidents.loop.responder import Responder

    metrics, messages = RespondMetrics(site.pools), site.messages(ledger, os.environ)
    parts = (site, ledger, site.policy(), site.driver())
    return Responder(*parts, metrics=metrics, messages=messages)


def _print(decided: Sequence[LoopDecision], as_json: bool) -> None:
    from forewarn.pipelines.incidents.loop.decision_output import decision_line, decision_text

    for item in decided:
        if as_json:
            line = decision_line(item.incident, item.decision) | {"new": item.new}
            print(json.dumps(line), flush=True)
        else:
            write_line(decision_text(item.incident, item.decision))


def _answered(responder: Responder) -> list[LoopDecision]:
    """Run the responder once; a scheduler that does not respond is an error of one line."""
    from forewarn.pipelines.incidents.schedulers.driver import DriverError

    try:
        return responder.once()
    except DriverError as error:
        raise SchedulerError(f"the scheduler cannot be used: {error}.") from None


def _leads(lease: TermLease, ledger: Ledger) -> bool:
    """Tell whether this responder holds the lease; a server that does not answer is an error."""
    from forewarn.pipelines.incidents.loop.leader_election import lead
    from forewarn.pipelines.incidents.schedulers.driver import DriverError

    try:
        return lead(lease, ledger)
    except DriverError as error:
        raise SchedulerError(f"the lease cannot be used: {error}.") from None


def _once(site: ResponseSite, ledger: Ledger, as_json: bool) -> int:
    from forewarn.pipelines.incidents.loop.round_metrics import write_round

    responder = _responder(site, ledger)
    _print(decided := _answered(responder), as_json)
    if responder.messages is not None:
        responder.messages.send_once()
        responder.messages.close()
    write_round(site, ledger, responder.metrics)
    if not decided:
        note("no open incidents")
    return 0


def _run_on(site: ResponseSite, ledger: Ledger, args: argparse.Namespace) -> int:
    """Run the responder repeatedly, serve the API, or both, until stopped."""
    from forewarn.pipelines.console.console_app import make_console
    from forewarn.pipelines.incidents.api.app import serve_api
    from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
    from forewarn.pipelines.incidents.loop.respond_watch import ApiThread, watch_loop
    from forewarn.pipelines.incidents.loop.round_metrics import write_round
    from forewarn.pipelines.runtime.alerts import alert
    from forewarn.pipelines.runtime.clock import SystemClock

    def make(context: ApiContext) -> FastAPI:
        return make_console(open_console(site, context))

    if not args.watch:
        context = api_context(site, ledger, RespondMetrics(site.pools))
        serve_api(context, site.listener(), app=make(context))
        return 0
    responder, lease = _responder(site, ledger), site.lease()
    messages, ended = responder.messages, threading.Event()
    warn = alert if messages is None else messages.warn
    desk = partial(api_context, site, ledger, responder.metrics)
    served = ApiThread(desk, site.listener(), warn, make) if args.serve else None
    if served is not None:
        served.start()

    def call() -> None:
        if served is not None:
            served.restart_if_ended()
        if lease is not None and not _leads(lease, ledger):
            return
        _print([item for item in _answered(responder) if item.new], args.json)
        if served is None:
            write_round(site, ledger, responder.metrics)

    every, longest = Nanoseconds(site.table.every), site.core.loop_every
    if messages is not None:
        messages.start(ended)
    watch_loop(call, every=every, longest=longest, clock=SystemClock(), ended=ended, warn=warn)
    return 0


def _new_token(text: str) -> int:
    from forewarn.pipelines.incidents.api.access_control import new_token, parse_access

    token, digest = new_token()
    parse_access(f"{text}={digest}")
    print(token)
    write_line(
        f"Store it safely; forewarn keeps only its digest. Add to FOREWARN_RESPOND_TOKENS: "
        f"{text}={digest}"
    )
    return 0


def _now() -> Nanoseconds:
    return Nanoseconds(time.time_ns())


def _learn_history(site: ResponseSite, file: str, as_json: bool) -> int:
    """Import past outages from Slurm and print the result."""
    from forewarn.pipelines.incidents.loop.slurm_history_import import import_history
    from forewarn.pipelines.incidents.schedulers.driver import DriverError

    try:
        learned = import_history(site, Path(file) if file else None, now=_now())
    except DriverError as error:
        raise SchedulerError(f"the scheduler cannot be used: {error}.") from None
    for line in learned.lines() if as_json else ():
        print(json.dumps(line))
    if not as_json:
        print(learned.text())
    return 0


def _score(site: ResponseSite, ledger: Ledger, as_json: bool) -> int:
    from forewarn.pipelines.incidents.loop.ledger_score import score_ledger, score_text

    score = score_ledger(site, ledger, now=_now())
    print(json.dumps(score) if as_json else score_text(score))
    return 0
