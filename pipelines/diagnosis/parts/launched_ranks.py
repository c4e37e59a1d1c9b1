"""Ranks as launchers know them: their machines, and how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forewarn.features.diagnosis.launcher_reports import LaunchReport
from forewarn.features.diagnosis.named_peer import Peer
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.crash.rank_exit import NamedPeer
from forewarn.pipelines.diagnosis.parts.log_reader import ScannedLog

__all__ = ["LaunchedRanks"]

_REQUESTED = (0, -15)
_TIME_UNCERTAINTY = 2 * SECOND  # launchers write whole seconds


@dataclass(frozen=True, slots=True)
class LaunchedRanks:
    """Machines by address, and the meaning of a launcher's numbers.

    Attributes
    ----------
    addresses : mapping of str to str
    tasks_are_ranks : bool
        Whether numbers of the launcher's tasks are ranks.
    """

    addresses: Mapping[str, str] = field(default_factory=dict)
    tasks_are_ranks: bool = False

    def resolve(self, peer: Peer, ranks: Ranks) -> NamedPeer | None:
        """Return a peer as a rank or a machine of the job, or None if it is neither."""
        number = peer.rank if peer.rank is not None else peer.task
        if number is not None and number in ranks.table:
            return NamedPeer(number, ranks.machine(number))
        host = peer.host or self.addresses.get(peer.address or "")
        machine = None if host is None else _machine(host, ranks)
        if machine is None:
            return None
        on_machine = ranks.on(machine)
        return NamedPeer(on_machine[0] if len(on_machine) == 1 else None, machine)

    def ends(self, logs: Iterable[ScannedLog], ranks: Ranks, at: int) -> dict[int, LaunchReport]:
        """Return the last report of each rank, up to a time.

        The launcher of each machine calls a report the first one. It is the first of the job only
        if no other rank failed within 2 s of it.
        """
        ends: dict[int, LaunchReport] = {}
        for log in logs:
            for report in log.launches:
                rank = self._rank(report, log, ranks)
                is_past = report.time is None or report.time <= at
                if rank is None or not is_past or report.exit_code is None or report.by_launcher:
                    continue
                known = ends.get(rank)
                if known is None or not known.is_first:
                    ends[rank] = report
        failed = [report for report in ends.values() if report.exit_code not in _REQUESTED]
        return {
            rank: replace(report, is_first=report.is_first and _leads(report, failed))
            for rank, report in ends.items()
        }

    def _rank(self, report: LaunchReport, log: ScannedLog, ranks: Ranks) -> int | None:
        """Return the rank that a report means, or None if it does not say."""
        host = report.host or log.stream.machine
        machine = None if host is None else _machine(host, ranks)
        if report.rank is not None:
            return report.rank if report.rank in ranks.table else None
        if report.pid is not None:
            found_ranks = [n for n, row in ranks.table.items() if row.pid == report.pid]
            if len(found_ranks) == 1:
                return found_ranks[0]
        if machine is not None and report.local_rank is not None:
            return ranks.rank_at(machine, report.local_rank)
        if report.task is not None and self.tasks_are_ranks:
            return report.task if report.task in ranks.table else None
        return None


def _leads(report: LaunchReport, failed: Sequence[LaunchReport]) -> bool:
    others = [other for other in failed if other is not report]
    return all(
        report.time is not None
        and other.time is not None
        and other.time > report.time + _TIME_UNCERTAINTY
        for other in others
    )


def _machine(host: str, ranks: Ranks) -> str | None:
    """Return the machine of the job that a host name means, with or without its domain."""
    machines = {row.machine for row in ranks.table.values() if row.machine is not None}
    if host in machines:
        return host
    short = [name for name in machines if name.partition(".")[0] == host.partition(".")[0]]
    return short[0] if len(short) == 1 else None
