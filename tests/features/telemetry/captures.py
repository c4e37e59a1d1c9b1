"""Print what the parsers read of each real capture as a table.

    python tests/features/telemetry/captures.py ../shared/data

One line per document: GPUs, fields of the first GPU, events, and unread parts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from forewarn.features.telemetry.nvidia_smi.query_csv import parse_query_gpu
from forewarn.features.telemetry.nvidia_smi.query_xml import parse_nvidia_smi_xml
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.features.telemetry.parsers.kernel_log import parse_kernel_log

CleanRows = tuple[str, int, int, int, int]


def table(data: Path) -> Iterator[CleanRows]:
    """Yield name, GPUs, fields of the first GPU, events and unread parts of each document."""
    for path in sorted((data / "nvidia_smi_captures").glob("*.txt")):
        parts = path.read_text(errors="replace").split(":: query-gpu (csv")[1:]
        for number, part in enumerate(parts, 1):
            readings, unread = parse_query_gpu(part.split("#" * 80)[1])
            yield (f"{path.stem} #{number}", *fields(readings), 0, unread.counts.total())
    for path in sorted((data / "nvidia_smi_xml").glob("*.xml")):
        readings, unread = parse_nvidia_smi_xml(path.read_text())
        yield (path.name, *fields(readings), 0, unread.counts.total())
    for path in sorted((data / "kernel_logs").glob("*.log")):
        log = parse_kernel_log(path.read_text(), boot_time=0)
        yield (path.name, len(log.boards), 0, len(log.events), log.unread.counts.total())


def fields(readings: list[GpuReading]) -> tuple[int, int]:
    return len(readings), len(readings[0].numbers) + len(readings[0].texts) if readings else 0


def main() -> None:
    print(f"{'document':60} GPUs fields events left out")
    for name, gpus, read, events, unread in table(Path(sys.argv[1])):
        print(f"{name:60} {gpus:4} {read:6} {events:6} {unread:8}")


if __name__ == "__main__":
    main()
