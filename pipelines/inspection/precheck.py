"""Tests between machines: a precheck in rounds of pairs, and a table of all pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.errors import InputError
from forewarn.features.telemetry.telemetry_rows import is_host_name
from forewarn.models.diagnosis.nodes.node_check import GroupTest, NodeCheck, evaluate_tests
from forewarn.models.diagnosis.nodes.node_pairing import plan_next_round
from forewarn.models.diagnosis.nodes.pair_matrix import PairTest
from forewarn.models.diagnosis.nodes.rack_pairing import pair_by_rack
from forewarn.pipelines.diagnosis.pair_results import PairTableResult, judge_table
from forewarn.pipelines.diagnosis.parts.pair_table_reader import PairTable
from forewarn.pipelines.inspection.probe_pool import GroupResult, ProbePool
from forewarn.pipelines.runtime.progress import progress_bar

__all__ = [
    "HostsError",
    "Precheck",
    "check_hosts",
    "group_rows",
    "measure_all_pairs",
    "measure_by_rack",
    "measure_rings",
    "pair_rounds",
    "precheck",
]

_MIN_NODES = 4  # as the node check needs
_RACK_ROUNDS = 4  # within racks, across, and for machines in doubt: three partners judge a machine


class HostsError(InputError):
    """Names of machines that cannot be checked."""


def check_hosts(hosts: Sequence[str], option: str, fewest: int = 2) -> None:
    """Reject names that are no host names, repeated ones, and too few.

    Raises
    ------
    HostsError
        If one is.
    """
    bad = next((host for host in hosts if not is_host_name(host) or host.startswith("-")), None)
    if bad is not None:
        raise HostsError(f"{option}: found {bad[:60]!r}, expected names of machines.")
    if len(set(hosts)) < len(hosts):
        twice = next(host for host in hosts if list(hosts).count(host) > 1)
        raise HostsError(f"{option}: found {twice!r} twice, expected each machine once.")
    if len(hosts) < fewest:
        raise HostsError(f"{option}: found {len(hosts)} machine, expected at least {fewest}.")


@dataclass(frozen=True, slots=True)
class Precheck:
    """The result of a precheck.

    Attributes
    ----------
    hosts : tuple of str
    reasons : dict of str to str
        Machines to leave out, each with its reason.
    undetermined : tuple of str
        Machines whose tests do not tell whether they are slow.
    rounds : int
    machine_minutes : float
        Time of the tests, times machines.
    """

    hosts: tuple[str, ...]
    reasons: dict[str, str]
    undetermined: tuple[str, ...]
    rounds: int
    machine_minutes: float
    tests: tuple[GroupResult, ...] = field(default=(), repr=False)

    def line(self) -> dict[str, Any]:
        """Return the result as `--json` prints it."""
        return {
            "leave_out": list(self.reasons),
            "reasons": self.reasons,
            "undetermined": list(self.undetermined),
            "good": [h for h in self.hosts if h not in self.reasons and h not in self.undetermined],
            "rounds": self.rounds,
            "machine_minutes": round(self.machine_minutes, 3),
        }


def precheck(pool: ProbePool, *, rounds: int = 2) -> Precheck:
    """Test pairs of machines in rounds, and return which to leave out of a job.

    Each test is a product of matrices and an all-gather, as in DLRover's node check. From the
    second round suspects meet machines that have passed.

    Parameters
    ----------
    pool : ProbePool
        Entered.
    rounds : int
        At most; fewer if no test would add information.
    """
    unreachable = pool.unreachable
    hosts = [host for host in pool.hosts if host not in unreachable]
    results: list[GroupResult] = []
    tests: list[GroupTest] = []
    number = 0
    while number < rounds and (groups := plan_next_round(hosts, tests)):
        number += 1
        done = pool.run(groups)
        results += done
        tests += [
            GroupTest(number, frozenset(r.nodes), r.seconds is not None, r.seconds) for r in done
        ]
    check = evaluate_tests(hosts, tests)
    reasons = {**unreachable, **_reasons(hosts, check, results)}
    slow = {host for host in hosts if host in check.fastest and host not in check.speed.good}
    ordered = {host: reasons[host] for host in pool.hosts if host in reasons}
    undetermined = tuple(host for host in hosts if host in slow and host not in ordered)
    minutes = pool.probe_seconds / 60.0
    return Precheck(tuple(pool.hosts), ordered, undetermined, number, minutes, tuple(results))


def _reasons(
    hosts: Sequence[str], check: NodeCheck, results: Sequence[GroupResult]
) -> dict[str, str]:
    """Return the machines to leave out."""
    passed = {host for result in results if result.seconds is not None for host in result.nodes}
    reasons = {}
    for host in hosts:
        errors = [r.error for r in results if host in r.nodes and r.seconds is None]
        if host in check.works.bad or (errors and host not in passed):
            reasons[host] = f"failed {len(errors)} of its tests: {', '.join(errors[:1])}"
        elif host in check.works.unsteady or (errors and host in check.doubtful):
            reasons[host] = f"passes and fails: {errors[0]}"
        elif host in check.speed.bad:
            reasons[host] = f"slow: {check.factor(host):.2f} of the median speed"
    links = [("failed", check.works.links), ("slow", check.speed.links)]
    for state, group in ((state, group) for state, groups in links for group in groups):
        if not group & set(reasons):
            first, second = sorted(group)
            reasons[second] = f"{state} link with {first}"
    return reasons


def pair_rounds(hosts: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Return all pairs in rounds in which each machine is tested once at most.

    Examples
    --------
    >>> pair_rounds(["a", "b", "c", "d"])
    [[('a', 'd'), ('b', 'c')], [('a', 'c'), ('d', 'b')], [('a', 'b'), ('c', 'd')]]
    """
    ring: list[str | None] = [*hosts, *[None] * (len(hosts) % 2)]
    half = len(ring) // 2
    rounds = []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def measure_all_pairs(pool: ProbePool) -> tuple[PairTableResult, list[GroupResult]]:
    """Test all pairs of machines, and return which machine, link or block explains slow ones.

    Parameters
    ----------
    pool : ProbePool
        Entered.
    """
    results: list[GroupResult] = []
    rounds = pair_rounds(list(pool.hosts))
    with progress_bar(len(rounds), "pairs", "round") as bar:
        for pairs in rounds:
            results += pool.run(pairs)
            bar.update()
    return _judge_pairs(pool, results), results


def measure_by_rack(
    pool: ProbePool, racks: Mapping[str, str]
) -> tuple[PairTableResult, list[GroupResult]]:
    """Test a few pairs within racks and across them, and machines in doubt with more.

    The number of rounds does not grow with the machines. A link that only one pair uses is found
    if that pair is tested.

    Parameters
    ----------
    pool : ProbePool
        Entered.
    racks : mapping of str to str
        Rack of each machine.
    """
    results: list[GroupResult] = []
    hosts = list(pool.hosts)
    with progress_bar(3 * _RACK_ROUNDS, "pairs", "round") as bar:
        for number in range(3 * _RACK_ROUNDS):
            tested = {frozenset(result.nodes) for result in results}
            if number < 2 * _RACK_ROUNDS:
                pairs = pair_by_rack(hosts, hosts, racks, tested, across=number % 2 == 1)
            else:
                doubtful, good = _in_doubt(_judge_pairs(pool, results, racks))
                # Two slow machines may be a block of their own in a rack, which only their pair
                # tells. Other tests are with good machines, most of them of other racks.
                is_first = number == 2 * _RACK_ROUNDS
                partners, across = (doubtful, False) if is_first else (good, None)
                pairs = pair_by_rack(doubtful, partners, racks, tested, across=across)
            results += pool.run(pairs)
            bar.update()
    return _judge_pairs(pool, results, racks), results


def _in_doubt(verdict: PairTableResult) -> tuple[list[str], list[str]]:
    """Return machines that are unproven or at a bad link, and those that are good."""
    line = verdict.line()
    ends = {link[end] for link in line["links"] for end in ("a", "b")}
    states = {node["node"]: node["state"] for node in line["nodes"]}
    doubtful = [name for name, state in states.items() if state == "unproven" or name in ends]
    return doubtful, [name for name, state in states.items() if state == "ok" and name not in ends]


def _judge_pairs(
    pool: ProbePool, results: Sequence[GroupResult], racks: Mapping[str, str] | None = None
) -> PairTableResult:
    tests = [
        PairTest(first, second, None if result.seconds is None else 1.0 / result.seconds)
        for result in results
        for first, second in [result.nodes]
    ]
    table = PairTable({"all_gather": tests}, "seconds", is_time=True, skipped=0)
    return judge_table(table, list(pool.hosts), None, racks)


def measure_rings(pool: ProbePool, results: Sequence[GroupResult]) -> list[GroupResult]:
    """Test all machines that passed with at least one other in one all-gather a GPU number.

    Parameters
    ----------
    pool : ProbePool
        Entered.
    results : sequence of GroupResult
        Of pairs.

    Returns
    -------
    list of GroupResult
        One without GPUs; empty for fewer than three machines.
    """
    passed = {host for result in results if result.seconds is not None for host in result.nodes}
    hosts = [host for host in pool.hosts if host in passed and host not in pool.unreachable]
    if len(hosts) <= 2:
        return []
    return [pool.run([hosts], gpu=number)[0] for number in range(max(1, pool.gpus))]


def group_rows(
    results: Sequence[GroupResult], *, run: str, moment: int, name: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of RESULTS of tests between machines.

    A pair is a row of its first machine, with the partner as slot; a larger group is a row of each,
    with the number of the GPU as slot, from the second on.
    """
    common = {"timestamp": moment, "run": run, "unit": "s", "versions": json.dumps({}), "set": name}
    for result in results:
        status = "failed" if result.seconds is None else "ok"
        value: dict[str, Any] = {
            "value": result.seconds,
            "seconds": result.seconds,
            "status": status,
        }
        value |= {"text": result.error or None, **common}
        if len(result.nodes) > 2:
            slot = str(result.gpu) if result.gpu else None
            for node in result.nodes:
                yield {"machine": node, "slot": slot, "check": "group_all_gather", **value}
            continue
        first, second = result.nodes
        yield {"machine": first, "slot": second, "check": "pair_all_gather", **value}
        if result.seconds is not None:
            skew = {**value, "check": "pair_clock_skew", "value": result.clock_skew}
            yield {"machine": first, "slot": second, **skew}
