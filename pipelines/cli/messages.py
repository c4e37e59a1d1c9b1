"""The command `messages`: the receivers of messages, their state, and a test of one."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.options import (
    Commands,
    add_command,
    add_config,
    add_group,
    add_json,
)
from forewarn.pipelines.runtime.terminal import write_line

__all__ = ["add_messages"]


def add_messages(commands: Commands) -> None:
    """Add `forewarn messages`."""
    actions = add_group(
        commands, "messages", "list the receivers of messages and their state, or test one"
    )
    listing = add_command(
        actions,
        "list",
        _list,
        "list the receivers with the messages that wait, and the last error",
        "forewarn messages list --config my.toml",
        extra="server",
    )
    add_config(listing)
    add_json(listing, "print one JSON object per receiver on stdout")
    test = add_command(
        actions,
        "test",
        _test,
        "send a test message to one receiver, once",
        "forewarn messages test ops --config my.toml",
        extra="server",
    )
    add_config(test)
    test.add_argument("receiver", metavar="RECEIVER", help="NAME of [messages.NAME], or alert_url")


def _list(args: argparse.Namespace) -> int:
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite
    from forewarn.pipelines.incidents.messages.outbox import Outbox
    from forewarn.pipelines.runtime.timestamps import format_iso

    site = ResponseSite.from_config(args.config)
    with site.ledger_to_look_at() as ledger:
        states = Outbox(ledger).states(Nanoseconds(time.time_ns()))
    for state in states:
        since = "" if state.oldest is None else format_iso(state.oldest)
        if args.json:
            times = {"oldest": since or None, "retry_at": format_iso(state.retry_at)}
            print(json.dumps(asdict(state) | times))
        else:
            waits = f"{state.waiting} messages wait since {since}" if since else "nothing waits"
            write_line(f"{state.name}: {waits}{f', last error: {state.error}' * bool(state.error)}")
    if not states:
        write_line("no receivers; `forewarn respond` has not run since they were configured")
    return 0


def _test(args: argparse.Namespace) -> int:
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite
    from forewarn.pipelines.incidents.messages.message import trial_message
    from forewarn.pipelines.incidents.messages.receiver import SendError
    from forewarn.pipelines.incidents.messages.site_messages import open_receivers

    site, now = ResponseSite.from_config(args.config), Nanoseconds(time.time_ns())
    receivers = open_receivers(site.settings.messages, site.folder, os.environ)
    if args.receiver not in receivers:
        known = ", ".join(sorted(receivers)) or "none is configured"
        raise InputError(f"there is no receiver {args.receiver!r}, expected one of: {known}.")
    try:
        receivers[args.receiver].send(trial_message(args.receiver, now), now)
    except SendError as error:
        raise InputError(
            f"the receiver {args.receiver} did not accept the message: {error}."
        ) from None
    finally:
        for receiver in receivers.values():
            receiver.close()
    write_line(f"the receiver {args.receiver} accepted the message")
    return 0
