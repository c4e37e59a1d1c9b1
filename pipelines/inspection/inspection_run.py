"""An inspection of this machine: the checks of a set, one after another, each result once."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forewarn.features.errors import InputError
from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.inspection.check_values import CheckOutcome
from forewarn.features.telemetry.telemetry_rows import is_host_name
from forewarn.features.time_units import DAY, SECOND, SECONDS_PER_HOUR
from forewarn.pipelines.inspection.check_runner import CheckRun, CheckRunner
from forewarn.pipelines.inspection.result_files import write_results
from forewarn.pipelines.inspection.run_journal import RunJournal
from forewarn.pipelines.runtime.bounded_program import kill_marked, run_program
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.storage.files.file_names import safe_file_name

__all__ = ["Inspection", "InspectionError", "inspect_machine", "machine_versions"]

_PUBLISH_SECONDS: Final = SECONDS_PER_HOUR
_MAX_PAUSE: Final = DAY  # a machine that was killed or restarted goes on
_MARKER: Final = "FOREWARN_INSPECTION"
_MAX_TEXT_CHARS: Final = 500
_QUERY_SECONDS: Final = 30.0  # a GPU that hangs may block nvidia-smi for ever


class InspectionError(InputError):
    """An inspection that cannot run."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What to inspect, and within which bounds.

    Attributes
    ----------
    machine : str
    name : str
        Name of the set.
    checks : dict of str to CheckTable
    out : Path
        Folder of results; the journal is in `_state`.
    timeout : float or None
        Seconds for the whole inspection; what is left then does not run.
    burn_in : float
        Seconds of testing; the set is repeated until they are over. 0 runs it once.
    while_busy : bool
        Inspect although a job uses a GPU.
    all_checks : bool
        Go on after a failure that makes the machine unusable.
    cmdb : Path or None
    neighbours : tuple of str
        Other machines, for tests of the network.
    via : str
        Command that runs another one on machine `{host}`.
    """

    machine: str
    name: str
    checks: dict[str, CheckTable]
    out: Path
    timeout: float | None = None
    burn_in: float = 0.0
    while_busy: bool = False
    all_checks: bool = False
    cmdb: Path | None = None
    neighbours: tuple[str, ...] = ()
    via: str = ""


def inspect_machine(
    inspection: Inspection, *, now: Callable[[], int] = time.time_ns
) -> list[dict[str, Any]]:
    """Run the checks of a set, cheap ones first, and write their results.

    An inspection of the same set that was killed is continued. Only one runs on a machine.

    Parameters
    ----------
    inspection : Inspection
    now : callable
        Returns nanoseconds since 1970 UTC.

    Returns
    -------
    list of dict
        Rows of RESULTS.

    Raises
    ------
    InspectionError
        If another one runs, a job uses a GPU, or the name of the machine is invalid.
    """
    if not is_host_name(inspection.machine):
        raise InspectionError(
            f"--machine: found {inspection.machine[:60]!r}, expected a name of letters, digits, "
            "dots and dashes."
        )
    users = _gpu_users()
    if users and not inspection.while_busy:
        raise InspectionError(
            f"a job uses a GPU (process {users[0]}), expected an idle machine, or --while-busy to "
            "run the checks that need none.",
            is_transient=True,
        )
    with _only_inspection(inspection.machine):
        journal = _journal(inspection, now())
        kill_marked(f"{_MARKER}={journal.run}.")  # of this inspection, killed before
        # Not only the run: the watchdog of the killed process would kill checks of this one.
        own = f"{journal.run}.{uuid.uuid4().hex[:8]}"
        marker = f"{_MARKER}={own}"
        with _watchdog(marker), tempfile.TemporaryDirectory(prefix="forewarn-scratch-") as scratch:
            variables = {_MARKER: own, "FOREWARN_MACHINE_ID": inspection.machine}
            if inspection.cmdb is not None:
                variables["FOREWARN_CMDB"] = str(inspection.cmdb.absolute())
            if inspection.neighbours:
                variables["FOREWARN_NEIGHBOURS"] = " ".join(inspection.neighbours)
                variables["FOREWARN_VIA"] = inspection.via
            runner = CheckRunner(Path(scratch), variables, is_busy=bool(users))
            _run_all(inspection, journal, runner, now)
        kill_marked(marker)
        write_results(journal.rows, inspection.out)
        journal.close()
    return journal.rows


def _journal(inspection: Inspection, now: int) -> RunJournal:
    """Continue a recent journal of this set; publish any other and start a new one."""
    path = inspection.out / "_state" / f"{safe_file_name(inspection.machine)}.jsonl"
    run = uuid.uuid4().hex[:12]
    journal = RunJournal.open(path, run, inspection.name)
    last = max((row["timestamp"] for row in journal.rows), default=now)
    if journal.name != inspection.name or now - last > _MAX_PAUSE:
        write_results(journal.rows, inspection.out)
        journal.close()
        journal = RunJournal.open(path, run, inspection.name)
    if journal.rows:
        note(f"an inspection that was killed goes on ({len(journal.rows)} results are there)")
    return journal


def _gpu_users() -> list[str]:
    """Return the processes that compute on a GPU."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    with suppress(OSError):
        lines = run_program(command, _QUERY_SECONDS).output.decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip().isdecimal()]
    return []


@contextmanager
def _only_inspection(machine: str) -> Iterator[None]:
    """Hold the lock of this machine, which ends with this process.

    A name in the abstract namespace of Linux is one for all users and for units with their own
    /tmp; a file that root has created could not be opened by others.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            name = hashlib.sha256(machine.encode()).hexdigest()  # at most 107 bytes fit
            lock.bind(f"\0forewarn-inspect-{name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise InspectionError(
                f"another inspection of {machine} is running, expected one at a time.",
                is_transient=True,
            ) from None
        yield


@contextmanager
def _watchdog(marker: str) -> Iterator[None]:
    """Have a process that kills what checks started if this process is killed."""
    code = (
        "import sys; from forewarn.pipelines.runtime.bounded_program import kill_marked; "
        f"sys.stdin.buffer.read(); kill_marked({marker!r})"
    )
    watchdog = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        assert watchdog.stdin is not None
        watchdog.stdin.close()
        watchdog.wait()


def _run_all(
    inspection: Inspection, journal: RunJournal, runner: CheckRunner, now: Callable[[], int]
) -> None:
    """Run what the journal lacks, and in a burn-in the set again until its time is over."""
    order = dict(sorted(inspection.checks.items(), key=_cost))
    started = published = time.monotonic()
    end = None if inspection.timeout is None else started + inspection.timeout
    versions = machine_versions()
    for cycle in itertools.count(1):
        measured = False
        with progress_bar(sum(c.repeat for c in order.values()), inspection.name, "check") as bar:
            for name, check in order.items():
                while journal.done[name] < cycle * check.repeat:
                    moment = now()
                    run = _run(inspection, journal, runner, check, end)
                    rows = _rows(inspection, journal, name, run, moment, versions)
                    is_run = any(outcome.status != "not_run" for outcome in run.outcomes)
                    left = cycle * check.repeat - journal.done[name]
                    journal.add(name, rows, run.seconds, 1 if is_run else left)
                    measured |= is_run
                    if time.monotonic() - published > _PUBLISH_SECONDS:
                        write_results(journal.rows, inspection.out)
                        published = time.monotonic()
                bar.update(check.repeat)
        runner.outputs.clear()
        is_over = end is not None and time.monotonic() >= end
        if journal.seconds >= inspection.burn_in or is_over or not measured:
            return


def _cost(item: tuple[str, CheckTable]) -> tuple[bool, bool, int]:
    """Order checks: those of an idle machine last, identity first, short before long ones."""
    _, check = item
    return "idle" in check.conditions, check.category != "identity", check.timeout * check.repeat


def _run(
    inspection: Inspection,
    journal: RunJournal,
    runner: CheckRunner,
    check: CheckTable,
    end: float | None,
) -> CheckRun:
    """Run a check, unless the time is over or an earlier failure makes it meaningless."""
    seconds = check.timeout / SECOND
    left = seconds if end is None else min(seconds, end - time.monotonic())
    failed = next(
        (
            row["check"]
            for row in journal.rows
            if row["status"] == "failed"
            and row["check"] in inspection.checks
            and inspection.checks[row["check"]].level == "drain"
        ),
        None,
    )
    reason = ""
    if left <= 0.0:
        reason = "the time of the inspection was over"
    elif failed is not None and "idle" in check.conditions and not inspection.all_checks:
        reason = f"{failed} has failed"
    return CheckRun([CheckOutcome("not_run", reason)], 0.0) if reason else runner.run(check, left)


def _rows(
    inspection: Inspection,
    journal: RunJournal,
    name: str,
    run: CheckRun,
    moment: int,
    versions: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the rows of RESULTS of one run of a check."""
    check = inspection.checks[name]
    known = {**versions, **run.versions, "definition": check.identity()}
    return [
        {
            "timestamp": moment,
            "machine": inspection.machine,
            "slot": outcome.slot,
            "check": name,
            "run": journal.run,
            "value": outcome.value,
            "unit": check.value.unit,
            "status": outcome.status,
            "seconds": round(run.seconds, 4),
            "versions": json.dumps(known, sort_keys=True),
            "set": inspection.name,
            "text": outcome.text[:_MAX_TEXT_CHARS] or None,
        }
        for outcome in run.outcomes
    ]


def machine_versions(root: Path = Path("/")) -> dict[str, str]:
    """Return the hardware, kernel and driver of this machine, on which values depend."""
    versions = {"kernel": platform.release()}
    patterns = {
        "cpu": ("proc/cpuinfo", r"^model name\s*: (.+)"),
        "driver": ("proc/driver/nvidia/version", r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)"),
        "board": ("sys/class/dmi/id/product_name", r"(.+)"),
    }
    for gpu in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))[:1]:
        patterns["gpu"] = (str(gpu.relative_to(root)), r"^Model:\s*(.+)")
    for name, (path, pattern) in patterns.items():
        with suppress(OSError):
            match = re.search(pattern, (root / path).read_text(errors="replace"), re.MULTILINE)
            if match is not None:
                versions[name] = match[1].strip()
    return versions
