"""Machines of ranks and of addresses, from what the lines of a job state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forewarn.features.diagnosis.host_names import host_key
from forewarn.features.diagnosis.log_streams.file_numbers import machine_of_path
from forewarn.features.diagnosis.log_streams.heard_sources import HeardSource
from forewarn.features.diagnosis.log_streams.job_ranks import JobRanks
from forewarn.features.diagnosis.log_streams.local_ranks import first_rank, launcher_of, local_of
from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["JobMachines", "learn_machines"]


@dataclass(frozen=True, slots=True)
class JobMachines:
    """Machines of a job.

    Attributes
    ----------
    by_rank, addresses : dict
        Machines by rank and by address.
    keys : frozenset of str
        Keys of the machines that the table or the text name, as `host_key` returns them.
    """

    by_rank: dict[int, str]
    addresses: dict[str, str]
    keys: frozenset[str]

    def machine(self, item: HeardSource, rank: int | None) -> str | None:
        """Return the machine of a source, or None."""
        if rank is not None and rank in self.by_rank:
            return self.by_rank[rank]
        return _speaker(item, self.addresses) or machine_of_path(item.source.name, self.keys)


def learn_machines(heard: Sequence[HeardSource], job: JobRanks, ranks: Ranks) -> JobMachines:
    """Collect machines: the ranks' table first, then launchers, then the speakers' own lines."""
    addresses: dict[str, str] = {}
    by_rank = {n: row.machine for n, row in ranks.table.items() if row.machine is not None}
    known = set(by_rank.values())
    for item in heard:
        addresses.update(item.heard.addresses)
        for rank, (host, _) in item.heard.placed.items():
            by_rank.setdefault(rank, host)
        if job.tasks_are_ranks:
            for task, host in item.heard.tasks.items():
                by_rank.setdefault(task, host)
        known.update(item.heard.tasks.values(), item.heard.hosts, item.heard.peers)
    keys = frozenset(map(host_key, known.union(by_rank.values())))
    for rank, host in _same_launcher(heard, job):
        by_rank.setdefault(rank, host)
    for item in heard:
        own = job.rank(item)
        machine = _speaker(item, addresses) or machine_of_path(item.source.name, keys)
        if own is not None and machine is not None:
            by_rank.setdefault(own, machine)
    return JobMachines(dict(sorted(by_rank.items())), addresses, keys)


def _same_launcher(heard: Sequence[HeardSource], job: JobRanks) -> Iterator[tuple[int, str]]:
    """Yield rank and machine where torchrun named the machine of another of its workers."""
    groups: dict[tuple[object, ...], list[HeardSource]] = {}
    for item in heard:
        groups.setdefault(launcher_of(item), []).append(item)
    for items in groups.values():
        if all(local_of(item) is None for item in items):
            continue  # a console of several machines
        hosts = {host for item in items for host, _ in item.heard.placed.values()}
        if len(hosts) == 1 and first_rank(items, job) is not None:
            host = hosts.pop()
            yield from ((rank, host) for i in items if (rank := job.rank(i)) is not None)


def _speaker(item: HeardSource, addresses: dict[str, str]) -> str | None:
    """Return the machine that a source's own lines name."""
    label, hosts = item.source.label, item.heard.hosts
    if label.host is not None:
        return label.host
    if label.address is not None and label.address in addresses:
        return addresses[label.address]
    return next(iter(hosts)) if len(hosts) == 1 else None
