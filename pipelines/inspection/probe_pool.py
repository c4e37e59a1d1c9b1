"""Probes on several machines, started through a site's command, and tests of groups of them."""

from __future__ import annotations

import itertools
import json
import queue
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

__all__ = ["GroupResult", "ProbePool"]

_MAX_LINE_BYTES: Final = 1 << 16
_GRACE_SECONDS: Final = 15.0
_START_SECONDS: Final = 120.0  # PyTorch may come from a shared file system
_PORTS: Final = 2_000
_PORT_TAKEN: Final = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GroupResult:
    """A test of a group of machines.

    Attributes
    ----------
    nodes : tuple of str
    seconds : float or None
        The slowest machine's time of an all-gather and of a product of matrices; None if the test
        failed.
    error : str
    clock_skew : float
        Seconds by which the clocks differ, less the time of an all-gather, which is their error.
    gpu : int
        Number of the GPU on each machine.
    """

    nodes: tuple[str, ...]
    seconds: float | None
    error: str = ""
    clock_skew: float = 0.0
    gpu: int = 0


@dataclass(slots=True)
class _Probe:
    """The probe of a machine; its lines arrive in a queue."""

    running: subprocess.Popen[bytes] | None
    lines: queue.Queue[dict[str, Any]]
    error: str = ""
    gpus: int = 0

    def answer(self, until: float, test: int) -> dict[str, Any] | None:
        """Return the answer to a test; None if there is none in time."""
        while (left := until - time.monotonic()) > 0.0:
            try:
                line = self.lines.get(timeout=left)
            except queue.Empty:
                return None
            if line.get("test") == test or "error" in line:
                return line
        return None


@dataclass(slots=True)
class ProbePool:
    """A probe on each machine for as long as the context lasts.

    Attributes
    ----------
    hosts : sequence of str
    via : sequence of str
        Command that runs another one on a machine, as `["ssh", "{host}"]`; empty for this machine.
    python : str
        Interpreter with PyTorch on the machines.
    interface : str
        Network interface; empty to leave the choice to PyTorch.
    timeout : float
        Seconds of a test.
    n_bytes, repeats : int
        Size and number of the all-gathers.
    port : int
        First port of the tests.
    """

    hosts: Sequence[str]
    via: Sequence[str] = ()
    python: str = "python3"
    interface: str = ""
    timeout: float = 60.0
    n_bytes: int = 1 << 20
    repeats: int = 5
    port: int = 29_400
    probe_seconds: float = 0.0
    _probes: dict[str, _Probe] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __enter__(self) -> Self:
        for host in self.hosts:
            self._probes[host] = self._start(host)
        until = time.monotonic() + _START_SECONDS
        for probe in self._probes.values():
            if probe.error:
                continue
            line = probe.answer(until, -1)
            if line is None or "error" in line:
                probe.error = "no answer" if line is None else str(line["error"])
            else:
                probe.gpus = int(line.get("gpus", 0))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for probe in self._probes.values():
            _end(probe)

    @property
    def unreachable(self) -> dict[str, str]:
        """Machines without a working probe, and why."""
        return {host: probe.error for host, probe in self._probes.items() if probe.error}

    @property
    def gpus(self) -> int:
        """GPUs that each machine with a working probe has; 0 without one."""
        return min((probe.gpus for probe in self._probes.values() if not probe.error), default=0)

    def run(self, groups: Sequence[Sequence[str]], gpu: int = 0) -> list[GroupResult]:
        """Run a test of each group, all at the same time.

        Parameters
        ----------
        groups : sequence of sequence of str
            No machine is in two groups.
        gpu : int, optional
            Number of the GPU on each machine; without GPUs it has no meaning.
        """
        started = time.monotonic()
        results = self._run_once(groups, gpu)
        taken = [number for number, r in enumerate(results) if _PORT_TAKEN.search(r.error)]
        repeated = self._run_once([groups[number] for number in taken], gpu)
        for number, again in zip(taken, repeated, strict=True):
            results[number] = again
        self.probe_seconds += (time.monotonic() - started) * sum(len(group) for group in groups)
        return results

    def _run_once(self, groups: Sequence[Sequence[str]], gpu: int) -> list[GroupResult]:
        numbers = [self._send(group, gpu) for group in groups]
        until = time.monotonic() + 2.0 * self.timeout + _GRACE_SECONDS
        return [
            replace(self._result(tuple(group), number, until), gpu=gpu)
            for group, number in zip(groups, numbers, strict=True)
        ]

    def _start(self, host: str) -> _Probe:
        script = str(Path(__file__).with_name("pair_probe.py"))
        command = [part.replace("{host}", host) for part in self.via]
        command += [self.python, script, self.interface]
        lines: queue.Queue[dict[str, Any]] = queue.Queue()
        try:
            running = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return _Probe(None, lines, f"{command[0]} cannot be run: {error.strerror}")
        assert running.stdout is not None
        threading.Thread(target=_read, args=(running.stdout, lines), daemon=True).start()
        return _Probe(running, lines)

    def _send(self, group: Sequence[str], gpu: int) -> int:
        number = next(self._numbers)
        test = {
            "test": number,
            "world": len(group),
            "master": group[0],
            "port": self.port + number % _PORTS,
            "timeout": self.timeout,
            "bytes": self.n_bytes,
            "repeats": self.repeats,
            "gpu": gpu,
        }
        if not any(self._probes[host].error for host in group):
            for rank, host in enumerate(group):
                running = self._probes[host].running
                assert running is not None
                assert running.stdin is not None
                with suppress(OSError):
                    running.stdin.write(json.dumps({**test, "rank": rank}).encode() + b"\n")
                    running.stdin.flush()
        return number

    def _result(self, group: tuple[str, ...], number: int, until: float) -> GroupResult:
        for host in group:
            if error := self._probes[host].error:
                return GroupResult(group, None, f"{host}: {error}")
        answers: dict[str, Mapping[str, Any]] = {}
        for host in group:
            line = self._probes[host].answer(until, number)
            if line is None:
                self._probes[host].error = "no answer"
                return GroupResult(group, None, f"{host}: no answer")
            answers[host] = line
        errors = [f"{host}: {line['error']}" for host, line in answers.items() if "error" in line]
        if errors:
            return GroupResult(group, None, errors[0])
        seconds = max(line["seconds"] + line["gemm_seconds"] for line in answers.values())
        clocks = [float(line.get("clock", 0.0)) for line in answers.values()]
        skew = max(clocks) - min(clocks) - max(line["seconds"] for line in answers.values())
        return GroupResult(group, seconds, clock_skew=max(0.0, skew))


def _read(stream: IO[bytes], lines: queue.Queue[dict[str, Any]]) -> None:
    """Move the lines of a probe into its queue; its end is an error, too."""
    for line in iter(lambda: stream.readline(_MAX_LINE_BYTES), b""):
        with suppress(ValueError):
            content = json.loads(line)
            if isinstance(content, dict):
                lines.put({"test": -1, **content})
    lines.put({"error": "the probe ended"})
    stream.close()


def _end(probe: _Probe) -> None:
    if probe.running is None:
        return
    assert probe.running.stdin is not None
    with suppress(OSError):
        probe.running.stdin.close()
    try:
        probe.running.wait(0.0 if probe.error else 5.0)
    except subprocess.TimeoutExpired:
        probe.running.kill()
        probe.running.wait()
