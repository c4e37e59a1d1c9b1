"""The command `console`: pages over the ledger, the lists and the API."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.options import (
    Commands,
    OptionsError,
    add_command,
    add_config,
    integer_at_least,
)

if TYPE_CHECKING:
    from forewarn.pipelines.console.console_site import ConsoleSite
    from forewarn.pipelines.console.openid import OpenIdProvider
    from forewarn.pipelines.incidents.api.api_context import ApiContext
    from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
    from forewarn.pipelines.incidents.ledger.ledger import Ledger
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite

__all__ = ["add_console", "api_context", "open_console"]

_SECRET = "FOREWARN_CONSOLE_SECRET"  # environment variable


def add_console(commands: Commands) -> None:
    """Add `forewarn console`."""
    command = add_command(
        commands,
        "console",
        _console,
        "serve the console, pages for the people on call, with the API",
        "forewarn respond --new-token ann:act   (once; set FOREWARN_RESPOND_TOKENS)\n"
        "  forewarn console --config my.toml      (then sign in at http://127.0.0.1:8471)",
        extra="server",
    )
    add_config(command)
    command.add_argument(
        "--port",
        type=integer_at_least(0, 65535),
        metavar="P",
        help="port (default: `port` of [respond]); 0: any free one",
    )


def _console(args: argparse.Namespace) -> int:
    from forewarn.pipelines.console.console_app import make_console
    from forewarn.pipelines.incidents.api.app import serve_api
    from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite

    site = ResponseSite.from_config(args.config)
    listener = site.listener()
    if args.port is not None:
        listener = replace(listener, port=args.port)
    with site.ledger() as ledger:
        context = api_context(site, ledger, RespondMetrics(site.pools))
        serve_api(context, listener, app=make_console(open_console(site, context)))
    return 0


def api_context(site: ResponseSite, ledger: Ledger, metrics: RespondMetrics) -> ApiContext:
    """Return the state of the API of a site."""
    from forewarn.pipelines.incidents.api.api_context import ApiContext
    from forewarn.pipelines.incidents.loop.alert_cache import AlertCache
    from forewarn.pipelines.incidents.loop.ledger_score import score_ledger
    from forewarn.pipelines.storage.evidence.daily_lists import DailyLists
    from forewarn.response.state.step import Step

    access, book = site.access(os.environ), AlertCache(ledger)
    score = partial(score_ledger, site, ledger, cache=book)
    switch = site.switch(ledger)
    alerts = {name: Step(step) for name, step in site.table.alerts.items()}
    return ApiContext(
        *(ledger, access, switch, lambda: score(now=Nanoseconds(time.time_ns()))),
        metrics=metrics,
        alerts=alerts,
        lists=DailyLists(site.lists),
        diagnoses=tuple(site.diagnoses),
    )


def open_console(site: ResponseSite, context: ApiContext) -> ConsoleSite:
    """Return the console of a site."""
    from forewarn.pipelines.console.console_site import ConsoleSite
    from forewarn.pipelines.console.registered_models import registered_models
    from forewarn.pipelines.incidents.loop.ledger_score import costs_from_table

    return ConsoleSite(
        context,
        costs_from_table(site.table.costs),
        models=lambda: registered_models(site.settings),
        loop_every=site.core.loop_every,
        secure=bool(site.table.certificate),
        openid=_openid(site),
    )


def _openid(site: ResponseSite) -> OpenIdProvider | None:
    """Return the identity provider of a site, if it has one."""
    from forewarn.pipelines.console.openid import OpenIdProvider, OpenIdSettings
    from forewarn.pipelines.console.openid_routes import BACK
    from forewarn.pipelines.incidents.api.access_control import Role

    table, secret = site.settings.console, os.environ.get(_SECRET, "")
    if not table.issuer:
        return None
    if not secret:
        raise OptionsError(f"`console.issuer` is set and {_SECRET} is not, expected the secret.")
    roles = {group: Role(role) for group, role in table.roles.items()}
    redirect = f"{table.address.rstrip('/')}{BACK}"
    claims = (table.name_claim, table.role_claim, roles)
    return OpenIdProvider(OpenIdSettings(table.issuer, table.client_id, secret, redirect, *claims))
