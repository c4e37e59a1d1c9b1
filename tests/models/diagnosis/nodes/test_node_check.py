from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.diagnosis.nodes.node_truth import Truth, explanations, run_rounds

from forewarn.models.diagnosis.nodes.group_testing import (
    GroupTestConclusions,
    NodeGroup,
    draw_conclusions,
    links_within,
)
from forewarn.models.diagnosis.nodes.node_check import GroupTest, evaluate_tests
from forewarn.models.diagnosis.nodes.node_pairing import plan_next_round


def group(text: str) -> NodeGroup:
    return frozenset(text)


def summary(result: GroupTestConclusions) -> tuple[str, str, list[str]]:
    links = sorted("".join(sorted(link)) for link in result.links)
    return "".join(sorted(result.good)), "".join(sorted(result.bad)), links


# --- conclusions ----------------------------------------------------------------------------------


@st.composite
def seen_truths(draw: st.DrawFn) -> tuple[str, Truth, list[NodeGroup]]:
    """Draw a truth, and groups of two and at most two groups of three that were tested."""
    nodes = "abcdef"[: draw(st.integers(3, 6))]
    bad = draw(st.frozensets(st.sampled_from(nodes)))
    order = [node for node in draw(st.permutations(nodes)) if node not in bad]
    ends = order[: 2 * draw(st.integers(0, len(order) // 2))]
    links = frozenset(frozenset(ends[n : n + 2]) for n in range(0, len(ends), 2))
    of = st.sets(st.sampled_from(nodes), min_size=2, max_size=2)
    larger = st.sets(st.sampled_from(nodes), min_size=3, max_size=3)
    groups = draw(st.lists(of, max_size=9)) + draw(st.lists(larger, max_size=2))
    return nodes, Truth(bad, links), [frozenset(g) for g in groups]


@given(seen_truths())
def test_conclusions_equal_all_consistent_explanations(
    case: tuple[str, Truth, list[NodeGroup]],
) -> None:
    nodes, truth, groups = case
    seen = {g: truth.passes(g) for g in groups}
    fitting = [t for t in explanations(nodes) if all(t.passes(g) == p for g, p in seen.items())]
    assert truth in fitting
    result = draw_conclusions([g for g in groups if seen[g]], [g for g in groups if not seen[g]])
    assert result.bad == {n for n in nodes if all(n in t.bad for t in fitting)}
    assert result.good == {n for n in nodes if all(n not in t.bad for t in fitting)}
    assert result.links == frozenset.intersection(*(t.links for t in fitting))
    assert result.unsteady == frozenset()


def test_two_failures_with_good_nodes() -> None:
    assert summary(draw_conclusions([group("ab")], [group("ca")])) == ("ab", "", [])
    assert summary(draw_conclusions([group("ab")], [group("ca"), group("cb")])) == ("ab", "c", [])


def test_failure_between_good_nodes_is_link() -> None:
    result = draw_conclusions([group("ab"), group("cd")], [group("ac")])
    assert summary(result) == ("abcd", "", ["ac"])


def test_second_bad_link_of_node_is_bad_node() -> None:
    result = draw_conclusions([group("ab"), group("cd")], [group("ac"), group("ea")])
    assert summary(result) == ("abcd", "e", ["ac"])


def test_intermittent_node_is_neither_good_nor_bad() -> None:
    passed = [group("ab"), group("cd"), group("ef")]
    result = draw_conclusions(passed, [group("ac"), group("ad"), group("ae")])
    assert result.unsteady == {"a"}
    assert "a" not in result.good | result.bad


def test_passed_and_failed_pair_is_unsteady() -> None:
    result = draw_conclusions([group("ab"), group("cd")], [group("ab")])
    assert result.unsteady == {"a", "b"}


# --- the rounds -----------------------------------------------------------------------------------


def test_dlrover_example() -> None:
    """(1,2)(3,4)(5,6): the last fails; then (5,1)(6,3) separate 5 and 6, and 6 fails again."""
    nodes, truth = "123456", Truth(group("6"))
    tests = run_rounds(nodes, truth, plan_next_round)
    assert {test.nodes for test in tests if test.round == 1} == {*map(group, ("12", "34", "56"))}
    assert group("51") in {test.nodes for test in tests if test.round == 2}
    assert max(test.round for test in tests) == 2
    assert summary(evaluate_tests(nodes, tests).works) == ("12345", "6", [])


def test_bad_link_ends_help_as_last_resort() -> None:
    nodes = ["n0", "n1", "n2", "n3", "n4", "n5"]
    links = frozenset({frozenset({"n0", "n1"}), frozenset({"n2", "n3"})})
    truth = Truth(frozenset({"n4", "n5"}), links)
    works = evaluate_tests(nodes, run_rounds(nodes, truth, plan_next_round)).works
    assert (works.bad, works.links) == (truth.bad, links)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[str], Truth]:
    nodes = [f"n{number}" for number in range(draw(st.integers(4, 20)))]
    order = draw(st.permutations(nodes))
    faults = draw(st.integers(0, len(nodes) // 2))
    links = draw(st.integers(0, min(2, (len(nodes) - faults) // 2)))
    ends = order[faults : faults + 2 * links]
    pairs_of = frozenset(frozenset(ends[n : n + 2]) for n in range(0, len(ends), 2))
    return nodes, Truth(frozenset(order[:faults]), pairs_of)


@given(fleets())
def test_good_nodes_are_never_blamed(
    case: tuple[list[str], Truth],
) -> None:
    nodes, truth = case
    tests = run_rounds(nodes, truth, plan_next_round, most=40)
    result = evaluate_tests(nodes, tests).works
    assert result.bad <= truth.bad
    assert evaluate_tests(nodes, tests).links <= result.links <= truth.links
    if len(result.good) > 2:
        assert result.bad == truth.bad
        assert result.good == set(nodes) - truth.bad


@given(fleets(), st.data())
def test_no_group_is_tested_again(case: tuple[list[str], Truth], data: st.DataObject) -> None:
    """Each group of a later round has a pair that no test has decided, whatever was slow."""
    nodes, truth = case
    slow = data.draw(st.frozensets(st.sampled_from(nodes)))
    tests: list[GroupTest] = []
    for number in range(1, 6):
        groups = [frozenset(group) for group in plan_next_round(nodes, tests)]
        decided = {
            link for t in tests if t.outcome or len(t.nodes) == 2 for link in links_within(t.nodes)
        }
        assert all(not set(links_within(group)) <= decided for group in groups)
        for group in groups:
            seconds = 30.0 if group & slow else 10.0
            tests.append(GroupTest(number, group, truth.passes(group), seconds))


def test_slow_group_of_three_is_not_repeated() -> None:
    tests = [GroupTest(1, group("ab"), False), *timed(1, cd=10.0, efg=30.0)]
    groups = {frozenset(g) for g in plan_next_round("abcdefg", tests)}
    assert group("efg") not in groups
    assert group("cd") not in groups

    second = [GroupTest(2, g, True, 30.0 if "g" in g else 10.0) for g in groups]
    assert evaluate_tests("abcdefg", tests + second).speed.bad <= group("g")


@given(fleets())
def test_groups_are_disjoint_and_pairs_unique(
    case: tuple[list[str], Truth],
) -> None:
    nodes, truth = case
    tests = run_rounds(nodes, truth, plan_next_round, most=40)
    for number in {test.round for test in tests}:
        members = [node for test in tests if test.round == number for node in test.nodes]
        assert len(members) == len(set(members))
    later = [test.nodes for test in tests if test.round > 2]
    assert len(later) == len(set(later))


@pytest.mark.parametrize(("count", "sizes"), [(2, [2]), (5, [2, 3]), (6, [2, 2, 2]), (1, [])])
def test_round_one_pairs_neighbours(count: int, sizes: list[int]) -> None:
    nodes = [f"n{number}" for number in range(count)]
    groups = plan_next_round(nodes, [])
    assert [len(g) for g in groups] == sizes
    assert [node for g in groups for node in g] == (nodes if sizes else [])


@pytest.mark.parametrize("count", [2, 3])
def test_three_nodes_give_no_conclusion(count: int) -> None:
    nodes = "abc"[:count]
    tests = [GroupTest(n, group(nodes), False) for n in (1, 2)]
    tests += [GroupTest(3, group("".join(p)), False) for p in pairwise(nodes)]
    check = evaluate_tests(nodes, tests)
    assert not check.works.bad | check.works.links | check.speed.bad
    assert plan_next_round(nodes, tests) == ()


def test_link_requires_two_partners_per_end() -> None:
    tests = [GroupTest(1, group(g), True, 10.0) for g in ("ab", "cd", "ef", "gh")]
    tests.append(GroupTest(2, group("ac"), False))
    check = evaluate_tests("abcdefgh", tests)
    assert check.works.links == {group("ac")}
    assert check.links == frozenset()
    following = [frozenset(g) for g in plan_next_round("abcdefgh", tests)]
    assert {"a", "c"} <= frozenset().union(*following)
    passed = [GroupTest(3, g, True, 10.0) for g in following]
    assert evaluate_tests("abcdefgh", tests + passed).links == {group("ac")}
    failed = [GroupTest(3, g, "a" not in g) for g in following]
    check = evaluate_tests("abcdefgh", tests + failed)
    assert not check.links
    assert check.works.unsteady == {"a"}


# --- times ----------------------------------------------------------------------------------------


def timed(number: int, **seconds: Any) -> list[GroupTest]:
    return [GroupTest(number, group(g), True, s) for g, s in seconds.items()]


def test_straggler_is_slow_with_two_fast_nodes() -> None:
    tests = timed(1, ab=10.0, cd=11.0, ef=30.0) + timed(2, ea=10.0, fb=31.0, cd=10.0)
    check = evaluate_tests("abcdef", tests)
    assert check.speed.bad == {"f"}
    assert check.fastest["f"] == 30.0
    assert check.works.bad == frozenset()


def test_single_slow_test_is_no_straggler() -> None:
    first = timed(1, ab=10.0, cd=11.0, ef=30.0)
    assert evaluate_tests("abcdef", first).speed.bad == frozenset()
    check = evaluate_tests("abcdef", first + timed(2, ea=10.0, fb=12.0, cd=10.0))
    assert check.speed.bad == frozenset()
    assert check.speed.links == {group("ef")}


def test_missing_time_is_not_zero() -> None:
    """If missing times were 0, the only measured node would be far above the median."""
    tests = [GroupTest(1, group(g), True) for g in ("ab", "cd")] + timed(1, ef=10.0)
    tests += [GroupTest(2, group("ac"), True), *timed(2, eb=10.0)]
    check = evaluate_tests("abcdef", tests)
    assert check.speed.bad == frozenset()
    assert check.speed.links == frozenset()
    assert set(check.fastest) == set("bef")


def test_collective_over_180_seconds_fails() -> None:
    assert GroupTest(1, group("ab"), True, 180.0).outcome is True
    assert GroupTest(1, group("ab"), True, 180.1).outcome is False
    assert GroupTest(1, group("ab"), None, 12.0).outcome is True
    assert GroupTest(1, group("ab"), False, 12.0).outcome is False
    assert GroupTest(1, group("ab"), None).outcome is None


def test_test_without_outcome_is_repeated() -> None:
    tests = [GroupTest(1, group("ab"), True), GroupTest(1, group("cd"), None)]
    assert evaluate_tests("abcd", tests).works.good == group("ab")
    assert {frozenset(g) for g in plan_next_round("abcd", tests)} == {group("ca"), group("db")}


def test_stragglers_found_in_few_rounds() -> None:
    rng = random.Random(1)
    nodes = [f"n{number}" for number in range(32)]
    slow = set(rng.sample(nodes, 4))
    tests: list[GroupTest] = []
    for number in range(1, 9):
        groups = plan_next_round(nodes, tests)
        if not groups:
            break
        for members in map(frozenset, groups):
            seconds = 10.0 + rng.random() + (25.0 if members & slow else 0.0)
            tests.append(GroupTest(number, members, True, seconds))
    assert evaluate_tests(nodes, tests).speed.bad == slow
    assert max(test.round for test in tests) <= 4
