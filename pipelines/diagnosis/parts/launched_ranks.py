"""Ranks as launchers know them: their machines, and how they ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forewarn.features.diagnosis.host_names import host_key
from forewarn.features.diagnosis.log_lines.launcher_reports import LaunchReport
from forewarn.features.diagnosis.log_lines.named_peer import Peer
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.crash.accused_peers import Accusation
from forewarn.models.diagnosis.crash.rank_exit import NamedPeer, Symptom
from forewarn.pipelines.diagnosis.parts.log_reader import ScannedLog

__all__ = ["LaunchedRanks", "has_one_machine"]

_REQUESTED = (0, -15)
_OWN_SIGNALS = (-4, -7, -8, -9, -11)  # not sent by an aborting library or by a launcher's request
_SIGKILL = -9
_ENDED = (-15, _SIGKILL)
_MIN_KILLED = 2  # the OOM killer ends one
_MIN_FAILED = 2  # processes that failed alike
_TIME_UNCERTAINTY = 2 * SECOND  # launchers write whole seconds


@dataclass(frozen=True, slots=True)
class LaunchedRanks:
    """Machines by their other names, and the meaning of a launcher's numbers.

    Attributes
    ----------
    addresses : mapping of str to str
    tasks_are_ranks : bool
        Whether numbers of the launcher's tasks are ranks.
    locals_are_ranks : bool
        Whether ranks on a machine are ranks of the job, which has no other machine.
    world : int or None
        Ranks of the job, if the text states their number.
    hosts : mapping of str to str
        Machines that write, by `host_key`.
    nodes : mapping of str to str
        Machines by the names of their pods.
    """

    addresses: Mapping[str, str] = field(default_factory=dict)
    tasks_are_ranks: bool = False
    locals_are_ranks: bool = False
    world: int | None = None
    hosts: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    def stated_rank(self, report: LaunchReport) -> int | None:
        """Return the rank that a report states, or None.

        A process that ended with an error may have ended because of another one: its number on the
        machine is then not used.
        """
        if report.rank is not None:
            return report.rank
        is_usable = self.locals_are_ranks and report.exit_code in _OWN_SIGNALS
        return report.local_rank if is_usable else None

    def resolve(self, peer: Peer, ranks: Ranks) -> NamedPeer | None:
        """Return a peer as a rank or a machine of the job, or None if it is neither."""
        number = peer.rank if peer.rank is not None else peer.task
        if number is not None:
            is_known = number in ranks.table or not ranks.listed
            return NamedPeer(number, ranks.machine(number)) if is_known else None
        host = peer.host or self.addresses.get(peer.address or "", peer.address)
        machine = None if host is None else self.machine(host, ranks)
        if machine is None:
            return None
        on_machine = ranks.on(machine)
        return NamedPeer(on_machine[0] if len(on_machine) == 1 else None, machine)

    def others(self, present: Collection[int], ranks: Ranks) -> Iterator[NamedPeer]:
        """Yield the ranks that are not among those that have come; none if most have not.

        Ranks count from 0, so that those below the highest that has come exist. One rank that came
        alone may be the one that went astray.
        """
        least = 0 if ranks.listed else max(max(present) + 1, self.world or 0)
        absent = {*ranks.table, *range(least)}.difference(present)
        if len(absent) <= len(present):
            yield from (NamedPeer(rank, ranks.machine(rank)) for rank in sorted(absent))

    def machine(self, host: str, ranks: Ranks) -> str | None:
        """Return the machine that a host name or an address means, or None.

        Without a list of the ranks, a host that only its peers name is a machine of the job.
        """
        known = ranks.machine_named(host)
        if known is not None or ranks.listed:
            return known
        return self.hosts.get(host_key(host), host)

    def accusations(
        self, logs: Iterable[ScannedLog], ranks: Ranks, at: int
    ) -> Iterator[Accusation]:
        """Yield the processes and machines that a launcher lost, if it does not say which rank.

        A process that ended with an error may have been aborted after another one, unless all
        others were ended.
        """
        logs = list(logs)
        reports = [r for log in logs for r in log.launches if _is_past(r, at)]
        reports = _without_shared_host(reports)
        alone, is_ended = _failed_alone(reports), any(r.exit_code in _ENDED for r in reports)
        for log in logs:
            for report in log.launches:
                is_own = report.exit_code is None or report.exit_code in _OWN_SIGNALS
                is_named = report in alone if alone else is_own
                if report not in reports or not is_named or report.by_launcher:
                    continue
                rank = self._rank(report, log, ranks)
                if rank is None or report.exit_code is None:
                    if rank is None and self.locals_are_ranks and report.host is None:
                        rank = report.rank or report.local_rank
                    named = Peer(rank, report.task) if rank is not None else _peer(report)
                    peer = self.resolve(named, ranks)
                    if peer is not None:
                        yield Accusation(
                            *(peer, None, report.line, report.time),
                            by_observer=True,
                            is_exit=bool(alone),
                            is_missed=report.exit_code is None or bool(alone and not is_ended),
                            pid=report.pid,
                        )

    def ends(self, logs: Iterable[ScannedLog], ranks: Ranks, at: int) -> dict[int, LaunchReport]:
        """Return the last report of each rank, up to a time.

        The launcher of each machine calls a report the first one, or ends all others. It is the
        first of the job only if no other rank failed within 2 s of it.
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
        is_alone = len(failed) == 1 and any(report.exit_code == -15 for report in ends.values())

        def is_first(report: LaunchReport) -> bool:
            is_named = report.is_first or (is_alone and report in failed)
            return is_named and _leads(report, failed)

        return {rank: replace(report, is_first=is_first(report)) for rank, report in ends.items()}

    def unknown_ends(self, log: ScannedLog, ranks: Ranks, at: int) -> Iterator[Symptom]:
        """Yield the failures of processes of which the launcher names neither rank nor machine."""
        for report in log.launches:
            if report.exit_code is None or report.by_launcher or report.exit_code in _REQUESTED:
                continue
            is_past = report.time is None or report.time <= at
            if is_past and self._rank(report, log, ranks) is None:
                says = "the launcher reports a process that failed"
                what = "look for its error; the kernel log says whether memory was short"
                yield Symptom("exits", "root", "platform", says, what, report.line, report.time)

    def _rank(self, report: LaunchReport, log: ScannedLog, ranks: Ranks) -> int | None:
        """Return the rank that a report means, or None if it does not say."""
        host = report.host or log.stream.machine
        machine = None if host is None else ranks.machine_named(host)
        if report.rank is not None:
            return report.rank if report.rank in ranks.table else None
        if report.pid is not None:
            rank = ranks.by_pid().get(report.pid)
            if rank is not None:
                return rank
        if machine is not None and report.local_rank is not None:
            rank = ranks.rank_at(machine, report.local_rank)
            if rank is not None:
                return rank
        if (stated := self.stated_rank(report)) is not None:
            return stated if stated in ranks.table else None
        if report.task is not None and self.tasks_are_ranks:
            return report.task if report.task in ranks.table else None
        return None


def has_one_machine(
    logs: Sequence[ScannedLog], machines: Iterable[str], nodes: int, world: int | None
) -> bool:
    """Return whether launchers' numbers on a machine are ranks, because there is one machine only.

    Any sign of a second machine counts: its name, another log without a rank, or more ranks than
    one machine runs, as far as its launcher says.

    Parameters
    ----------
    logs : sequence of ScannedLog
    machines : iterable of str
        That the text states.
    nodes : int
        Machines that the job has at least; 0 if unknown.
    world : int or None
        Ranks of the job.
    """
    reports = [report for log in logs for report in log.launches]
    named = {*machines, *(log.stream.machine for log in logs), *(r.host for r in reports)}
    writers = {log.stream.name for log in logs if log.rank is None and not log.stream.is_kernel}
    local = max((r.local_rank for r in reports if r.local_rank is not None), default=-1)
    processes = max(local + 1, len({r.pid for r in reports} - {None}))
    spoken = max((log.rank for log in logs if log.rank is not None), default=-1) + 1
    is_whole = max(world or 0, spoken) < 2 * processes
    return nodes < 2 and len(named - {None}) < 2 and len(writers) < 2 and is_whole


def _failed_alone(reports: Sequence[LaunchReport]) -> list[LaunchReport]:
    """Return what ended with an error on one machine, while all others were ended; maybe nothing.

    Launchers end the others, which were alive then, by SIGTERM, and then by SIGKILL. A scheduler
    that numbers tasks from 0 does not report those that it ended itself.
    """
    ends = [r for r in reports if r.exit_code is not None and not r.by_launcher]
    failed = [r for r in ends if r.exit_code not in (*_REQUESTED, _SIGKILL)]
    tasks = {(r.host, r.task, r.rank, r.local_rank) for r in failed}
    is_one = len(tasks) == 1 or (len({r.host for r in failed}) == 1 and failed[0].host is not None)
    if not is_one or any(r.exit_code in _OWN_SIGNALS for r in failed):
        return []
    numbers = {r.task for r in failed} - {None}
    others = [r.exit_code for r in ends if r not in failed]
    stopped = {r.pid for r in reports if r.by_launcher and r.exit_code == -15}
    is_alive = bool(stopped - {None}) and not stopped & {r.pid for r in failed}
    is_first = -15 in others or others.count(_SIGKILL) >= _MIN_KILLED or is_alive
    is_part = bool(numbers) and numbers != set(range(len(numbers))) and not others
    return failed if is_first or is_part else []


def _without_shared_host(reports: Sequence[LaunchReport]) -> list[LaunchReport]:
    """Return reports without those that several processes of the only machine failed."""
    pids = {(r.host, r.pid) for r in reports if not r.by_launcher and r.exit_code is not None}
    hosts = {r.host for r in reports} - {None}
    if len(hosts) > 1 or len(pids) < _MIN_FAILED or None in {pid for _, pid in pids}:
        return list(reports)
    return [r for r in reports if r.host is None or r.rank is not None or r.local_rank is not None]


def _is_past(report: LaunchReport, at: int) -> bool:
    return report.time is None or report.time <= at


def _peer(report: LaunchReport) -> Peer:
    if report.rank is not None or (report.task is not None and report.host is None):
        return Peer(rank=report.rank, task=report.task)
    return Peer(host=report.host or report.pod)


def _leads(report: LaunchReport, failed: Sequence[LaunchReport]) -> bool:
    others = [other for other in failed if other is not report]
    return all(
        report.time is not None
        and other.time is not None
        and other.time > report.time + _TIME_UNCERTAINTY
        for other in others
    )
