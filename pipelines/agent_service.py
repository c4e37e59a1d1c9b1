"""`forewarn agent`: an agent with its policy, its folder, its collector, and its signals."""

from __future__ import annotations

import fcntl
import json
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from forewarn.features.errors import InputError
from forewarn.features.telemetry.proc import HostReading, parse_proc
from forewarn.pipelines.agent import Agent
from forewarn.pipelines.clock import Clock, SystemClock
from forewarn.pipelines.gpu_sources import NoSourceError, open_source
from forewarn.pipelines.policy import AgentPolicy, Collection
from forewarn.pipelines.sender import Sender, UnsentError
from forewarn.pipelines.spool import Spool, write_whole

__all__ = ["AgentError", "run_agent"]

_SECOND = 10**9


class AgentError(InputError):
    """An agent that cannot do what its policy asks for."""


def _read_proc() -> HostReading:
    """Return what /proc says of this host; what is not there is not known."""

    def text(name: str) -> str:
        try:
            return Path("/proc", name).read_text(encoding="ascii", errors="replace")
        except OSError:
            return ""

    return parse_proc(
        stat=text("stat"), uptime=text("uptime"), loadavg=text("loadavg"), meminfo=text("meminfo")
    )[0]


def _remembering(sender: Sender, place: Path) -> Callable[[], Collection | None]:
    """Return a question to the collector whose last answer is kept for the next start."""

    def ask() -> Collection | None:
        told = sender.policy()
        if told is not None:
            write_whole(place, json.dumps(told.as_told()).encode())
        return told

    return ask


def _told_before(place: Path) -> Collection | None:
    try:
        return Collection.model_validate_json(place.read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None


@contextmanager
def _state_of(policy: AgentPolicy) -> Iterator[AgentPolicy]:
    """Hold the folder of an agent; one that sends nowhere leaves nothing behind."""
    if policy.collector is None:
        with tempfile.TemporaryDirectory(prefix="forewarn-agent-") as folder:
            yield policy.model_copy(update={"state": Path(folder)})
        return
    policy.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (policy.state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AgentError(f"{policy.state}: another agent works there, expected one.") from None
        yield policy


def run_agent(
    policy: AgentPolicy,
    token: str | None,
    *,
    once: bool,
    out: TextIO,
    clock: Clock | None = None,
) -> int:
    """Run an agent until it is told to stop, or for one reading.

    Parameters
    ----------
    policy : AgentPolicy
    token : str or None
        Of the collector.
    once : bool
        Print the rows of one reading, one JSON object a line, send them if there is a collector,
        and return.
    out : file
    clock : Clock, optional

    Raises
    ------
    AgentError
        If there is no token for the collector, nothing to send to, or no GPU can be read (once).
    """

    def say(text: str) -> None:
        sys.stderr.write(f"forewarn agent: {text}\n")

    clock = clock or SystemClock()
    if policy.collector is None and not once:
        raise AgentError("the policy has no `collector`, expected an address, or `--once`.")
    if policy.collector is not None and not token:
        raise AgentError("FOREWARN_TOKEN is not set, expected the token of the site's collector.")
    with _state_of(policy) as held:
        spool = Spool(held.state / "spool", held.spool_mib << 20)
        sender = held.collector and Sender(held.collector, token or "", spool, clock, held.ca)
        place = held.state / "collection.json"
        ask = _remembering(sender, place) if sender else lambda: None
        collection = ask() or _told_before(place) or held.collection
        try:
            source = open_source(held.gpu, collection.timeout / _SECOND)
        except NoSourceError as error:
            raise AgentError(f"`gpu` is {held.gpu!r}, but {error}.") from None
        agent = Agent(held, collection, source, spool, clock, say, _read_proc, ask)
        with closing(sender) if sender else nullcontext():
            return _once(agent, sender or None, out) if once else _forever(agent, sender or None)


def _once(agent: Agent, sender: Sender | None, out: TextIO) -> int:
    agent.follow()
    agent.close()
    rows = agent.collect()
    for row in rows:
        out.write(json.dumps(row) + "\n")
    if not rows:
        raise AgentError("no GPU was read, expected at least one (see above).")
    try:
        if sender is not None:
            sender.send_all()
    except UnsentError as error:
        agent.say(f"not sent, kept: {error}")
    return 0


def _forever(agent: Agent, sender: Sender | None) -> int:
    assert sender is not None
    sender.wake = agent.wake

    def finish(*_: object) -> None:
        agent.stop.set()
        sender.stop.set()
        agent.wake.set()

    signal.signal(signal.SIGTERM, finish)
    signal.signal(signal.SIGINT, finish)
    sending = threading.Thread(target=sender.run, args=(agent.say,), name="sender", daemon=True)
    sending.start()
    agent.run()
    sending.join(timeout=5)
    return 0
