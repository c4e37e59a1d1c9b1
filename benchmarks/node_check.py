"""Rounds and errors of the node check, compared with DLRover's two rounds.

Simulated: each node draws a time, a pair takes the time of its slower node, and a pair with a bad
node or a bad link fails. `--short` runs fewer fleets.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forewarn.models.diagnosis.nodes.group_testing import links_within
from forewarn.models.diagnosis.nodes.node_check import GroupTest, evaluate_tests
from forewarn.models.diagnosis.nodes.node_pairing import plan_next_round

Pairing = Callable[[Sequence[str], Sequence[GroupTest]], Sequence[Sequence[str]]]
_FAILED = 3600.0  # seconds that a failure counts for pairings by time


@dataclass(frozen=True)
class Fleet:
    """Nodes, their faults, and the probability that a fault shows."""

    nodes: tuple[str, ...]
    bad: frozenset[str]
    links: frozenset[frozenset[str]]
    shows: float


def draw_fleet(count: int, bad: int, links: int, shows: float, rng: random.Random) -> Fleet:
    """Draw the faults; each good node has at most one bad link."""
    nodes = tuple(f"n{number}" for number in range(count))
    order = rng.sample(nodes, count)
    ends = order[bad : bad + 2 * links]
    pairs_of = frozenset(frozenset(ends[n : n + 2]) for n in range(0, len(ends), 2))
    return Fleet(nodes, frozenset(order[:bad]), pairs_of, shows)


def tested(fleet: Fleet, pairing: Pairing, most: int, rng: random.Random) -> list[GroupTest]:
    """Run rounds until the pairing ends."""
    times = {node: rng.uniform(10.0, 12.0) for node in fleet.nodes}
    tests: list[GroupTest] = []
    for number in range(1, most + 1):
        for group in map(frozenset, pairing(fleet.nodes, tests)):
            is_hit = bool(group & fleet.bad) or bool(fleet.links & set(links_within(group)))
            fails = is_hit and rng.random() < fleet.shows
            seconds = None if fails else max(times[node] for node in group)
            tests.append(GroupTest(number, group, not fails, seconds))
    return tests


def two_rounds(nodes: Sequence[str], tests: Sequence[GroupTest]) -> list[tuple[str, ...]]:
    """Pair neighbours, then the fastest with the slowest; a failure counts as 3,600 s."""
    if not tests:
        return list(plan_next_round(nodes, ()))
    if tests[-1].round > 1:
        return []
    times = {node: test.seconds or _FAILED for test in tests for node in test.nodes}
    order = sorted(nodes, key=lambda node: (times[node], zlib.crc32(node.encode())))
    half = len(order) // 2
    groups: list[tuple[str, ...]] = list(zip(order[:half], reversed(order[-half:]), strict=True))
    if len(order) % 2:
        groups[-1] = (*groups[-1], order[half])
    return groups


def failed_twice(tests: Sequence[GroupTest]) -> set[str]:
    """Return the nodes that failed in both rounds."""
    rounds: dict[int, set[str]] = {1: set(), 2: set()}
    for test in tests:
        if not test.passed:
            rounds[test.round] |= test.nodes
    return rounds[1] & rounds[2]


CASES = (
    (6, 1, 0, 1.0),
    (6, 2, 0, 1.0),
    (7, 2, 0, 1.0),
    (16, 2, 0, 1.0),
    (16, 2, 1, 1.0),
    (64, 4, 0, 1.0),
    (64, 16, 0, 1.0),
    (64, 21, 0, 1.0),
    (64, 4, 3, 1.0),
    (65, 4, 3, 1.0),
    (256, 5, 2, 1.0),
    (64, 4, 0, 0.8),
)


def figures(case: tuple[int, int, int, float], runs: int) -> str:
    """Return a row of the table."""
    rng = random.Random(1)
    wrong = exact = ours_wrong = wrong_links = ours_exact = 0
    rounds: list[int] = []
    for _ in range(runs):
        fleet = draw_fleet(*case, rng)
        named = failed_twice(tested(fleet, two_rounds, 2, rng))
        wrong += bool(named - fleet.bad)
        exact += named == fleet.bad
        tests = tested(fleet, plan_next_round, 20, rng)
        check = evaluate_tests(fleet.nodes, tests)
        rounds.append(max(test.round for test in tests))
        ours_wrong += bool(check.works.bad - fleet.bad)
        wrong_links += bool(check.links - fleet.links)
        ours_exact += check.works.bad | check.works.unsteady == fleet.bad
    rounds.sort()
    shares = [
        f"{100 * n / runs:.0f} %" for n in (wrong, exact, ours_wrong, wrong_links, ours_exact)
    ]
    nodes, bad, links, shows = case
    spread = f"{rounds[len(rounds) // 2]}, {rounds[int(0.95 * (len(rounds) - 1))]}, {rounds[-1]}"
    return f"| {nodes} | {bad} | {links} | {shows:g} | {' | '.join(shares)} | {spread} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer fleets")
    runs = 50 if parser.parse_args().short else 1000
    print(
        "| nodes | bad | bad links | a fault shows | two rounds: wrong name | all named exactly "
        "| ours: wrong node | wrong link | all named exactly | rounds: median, p95, most |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        print(figures(case, max(1, runs * 64 // max(64, case[0]))), flush=True)


if __name__ == "__main__":
    main()
