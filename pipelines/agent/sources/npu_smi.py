"""GPU source that runs `npu-smi`, for Ascend NPUs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from forewarn.features.telemetry.amd.same_gpus import with_identities
from forewarn.features.telemetry.ascend.smi_output import parse_npu_health, parse_npu_output
from forewarn.features.telemetry.checks.check_result import CheckResult
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll, NoSourceError
from forewarn.pipelines.agent.sources.tool_output import run_tool

__all__ = ["NPU_PROGRAM", "NpuSmi"]

NPU_PROGRAM = "npu-smi"
_BOARD, _HEALTH = "board", "health"
_CHIP_SLOTS = 100  # see `chip_slot`


@dataclass(slots=True)
class NpuSmi:
    """GPU source that runs `npu-smi`.

    The table of `npu-smi info` has neither serials nor fault codes. The identity of a chip is asked
    once, and again after the chip was missing; its fault codes while its health is not OK. Each
    takes a run of the program, so that some have to wait for the next poll.
    """

    program: str = NPU_PROGRAM
    _identities: dict[int, GpuReading] = field(default_factory=dict)

    def read(self, timeout: float) -> GpuPoll:
        """Return all NPUs, each chip as a GPU of its own."""
        end = time.monotonic() + timeout
        output = run_tool(self.program, "info", timeout=timeout)
        readings, unread = parse_npu_output(output.text)
        if not readings or output.code < 0:
            raise NoSourceError(f"{self.program} {output.end()}: {output.first_line()!r}")
        self._identify(readings, end, unread)
        readings = with_identities(readings, self._identities.values())
        by_slot = {gpu.slot: gpu for gpu in readings}
        checks = [
            replace(result, gpu=by_slot[result.gpu.slot])
            for result in self._health(output.text, end, unread)
            if result.gpu is not None and result.gpu.slot in by_slot
        ]
        trouble = f"{self.program} {output.end()}: {output.first_line()!r}" if output.code else ""
        return GpuPoll(readings, (), unread, trouble, checks)

    def _identify(self, readings: list[GpuReading], end: float, unread: Unread) -> None:
        """Ask for the identity of new chips: the serial of their board, and their own die."""
        slots = [gpu.slot for gpu in readings if gpu.slot is not None]
        self._identities = {s: gpu for s, gpu in self._identities.items() if s in slots}
        for slot in slots:
            if slot in self._identities:
                continue
            texts = [self._details(_BOARD, slot, end, has_chip=c) for c in (False, True)]
            names, more = parse_npu_output("\n".join(filter(None, texts)))
            unread.join(more)
            own = [gpu for gpu in names if gpu.slot == slot]
            if all(texts) and own:
                self._identities[slot] = own[0]

    def _health(self, table: str, end: float, unread: Unread) -> list[CheckResult]:
        """Return the health of each chip, with the fault codes of those that are not healthy."""
        results, more = parse_npu_health(table)
        unread.join(more)
        for slot in [r.gpu.slot for r in results if r.gpu is not None and r.severity != "ok"]:
            text = None if slot is None else self._details(_HEALTH, slot, end, has_chip=True)
            codes, more = parse_npu_health(text or "")
            unread.join(more)
            results += [result for result in codes if result.kind != "check"]
        return results

    def _details(self, kind: str, slot: int, end: float, *, has_chip: bool) -> str | None:
        """Return the output about a chip, after its command; None if no time is left for it."""
        options = ["-t", kind, "-i", str(slot % _CHIP_SLOTS)]
        options += ["-c", str(slot // _CHIP_SLOTS)] if has_chip else []
        left = end - time.monotonic()
        if left <= 0:
            return None
        output = run_tool(self.program, "info", *options, timeout=left)
        return f"{NPU_PROGRAM} info {' '.join(options)}\n{output.text}"
