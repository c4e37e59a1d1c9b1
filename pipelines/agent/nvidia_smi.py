"""GPU source that runs `nvidia-smi`."""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field

from forewarn.features.telemetry.nvidia_smi.faults import lost_gpus, measured_gpus
from forewarn.features.telemetry.nvidia_smi.query_csv import (
    DAMAGED,
    parse_query_gpu,
    query_fields,
    supported_fields,
)
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.pipelines.agent.gpu_source import GpuPoll, HangError, NoSourceError

__all__ = ["NvidiaSmi"]

_KILL_WAIT_SECONDS = 0.5  # seconds
_MAX_SHOWN_CHARS = 200
_MAX_OUTPUT_BYTES, _CHUNK_BYTES = 4 << 20, 1 << 16  # the XML of sixteen GPUs is half a MiB


@dataclass(frozen=True, slots=True)
class _Output:
    """Output and exit code of a program."""

    text: str
    code: int

    def end(self) -> str:
        if self.code < 0:
            return f"was killed by signal {-self.code}"
        return f"ended with exit code {self.code}"

    def first_line(self) -> str:
        lines = (line.strip() for line in self.text.splitlines())
        return next((line[:_MAX_SHOWN_CHARS] for line in lines if line), "no output")


@dataclass(slots=True)
class NvidiaSmi:
    """GPU source that runs the driver's program."""

    program: str = "nvidia-smi"
    _fields: tuple[str, ...] = field(default_factory=query_fields)

    def read(self, timeout: float) -> GpuPoll:
        """Return all GPUs, by a query of the fields that the driver knows, or else by XML."""
        output = self._ask(timeout)
        if "not a valid field" in output.text and not parse_query_gpu(output.text)[0]:
            known = supported_fields(self._run(timeout, "--help-query-gpu").text)
            self._fields = tuple(name for name in self._fields if name in known)
            output = self._ask(timeout)
        readings, unread = parse_query_gpu(output.text)
        lost = lost_gpus(output.text)
        if not readings:
            from forewarn.features.telemetry.nvidia_smi.query_xml import parse_nvidia_smi_xml

            document = self._run(timeout, "-q", "-x")
            readings, unread = parse_nvidia_smi_xml(document.text)
            lost += lost_gpus(document.text)
            output = document if readings else output
        lost += tuple(reading.pci for reading in readings if reading.lost and reading.pci)
        measured = measured_gpus(readings)
        lost = tuple(pci for pci in dict.fromkeys(lost) if pci not in measured)
        readings = [reading for reading in readings if reading.pci not in lost]
        if output.code < 0:  # the output is truncated at an unknown place
            readings = []
        trouble = self._trouble(output, readings, unread)
        if not readings and not lost:
            raise NoSourceError(trouble)
        return GpuPoll(readings, lost, unread, trouble)

    def _trouble(self, output: _Output, readings: list[GpuReading], unread: Unread) -> str:
        """Return why a missing GPU proves nothing: during a driver upgrade all GPUs fail."""
        if output.code != 0:
            return f"{self.program} {output.end()}: {output.first_line()!r}"
        if not readings:
            return f"{self.program} printed no table of GPUs: {output.first_line()!r}"
        return f"{self.program}: {DAMAGED}" if unread.counts[DAMAGED] else ""

    def _ask(self, timeout: float) -> _Output:
        return self._run(timeout, f"--query-gpu={','.join(self._fields)}", "--format=csv")

    def _run(self, timeout: float, *arguments: str) -> _Output:
        """Return the output whatever the exit code, which is an error if any GPU fails."""
        end = time.monotonic() + timeout
        try:
            running = subprocess.Popen(
                [self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise NoSourceError(f"{self.program}: {error.strerror}") from None
        try:
            printed = _read_until(running, end)
            if len(printed) <= _MAX_OUTPUT_BYTES:
                running.wait(max(0.0, end - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            _abandon(running)
            raise HangError(f"{self.program} did not respond within {timeout:g} s") from None
        if len(printed) > _MAX_OUTPUT_BYTES:
            _abandon(running)
            raise NoSourceError(f"{self.program} printed more than {_MAX_OUTPUT_BYTES >> 20} MiB")
        return _Output(printed.decode(errors="replace"), running.returncode)


def _read_until(running: subprocess.Popen[bytes], end: float) -> bytes:
    """Return the output of a program, truncated shortly after `_MAX_OUTPUT_BYTES`."""
    assert running.stdout is not None
    parts, size = [], 0
    while size <= _MAX_OUTPUT_BYTES:
        ready, _, _ = select.select([running.stdout], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise TimeoutError
        part = os.read(running.stdout.fileno(), _CHUNK_BYTES)
        if not part:
            running.stdout.close()
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _abandon(running: subprocess.Popen[bytes]) -> None:
    """Kill a program; leave it if it hangs in the driver and cannot be killed."""
    running.kill()
    if running.stdout is not None:
        running.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        running.wait(_KILL_WAIT_SECONDS)
