"""Which of the machines that deviate is to blame: victims, and events that have no culprit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.features.detection.metric_role import Role
from forewarn.models.detection.detection_verdict import (
    MachineFinding,
    Suppressed,
    SuppressionRule,
)
from forewarn.models.detection.monitored_task import partners

__all__ = ["accused", "common_event", "outmove_partners"]

_CLEARLY = 2.0  # times as far as the partner


def accused(
    findings: Sequence[MachineFinding], hints: Sequence[MachineFinding], roles: Mapping[str, Role]
) -> tuple[list[MachineFinding], list[Suppressed]]:
    """Separate the machines that are to blame from those that wait for them.

    A machine that waits longer than its peers waits for a machine elsewhere: in a pipeline, the
    partners of a slow worker deviate in their own groups as well, often more than it does. Waiting
    is no accusation, and a machine whose waiting rose is not accused by what else changed on it. A
    machine whose own work rose while it waits is accused all the same.

    Parameters
    ----------
    findings : sequence of MachineFinding
        Of all examined metrics.
    hints : sequence of MachineFinding
        Deviations below the threshold.
    roles : mapping of str to str
        Role of each metric.

    Returns
    -------
    list of MachineFinding
        In the same order.
    list of Suppressed
        The others.
    """
    both = [*findings, *hints]
    waiting = {f.machine for f in both if roles.get(f.metric) == "wait" and f.rose}
    working = {f.machine for f in findings if roles.get(f.metric) == "work" and f.rose}
    blamed: list[MachineFinding] = []
    suppressed: list[Suppressed] = []
    for finding in findings:
        rule: SuppressionRule | None = None
        if roles.get(finding.metric) == "wait":
            rule = "wait"
        elif finding.machine in waiting - working:
            rule = "victim"
        if rule is None:
            blamed.append(finding)
        else:
            suppressed.append(Suppressed(finding.machine, finding.metric, finding.score, rule))
    return blamed, suppressed


def outmove_partners(changes: Float64Array, groups: Int64Array) -> BoolArray:
    """Tell which machines moved clearly further than their partner in a group of two.

    The difference of two machines does not tell which one moved; their own levels do, apart from
    what the machines of all such groups have in common.

    Parameters
    ----------
    changes : ndarray of shape (n_metrics, n_machines)
        Change of each machine's own level.
    groups : ndarray of shape (n_machines,), int

    Returns
    -------
    ndarray of shape (n_machines,), bool
        True for machines that are compared within their group.
    """
    other = partners(groups)
    paired = other >= 0
    clear = ~paired
    if paired.any():
        apart = np.nan_to_num(changes - np.nanmedian(changes[:, paired], axis=1, keepdims=True))
        moved = np.sqrt((apart**2).sum(axis=0))
        clear |= (moved > 0.0) & (moved >= _CLEARLY * moved[other])
    return clear


def common_event(
    findings: Sequence[MachineFinding], suppressed: Sequence[Suppressed]
) -> tuple[int, ...]:
    """Return the machines that moved together without a culprit; empty if there is one."""
    if findings:
        return ()
    machines = {each.machine for each in suppressed if each.rule in ("majority", "victim")}
    return tuple(sorted(machines)) if len(machines) > 1 else ()
