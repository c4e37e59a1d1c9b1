"""All parts that monitors of a job's communication wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.pipelines.diagnosis.monitors.inspector_part import InspectorPart, read_inspector
from forewarn.pipelines.diagnosis.monitors.ras_part import RasPart, read_ras
from forewarn.pipelines.diagnosis.monitors.report_files import PROGRESS_PARTS
from forewarn.pipelines.diagnosis.monitors.xpu_timer_part import XpuTimerPart, read_xpu_timer
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.job_part import Part
from forewarn.pipelines.diagnosis.parts.logs_part import LogsPart

__all__ = ["MONITOR_READERS", "USED_BY_MONITORS", "Monitor", "monitored_machines"]

Monitor = RasPart | XpuTimerPart | InspectorPart

MONITOR_READERS: Mapping[str, Callable[[JobFolder, Ranks], Part | None]] = {
    "ras": read_ras,
    "xpu_timer": read_xpu_timer,
    "inspector": read_inspector,
}
USED_BY_MONITORS = dict.fromkeys(MONITOR_READERS, PROGRESS_PARTS)  # other parts that each uses


def monitored_machines(parts: Mapping[str, Part]) -> dict[int, str]:
    """Return the machines that monitors name, or their addresses if logs name none."""
    logs = parts.get("logs")
    addresses = logs.launched.addresses if isinstance(logs, LogsPart) else {}
    monitors = [part for part in parts.values() if isinstance(part, Monitor)]
    hosts = {rank: host for part in monitors for rank, host in part.hosts.items()}
    return {rank: addresses.get(host, host) for rank, host in hosts.items()}
