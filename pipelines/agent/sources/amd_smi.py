"""GPU source that runs `amd-smi`, or `rocm-smi` where that cannot read a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.features.telemetry.amd.same_gpus import merge_gpus, with_identities
from forewarn.features.telemetry.amd.smi_json import parse_smi_json
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll, NoSourceError
from forewarn.pipelines.agent.sources.tool_output import ToolOutput, run_tool

__all__ = ["AMD_PROGRAMS", "AmdSmi"]

AMD_PROGRAMS = ("amd-smi", "rocm-smi")
_METRIC, _STATIC = ("metric", "--json"), ("static", "--json")
_ROCM = ("-a", "--showmeminfo", "vram", "--json")


@dataclass(slots=True)
class AmdSmi:
    """GPU source that runs AMD's programs.

    The identity of the GPUs is asked again only if their indexes change, since each run of
    `amd-smi` takes about a second of a core.
    """

    program: str = AMD_PROGRAMS[0]
    fallback: str = AMD_PROGRAMS[1]
    _identities: list[GpuReading] = field(default_factory=list)

    def read(self, timeout: float) -> GpuPoll:
        """Return all GPUs, with the identity that `amd-smi static` gives their index."""
        try:
            poll = self._read_amd_smi(timeout)
        except NoSourceError as error:
            try:
                return self._read_rocm_smi(timeout)
            except NoSourceError:
                raise error from None
        return poll

    def _read_amd_smi(self, timeout: float) -> GpuPoll:
        output = run_tool(self.program, *_METRIC, timeout=timeout)
        readings, unread = _measured(output)
        if not readings:
            raise NoSourceError(_trouble(self.program, output, readings))
        if {gpu.slot for gpu in readings} != {gpu.slot for gpu in self._identities}:
            static = run_tool(self.program, *_STATIC, timeout=timeout)
            self._identities = parse_smi_json(static.text)[0]
        readings = merge_gpus(with_identities(readings, self._identities))
        return GpuPoll(readings, (), unread, _trouble(self.program, output, readings))

    def _read_rocm_smi(self, timeout: float) -> GpuPoll:
        output = run_tool(self.fallback, *_ROCM, timeout=timeout)
        readings, unread = _measured(output)
        if not readings:
            raise NoSourceError(_trouble(self.fallback, output, readings))
        return GpuPoll(readings, (), unread, _trouble(self.fallback, output, readings))


def _measured(output: ToolOutput) -> tuple[list[GpuReading], Unread]:
    """Return the GPUs with values; none if the output is truncated at an unknown place."""
    readings, unread = parse_smi_json(output.text)
    if output.code < 0:
        return [], unread
    return [gpu for gpu in readings if not gpu.names_only], unread


def _trouble(program: str, output: ToolOutput, readings: list[GpuReading]) -> str:
    """Return why a missing GPU proves nothing."""
    if output.code != 0:
        return f"{program} {output.end()}: {output.first_line()!r}"
    return "" if readings else f"{program} printed no GPU: {output.first_line()!r}"
