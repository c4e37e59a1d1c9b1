"""Client of torch's worker servers on this host: flight recorder dumps and stacks."""

from __future__ import annotations

import http.client
import json
import re
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forewarn.pipelines.agent.jobs.training_processes import JobProcess

__all__ = ["ServerError", "WorkerServers", "oldest_unfinished"]

_MAX_RESPONSE_BYTES = 256 << 20
_LOOPBACK = "127.0.0.1"

_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[([^\]]*)\])?")
_FRAME = re.compile(r'  File "([^"\n]*)", line (\d+|\?\?\?) in (.*)')
_MAX_FRAMES = 512


class ServerError(Exception):
    """A worker server that does not give a valid answer."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP connection over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class WorkerServers:
    """Worker servers of this host's processes; only loopback addresses are contacted.

    Parameters
    ----------
    port : int
        Port of local rank 0 for processes that name no socket; other ranks use the following ports.
        0 disables ports.
    timeout : float
        Seconds.
    """

    def __init__(self, port: int, timeout: float) -> None:
        self._port, self._timeout = port, timeout

    def has(self, process: JobProcess) -> bool:
        """Return whether a process has a server that may be contacted."""
        return self._socket(process) is not None or self._port_of(process) is not None

    def recorder(self, process: JobProcess) -> dict[str, Any]:
        """Return the dump of a process's flight recorder.

        Raises
        ------
        ServerError
            If there is no valid answer.
        """
        data = self._ask(process, "handler/fr_trace_json")
        try:
            dump = json.loads(data)
        except (ValueError, RecursionError):
            raise ServerError("the answer of its flight recorder is not JSON") from None
        if not isinstance(dump, dict) or "entries" not in dump:
            raise ServerError("the answer of its flight recorder has no `entries`")
        return dump

    def stacks(self, process: JobProcess) -> list[dict[str, Any]]:
        """Return the threads of a process in the format of py-spy.

        Raises
        ------
        ServerError
            If there is no answer, or it contains no stack.
        """
        data = self._ask(process, "handler/dump_traceback")
        threads = _parse_traceback(data.decode("utf-8", "replace"), process.pid)
        if not threads:
            raise ServerError("the answer of its worker server has no stack")
        return threads

    def _ask(self, process: JobProcess, handler: str) -> bytes:
        path, port = self._socket(process), self._port_of(process)
        connection = (
            _UnixConnection(path, self._timeout)
            if path is not None
            else http.client.HTTPConnection(_LOOPBACK, port or 0, timeout=self._timeout)
        )
        try:
            connection.request("POST", f"/{handler}")
            answer = connection.getresponse()
            data = answer.read(_MAX_RESPONSE_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(
                f"its worker server does not answer ({error or 'no reason'})"
            ) from None
        finally:
            connection.close()
        if answer.status != http.client.OK or len(data) > _MAX_RESPONSE_BYTES:
            raise ServerError(f"its worker server answers with status {answer.status}")
        return data

    def _socket(self, process: JobProcess) -> Path | None:
        """Return the socket that a process names, if its user owns it."""
        if process.socket is None:
            return None
        try:
            status = process.socket.lstat()
        except OSError:
            return None
        is_own = stat.S_ISSOCK(status.st_mode) and status.st_uid == process.uid
        return process.socket if is_own else None

    def _port_of(self, process: JobProcess) -> int | None:
        local = process.rank if process.local_rank is None else process.local_rank
        port = self._port + local
        return port if self._port and port < 65_536 else None


def oldest_unfinished(dump: Mapping[str, Any]) -> int | None:
    """Return the entry time of the oldest unfinished operation, or None if all are finished.

    Parameters
    ----------
    dump : mapping
        Flight recorder dump. With gloo, only `pg_status` may show what is finished.

    Returns
    -------
    int or None
        Nanoseconds since 1970 UTC.

    Examples
    --------
    >>> entries = [{"state": "completed", "time_created_ns": 5},
    ...            {"state": "started", "time_created_ns": 7}]
    >>> oldest_unfinished({"entries": entries})
    7
    """
    status = dump.get("pg_status")
    done = {
        str(number): int(values.get("last_completed_collective") or 0)
        for number, values in (status.items() if isinstance(status, dict) else ())
    }
    times = [
        int(entry["time_created_ns"])
        for entry in dump["entries"]
        if not entry.get("retired")
        and entry.get("state") != "completed"
        and (
            entry.get("is_p2p")
            or int(entry.get("collective_seq_id") or 0) > done.get(str(entry.get("pg_id")), -1)
        )
    ]
    return min(times, default=None)


def _parse_traceback(text: str, pid: int) -> list[dict[str, Any]]:
    r"""Parse the threads of a process, innermost call of each first.

    Parameters
    ----------
    text : str
        Threads, newest first; the last one is the main thread.
    pid : int

    Examples
    --------
    >>> text = 'Thread 0x7f (most recent call first):\n  File "a.py", line 3 in wait\n'
    >>> _parse_traceback(text, 9)[0]["frames"]
    [{'name': 'wait', 'filename': 'a.py', 'line': 3}]
    """
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        if match := _THREAD.match(line):
            threads.append({"pid": pid, "thread_name": match[2] or match[1], "frames": []})
        elif threads and (match := _FRAME.fullmatch(line)):
            number = int(match[2]) if match[2].isdecimal() else 0
            frames = threads[-1]["frames"]
            if len(frames) < _MAX_FRAMES:
                frames.append({"name": match[3], "filename": match[1], "line": number})
    if threads:
        threads[-1] |= {"thread_name": "MainThread", "os_thread_id": pid}
    return threads
