"""Nodes that one job of Slurm excludes, read with `squeue` and changed with `scontrol`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from forewarn.features.hostlist import expand
from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.incidents.schedulers.slurm.slurm_nodes import SlurmNode, parse_nodes

__all__ = ["SlurmJob", "exclude_nodes", "read_job"]

_FORMAT = "%i|%T|%P|%D|%n|%x|%u|%f"  # constraints last: they may contain `|`
_PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_RUNNING = frozenset({
    *("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"),
    *("CONFIGURING", "COMPLETING", "STAGE_OUT"),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job that runs or waits.

    Attributes
    ----------
    id : str
    pending : bool
        Slurm changes the excluded nodes of such a job only.
    partitions : tuple of str
    n_nodes : int
        The fewest that it needs.
    required, excluded : frozenset of str
        Nodes that it asks for, and that it must not get.
    owner : str
        User.
    constraint : str
        Features that its nodes need; empty if none.
    """

    id: str
    pending: bool
    partitions: tuple[str, ...]
    n_nodes: int
    required: frozenset[str]
    excluded: frozenset[str]
    owner: str = ""
    constraint: str = ""


def read_job(command: SlurmCommand, job: str) -> SlurmJob | None:
    """Return a job, or None if it has ended.

    Raises
    ------
    DriverError
        If Slurm does not answer, or the number is that of an array with several tasks.
    """
    try:
        text = command.ask("squeue", "-h", "-a", "--states=all", "-j", job, "-o", _FORMAT)
    except DriverError as error:
        if "invalid job id" in str(error).lower():
            return None
        raise
    lines = [line.strip().split("|", 7) for line in text.splitlines() if line.strip()]
    rows = [line for line in lines if len(line) == 8 and line[0] == job]
    if lines and len(rows) != 1:
        raise DriverError(f"job {job} has {len(lines)} tasks, expected one such as {job}_0")
    return _parse(rows[0]) if rows else None


def _parse(row: list[str]) -> SlurmJob | None:
    job, state, partitions, n_nodes, required, excluded, owner, constraint = row
    if state not in _PENDING | _RUNNING:
        return None
    try:
        return SlurmJob(
            id=job,
            pending=state in _PENDING,
            partitions=tuple(partitions.split(",")),
            n_nodes=int(n_nodes),
            required=frozenset(_expand(required)),
            excluded=frozenset(_expand(excluded)),
            owner=owner,
            constraint="" if constraint in ("(null)", "N/A") else constraint,
        )
    except ValueError as error:
        raise DriverError(f"Slurm's output on job {job} is unreadable: {error}") from None


def _expand(text: str) -> list[str]:
    return [] if text in ("", "(null)", "N/A") else expand(text)


def exclude_nodes(command: SlurmCommand, job: SlurmJob, excluded: frozenset[str]) -> None:
    """Set all nodes that a waiting job excludes, and read them back.

    Slurm replaces the list: `excluded` holds the earlier nodes, too.

    Raises
    ------
    DriverTimeoutError
        If there was no answer.
    DriverError
        If the job would then never fit, or Slurm does not show the list.
    """
    if excluded - job.excluded:
        nodes = parse_nodes(command.ask("scontrol", "show", "node", "-o"))
        if refusal := _fit_refusal(job, excluded, nodes):
            raise DriverError(refusal)
    names = ",".join(sorted(excluded))
    command.change("scontrol", "update", f"jobid={job.id}", f"excnodelist={names}")
    after = read_job(command, job.id)
    if after is not None and after.excluded != excluded:
        raise DriverError(f"job {job.id} excludes {sorted(after.excluded)}, expected {names!r}")


def _fit_refusal(job: SlurmJob, excluded: frozenset[str], nodes: Iterable[SlurmNode]) -> str:
    """Return why a job would never start without some nodes; empty if it may.

    Only nodes with as many GPUs as an excluded one count: on others the job may not fit.
    """
    if job.required & excluded:
        return f"job {job.id} requires {min(job.required & excluded)}"
    features = job.constraint.split("&") if job.constraint else []
    if not all(re.fullmatch(r"[\w.=:-]+", feature) for feature in features):
        return f"job {job.id} has the constraint {job.constraint!r}, expected names joined by `&`"
    known = {node.name: node for node in nodes}
    n_gpus = min((known[name].gpus for name in excluded if name in known), default=0)
    usable = [
        node
        for node in known.values()
        if node.name not in excluded
        and not set(node.partitions).isdisjoint(job.partitions)
        and node.gpus >= n_gpus
        and set(features) <= set(node.features)
    ]
    if len(usable) < job.n_nodes:
        return f"job {job.id} needs {job.n_nodes} nodes, and {len(usable)} would be left"
    return ""
