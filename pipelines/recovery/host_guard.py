"""Guard of a job's processes on one host: they end when the launcher ends, however it ended.

The launcher sends this file to the hosts, where forewarn need not be installed: it imports the
standard library only. It is run as

    python3 -c SOURCE MARK ATTEMPT GRACE NAME=VALUE ... -- COMMAND ...

`MARK` names the job and the host. Processes of the command inherit it in their environment, with
the number of the attempt. Those of earlier attempts that are still there are ended first: torchrun
starts each worker in a session of its own, so that a killed torchrun leaves them behind. The end of
the input asks for the end of the command: TERM, and KILL after `GRACE` seconds.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

__all__ = ["BEGUN", "ENDED", "STUCK", "main"]

_VARIABLE = "FOREWARN_GUARD"
BEGUN, ENDED, STUCK = "forewarn guard: begun", "forewarn guard: ended", "forewarn guard: stuck"
"""Lines of a guard: the command runs; it and all its processes are gone; some did not go."""
_POLL_SECONDS = 0.1
_KILL_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    """Run a command until it or the input ends, and leave no process of it behind."""
    mark, attempt, grace = arguments[0], int(arguments[1]), float(arguments[2])
    cut = arguments.index("--")
    if _is_input_over(0.0) or not _end_processes(mark, attempt, grace):
        return 1
    variables = [pair.partition("=") for pair in arguments[3:cut]]
    environment = {**os.environ, **{name: value for name, _, value in variables}}
    environment[_VARIABLE] = f"{mark}#{attempt}"
    is_over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: is_over.set())
    command = subprocess.Popen(
        arguments[cut + 1 :], stdin=subprocess.DEVNULL, env=environment, start_new_session=True
    )
    _say(BEGUN)
    while command.poll() is None and not is_over.is_set():
        if _is_input_over(_POLL_SECONDS):
            break
    is_stopped = command.poll() is None
    if not _end_processes(mark, attempt, grace, command):
        return 1
    code = command.wait()
    _say(ENDED, "stopped" if is_stopped else code)
    return code if code >= 0 else 128 - code


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def _is_input_over(seconds: float) -> bool:
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and not os.read(0, 4096)


def _end_processes(
    mark: str, attempt: int, grace: float, command: subprocess.Popen[bytes] | None = None
) -> bool:
    """End all processes of attempts so far: TERM, then KILL; return whether all are gone."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILL_SECONDS)):
        limit, signalled = time.monotonic() + seconds, set[int]()
        while pids := _marked(mark, attempt):
            if time.monotonic() > limit:
                break
            for pid in pids - signalled:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            signalled |= pids
            time.sleep(_POLL_SECONDS)
            if command is not None:
                command.poll()  # a child that has ended must not stay
    if remaining := _marked(mark, attempt):
        _say(STUCK, *sorted(remaining))
    return not remaining


def _marked(mark: str, attempt: int) -> set[int]:
    """Return the processes of a job's attempts so far; those of other users are skipped."""
    prefix, pids = os.fsencode(f"{_VARIABLE}={mark}#"), set[int]()
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdecimal() and any(
                int(entry.removeprefix(prefix)) <= attempt for entry in _entries(name, prefix)
            ):
                pids.add(int(name))
    return pids


def _entries(pid: str, prefix: bytes) -> list[bytes]:
    """Return the variables of a process that begin with a prefix."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        return [entry for entry in file.read().split(b"\0") if entry.startswith(prefix)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
