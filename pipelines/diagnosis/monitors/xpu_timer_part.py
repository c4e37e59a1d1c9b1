"""Part `xpu_timer`: metrics of DLRover's XPUTimer, one or several scrapes, in files of any name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from forewarn.features.diagnosis.communicators.communicator_state import BrokenStatusError
from forewarn.features.diagnosis.communicators.xpu_timer_metrics import (
    RankKernels,
    parse_xpu_timer,
)
from forewarn.features.diagnosis.log_streams.job_streams import FileReading
from forewarn.features.diagnosis.ranks import Ranks, format_ranks
from forewarn.models.diagnosis.hang.hung_kernels import hung_kernel_finding
from forewarn.models.diagnosis.slow.slow_kernels import slow_kernel_finding
from forewarn.pipelines.diagnosis.monitors.report_files import (
    PROGRESS_PARTS,
    read_reports,
    unread_reports,
)
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult

__all__ = ["XpuTimerPart", "read_xpu_timer"]


@dataclass(frozen=True, slots=True)
class XpuTimerPart:
    """Scrapes in order; each has the ranks of one or several pods.

    Attributes
    ----------
    scrapes : tuple of tuple of RankKernels
    files : tuple of FileReading
    """

    scrapes: tuple[tuple[RankKernels, ...], ...]
    files: tuple[FileReading, ...]

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks with metrics."""
        return frozenset(kernels.rank for scrape in self.scrapes for kernels in scrape)

    @property
    def last(self) -> None:
        """None: metrics have no times."""
        return

    @property
    def hosts(self) -> dict[int, str]:
        """Pods or addresses by rank, as far as metrics tell."""
        rows = (kernels for scrape in self.scrapes for kernels in scrape)
        return {row.rank: row.host for row in rows if row.host is not None}

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return the ranks in no kernel while others hang in one, and those with slow kernels.

        Pods are scraped at different times. A rank without a kernel counts only if another one of
        the same scrape hangs.
        """
        latest = {row.rank: (row, scrape) for scrape in self.scrapes for row in scrape}
        hung = {rank for rank, (row, _) in latest.items() if row.hangs}
        clear = {r for r, (row, scrape) in latest.items() if row.hangs is False and _hangs(scrape)}
        is_new = any(latest[rank][0].is_new for rank in hung)
        is_alone = snapshot.parts.keys().isdisjoint(PROGRESS_PARTS)
        flops = {rank: row.flops for rank, (row, _) in latest.items() if row.flops}
        findings = (
            hung_kernel_finding(hung, clear, snapshot.ranks, is_alone=is_alone, is_new=is_new),
            slow_kernel_finding(flops, snapshot.ranks),
        )
        notes = tuple(unread_reports("xpu_timer", self.files))
        return PartResult(findings=tuple(f for f in findings if f is not None), blind=notes)


def _hangs(scrape: Iterable[RankKernels]) -> bool:
    return any(row.hangs for row in scrape)


def read_xpu_timer(folder: JobFolder, _: Ranks) -> XpuTimerPart | None:
    """Read all scrapes of a job, or return None if there are none."""
    scrapes, files = list[tuple[RankKernels, ...]](), list[FileReading]()
    for name, text in read_reports(folder, "XPUTimer metrics"):
        try:
            scrapes.append(tuple(parse_xpu_timer(text)))
        except BrokenStatusError as error:
            files.append(FileReading(name, None, (str(error),)))
            continue
        numbers = format_ranks(sorted(row.rank for row in scrapes[-1]))
        files.append(FileReading(name, f"XPUTimer metrics of {numbers}"))
    return XpuTimerPart(tuple(scrapes), tuple(files)) if files else None
