"""The network of a machine with its neighbours, as a measurement of an inspection."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from forewarn.pipelines.inspection.check_runner import torch_python
from forewarn.pipelines.inspection.precheck import measure_rings, precheck
from forewarn.pipelines.inspection.probe_pool import ProbePool

__all__ = ["judge_neighbours", "measure_neighbours"]

_MIN_NEIGHBOURS: Final = 3  # fewer pairs do not tell which of their machines is bad
_ROUNDS: Final = 3


def measure_neighbours(environment: Mapping[str, str]) -> dict[str, Any]:
    """Test pairs and rings of a machine and its neighbours.

    Parameters
    ----------
    environment : mapping of str to str
        `FOREWARN_MACHINE_ID`, `FOREWARN_NEIGHBOURS` (separated by blanks), and `FOREWARN_VIA`, the
        command that runs another one on machine `{host}`.

    Returns
    -------
    dict
        As `judge_neighbours`, or `not_run` with the reason.
    """
    machine = environment.get("FOREWARN_MACHINE_ID", "")
    neighbours = [h for h in environment.get("FOREWARN_NEIGHBOURS", "").split() if h != machine]
    if len(neighbours) < _MIN_NEIGHBOURS:
        return {"not_run": f"it needs {_MIN_NEIGHBOURS} neighbours, named by --neighbours"}
    via = shlex.split(environment.get("FOREWARN_VIA", ""))
    with ProbePool([machine, *neighbours], via=via, python=torch_python()) as pool:
        return judge_neighbours(pool, machine)


def judge_neighbours(pool: ProbePool, machine: str) -> dict[str, Any]:
    """Return the seconds of the fastest pair of a machine and of each ring.

    Parameters
    ----------
    pool : ProbePool
        Entered.
    machine : str

    Returns
    -------
    dict
        `values`: slots and values; or `failed`: why a job should not get the machine; or `not_run`,
        if no neighbour answers.
    """
    result = precheck(pool, rounds=_ROUNDS)
    if machine in result.reasons:
        return {"failed": result.reasons[machine]}
    times = [t.seconds for t in result.tests if machine in t.nodes and t.seconds is not None]
    if not times:
        return {"not_run": "no neighbour answers"}
    rings = [ring for ring in measure_rings(pool, result.tests) if machine in ring.nodes]
    for ring in rings:
        if ring.seconds is None:
            return {"failed": f"the ring of GPU {ring.gpu} of all machines failed: {ring.error}"}
    values: list[tuple[str | None, str]] = [(None, repr(min(times)))]
    values += [(f"ring {ring.gpu}", repr(ring.seconds)) for ring in rings]
    return {"values": values}
