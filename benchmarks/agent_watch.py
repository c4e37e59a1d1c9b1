"""CPU time of the agent's looks for damage: `python -m benchmarks.agent_watch`.

With an NVIDIA driver, the first GPU is read as if it were eight. Without one, a library that
answers at once takes its place, so that only the agent's own work is measured.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from forewarn.features.telemetry.telemetry_rows import HostState
from forewarn.pipelines.agent.port_counter_events import PortCounterEvents
from forewarn.pipelines.agent.sources.nvml import Nvml

N_GPUS, N_PORTS, N_CALLS, N_RUNS = 8, 9, 100, 5
LOOKS_PER_HOUR = 360  # every 10 s
COUNTERS = ("link_downed", "symbol_error", "port_rcv_errors", "port_xmit_discards")


class ManyGpus:
    """The driver's library, whose first GPU stands for several."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlDeviceGetCount(self) -> int:
        """Return how many GPUs are read."""
        return N_GPUS

    def nvmlDeviceGetHandleByIndex(self, _: int) -> Any:
        """Return the handle of the first GPU."""
        return pynvml.nvmlDeviceGetHandleByIndex(0)


class InstantLibrary:
    """A library that answers at once."""

    NVMLError = pynvml.NVMLError
    NVMLError_GpuIsLost = pynvml.NVMLError_GpuIsLost
    NVMLError_ResetRequired = pynvml.NVMLError_ResetRequired
    NVMLError_Unknown = pynvml.NVMLError_Unknown

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": N_GPUS,
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:17:00.0"),
            "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
            "nvmlDeviceGetFieldValues": [],
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=0),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0),
        }
        if not name.startswith("nvmlDevice") and not name.startswith("nvmlSystem"):
            return getattr(pynvml, name)
        return lambda *_, **__: answers.get(name, 1)

    def nvmlInit(self) -> None:
        """Do nothing."""

    nvmlShutdown = nvmlInit


def library() -> tuple[str, Any]:
    """Return the library to measure, and its name."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return f"{N_GPUS} GPUs of a library that answers at once", InstantLibrary()
    name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    pynvml.nvmlShutdown()  # opening the library is part of a look
    return f"{name}, read as {N_GPUS} GPUs", ManyGpus()


def ports(folder: Path) -> PortCounterEvents:
    """Write the counters of some ports."""
    for number in range(N_PORTS):
        counters = folder / "infiniband" / f"mlx5_{number}" / "ports" / "1" / "counters"
        counters.mkdir(parents=True)
        for name in COUNTERS:
            (counters / name).write_text("0\n")
    return PortCounterEvents(folder)


def milliseconds(call: Callable[[], object]) -> float:
    """Return the CPU time of one call, the median of some runs."""
    runs = []
    for _ in range(N_RUNS):
        start = time.process_time()
        for _ in range(N_CALLS):
            call()
        runs.append((time.process_time() - start) / N_CALLS * 1000)
    return statistics.median(runs)


def main() -> None:
    """Print the CPU time of a look and of a reading."""
    name, nvml = library()
    watched, whole = Nvml(nvml, only_damage=True), Nvml(nvml)
    host = HostState("host", 0)
    with tempfile.TemporaryDirectory() as folder:
        events = ports(Path(folder))
        parts = {
            f"look at {name}": milliseconds(lambda: watched.read(30.0)),
            f"look at {N_PORTS} ports": milliseconds(lambda: events.rows(host)),
        }
        reading = milliseconds(lambda: whole.read(30.0))
    for part, spent in parts.items():
        print(f"{part}: {spent:.2f} ms of CPU time")
    total = sum(parts.values())
    share = total * LOOKS_PER_HOUR / 3_600_000
    print(f"every 10 s: {total * LOOKS_PER_HOUR / 1000:.2f} s an hour, {share:.3%} of a core")
    print(f"a whole reading of the GPUs, in comparison: {reading:.2f} ms")


if __name__ == "__main__":
    main()
