"""`forewarn agent`: runs an agent with its policy, state folder, collector and signal handlers."""

from __future__ import annotations

import fcntl
import json
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

from forewarn.features.errors import InputError
from forewarn.features.telemetry.parsers.proc_files import HostReading, parse_proc
from forewarn.features.time_units import SECOND
from forewarn.pipelines.agent.agent import Agent
from forewarn.pipelines.agent.agent_state import AgentState, move_aside
from forewarn.pipelines.agent.custom_checks import CustomChecks
from forewarn.pipelines.agent.port_counter_events import PortCounterEvents
from forewarn.pipelines.agent.sender import Sender, SendError
from forewarn.pipelines.agent.sources.gpu_source import GpuSource, NoSourceError
from forewarn.pipelines.agent.sources.gpu_source_selection import open_source, watch_source
from forewarn.pipelines.agent.spool import FOLDERS, Spool
from forewarn.pipelines.config.agent_policy import AgentPolicy, CollectionPolicy
from forewarn.pipelines.runtime.clock import Clock, SystemClock

__all__ = ["AgentError", "run_agent"]

_COLLECTION = "collection.json"


class AgentError(InputError):
    """An agent that cannot run as its policy requires."""


def _read_proc() -> HostReading:
    """Return the values of /proc; missing files are unknown values."""

    def text(name: str) -> str:
        try:
            return Path("/proc", name).read_text(encoding="ascii", errors="replace")
        except OSError:
            return ""

    return parse_proc(
        stat=text("stat"), uptime=text("uptime"), loadavg=text("loadavg"), meminfo=text("meminfo")
    )[0]


def _cached_policy(sender: Sender, state: AgentState) -> Callable[[], CollectionPolicy | None]:
    """Return a function that queries the collector and stores its answer for the next start."""

    def ask() -> CollectionPolicy | None:
        collection = sender.policy()
        if collection is not None:
            state.store(_COLLECTION, json.dumps(collection.as_json()))
        return collection

    return ask


def _clean_token(token: str | None) -> str:
    """Return a token without surrounding whitespace; errors do not contain the token."""
    clean = (token or "").strip()
    if not clean:
        raise AgentError("FOREWARN_TOKEN is not set, expected the token of the site's collector.")
    if not (clean.isascii() and clean.isprintable()) or " " in clean:
        raise AgentError(
            "FOREWARN_TOKEN contains an invalid character (not shown here), expected printable "
            "ASCII characters without spaces."
        )
    return clean


def _move_obstacles_aside(state: Path, say: Callable[[str], None]) -> None:
    """Move aside anything in place of the agent's own files and folders."""
    if (state / "lock").is_dir():
        move_aside(state / "lock", "a folder is in its place", say)
    for folder in (state / "spool", *(state / "spool" / name for name in FOLDERS)):
        if folder.exists() and not folder.is_dir():
            move_aside(folder, "not a folder", say)


@contextmanager
def _locked_state(policy: AgentPolicy, say: Callable[[str], None]) -> Iterator[AgentPolicy]:
    """Lock the state folder of an agent; without a collector, use a temporary folder."""
    if policy.collector is None:
        with tempfile.TemporaryDirectory(prefix="forewarn-agent-") as folder:
            yield policy.model_copy(update={"state": Path(folder)})
        return
    policy.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    _move_obstacles_aside(policy.state, say)
    with (policy.state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AgentError(
                f"{policy.state}: in use by another agent, expected one agent per folder."
            ) from None
        yield policy


def run_agent(
    policy: AgentPolicy,
    token: str | None,
    *,
    once: bool,
    out: TextIO,
    clock: Clock | None = None,
) -> int:
    """Run an agent until it is stopped, or for one reading.

    Parameters
    ----------
    policy : AgentPolicy
    token : str or None
        Token of the collector.
    once : bool
        Print the rows of one reading as JSON lines, send them if there is a collector, and return.
    out : file
    clock : Clock, optional

    Raises
    ------
    AgentError
        If there is no token for the collector, no collector, or no readable GPU (with `once`).
    """

    def say(text: str) -> None:
        with suppress(OSError):  # stderr may be a file on a full disk
            shown = "".join(
                char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text
            )
            sys.stderr.write(f"forewarn agent: {shown}\n")
            sys.stderr.flush()

    clock = clock or SystemClock()
    if policy.collector is None and not once:
        raise AgentError("the policy has no `collector`, expected an address, or `--once`.")
    token = _clean_token(token) if policy.collector is not None else ""
    with _locked_state(policy, say) as held:
        state = AgentState(held.state, say)
        state.sweep()
        spool = Spool(held.state / "spool", held.spool_mib << 20)
        for stray in spool.strays:
            say(f"{stray}: not a batch of this agent, ignored")
        sender = (
            Sender(held.collector, token, spool, clock, held.ca, say=say)
            if held.collector is not None
            else None
        )
        ask = _cached_policy(sender, state) if sender else lambda: None
        collection = ask() or state.load(_COLLECTION, CollectionPolicy) or held.collection
        source = _open_source(held, collection)
        ports, watched = PortCounterEvents(), watch_source(source)
        agent = Agent(held, collection, source, spool, clock, say, _read_proc, ports, ask, watched)
        if collection.hardware_every is not None and watched is None:
            say(
                "`hardware_every`: a program reads the GPUs, only ports and the PCI bus are watched"
            )
        with closing(sender) if sender else nullcontext():
            return _run_once(agent, sender, out) if once else _run_forever(agent, sender)


def _open_source(policy: AgentPolicy, collection: CollectionPolicy) -> GpuSource:
    try:
        return open_source(policy.gpu, collection.timeout / SECOND)
    except NoSourceError as error:
        raise AgentError(f"`gpu` is {policy.gpu!r}, but {error}.") from None


def _run_once(agent: Agent, sender: Sender | None, out: TextIO) -> int:
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
    except (SendError, OSError) as error:
        agent.say(f"not sent, will retry: {error}")
    return 0


def _run_forever(agent: Agent, sender: Sender | None) -> int:
    """Run until a signal; return 1 if a thread failed, so that the agent is restarted."""
    assert sender is not None
    sender.wake = agent.wake
    failed: list[str] = []

    def finish(*_: object) -> None:
        agent.stop.set()
        sender.stop.set()
        agent.wake.set()

    def watched(work: Callable[[], object], name: str) -> None:
        try:
            work()
        except Exception as error:  # a partly running agent would look healthy
            failed.append(name)
            agent.say(f"{name} failed, stopping the agent: {_error_location(error)}")
            finish()

    signal.signal(signal.SIGTERM, finish)
    signal.signal(signal.SIGINT, finish)
    threads = [
        threading.Thread(target=watched, args=(work, name), name=name, daemon=True)
        for work, name in ((agent.collect_on_schedule, "readings"), (sender.run, "sender"))
    ]
    _start_checks(agent)
    if agent.policy.jobs.folder is not None:
        _start_job_collector(agent, agent.policy.jobs.folder)
    # First: a reading reports that there was no Xid only if the log was read up to its time.
    watched(agent.follow, "kernel log")
    for thread in threads:
        thread.start()
    watched(agent.follow_log, "kernel log")
    for thread, seconds in zip(threads, (1, 5), strict=True):
        thread.join(timeout=seconds)
    agent.close()
    return 1 if failed else 0


def _start_checks(agent: Agent) -> None:
    """Run each custom check in a thread of its own, so that a slow one delays nothing."""
    checks = CustomChecks(
        agent.policy.check, agent.policy.machine_id, agent.clock, agent.store_events
    )
    for name in agent.policy.check:
        threading.Thread(
            target=checks.run, args=(name, agent.stop), name=f"check {name}", daemon=True
        ).start()


def _start_job_collector(agent: Agent, folder: Path) -> None:
    """Collect job data in a separate thread, so that a hanging disk does not delay GPU readings."""
    from forewarn.pipelines.agent.jobs.job_collector import JobCollector

    policy = agent.policy
    jobs = JobCollector(policy.jobs, folder, policy.machine_id, agent.clock, agent.say)
    threading.Thread(target=jobs.run, args=(agent.stop,), name="jobs", daemon=True).start()


def _error_location(error: Exception) -> str:
    """Return an error and the line of the program that it comes from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
