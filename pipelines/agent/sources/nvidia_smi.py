"""GPU source that runs `nvidia-smi`."""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.features.telemetry.nvidia_smi.faults import lost_gpus, measured_gpus
from forewarn.features.telemetry.nvidia_smi.query_csv import (
    DAMAGED,
    parse_query_gpu,
    query_fields,
    supported_fields,
)
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll, NoSourceError
from forewarn.pipelines.agent.sources.tool_output import ToolOutput, run_tool

__all__ = ["NvidiaSmi"]


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

    def _trouble(self, output: ToolOutput, readings: list[GpuReading], unread: Unread) -> str:
        """Return why a missing GPU proves nothing: during a driver upgrade all GPUs fail."""
        if output.code != 0:
            return f"{self.program} {output.end()}: {output.first_line()!r}"
        if not readings:
            return f"{self.program} printed no table of GPUs: {output.first_line()!r}"
        return f"{self.program}: {DAMAGED}" if unread.counts[DAMAGED] else ""

    def _ask(self, timeout: float) -> ToolOutput:
        return self._run(timeout, f"--query-gpu={','.join(self._fields)}", "--format=csv")

    def _run(self, timeout: float, *arguments: str) -> ToolOutput:
        return run_tool(self.program, *arguments, timeout=timeout)
