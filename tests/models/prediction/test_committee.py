from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.models.prediction.builtin_rules import BASE_LOG_ODDS
from forewarn.models.prediction.ensembles import CASCADE_FIRST, Committee
from forewarn.models.prediction.linear.log_odds import sigmoid

MEMBERS = ("a", "b", "c")
SHARES = st.sampled_from([0.02, 0.1, 0.25, 0.5, 1.0])
Case = tuple[Committee, dict[str, Float64Array], Int64Array]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a committee, scores with many ties, and an order of the instances."""
    n = draw(st.integers(0, 20))
    few = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    scores = {
        name: np.array(draw(st.lists(few, min_size=n, max_size=n)), dtype=np.float64)
        for name in MEMBERS
    }
    parallel = draw(st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=3, unique=True))
    stages = draw(st.lists(st.tuples(st.sampled_from(MEMBERS), SHARES), min_size=1, max_size=3))
    order = np.array(draw(st.permutations(range(n))), dtype=np.int64)
    return Committee(tuple(parallel), tuple(stages)), scores, order


def count(share: float, n: int) -> int:
    return max(1, round(share * n))


def top(scores: Float64Array, k: int, order: Int64Array, among: set[int]) -> set[int]:
    return set(sorted(among, key=lambda i: (-scores[i], order[i]))[:k])


def flagged(mask: BoolArray) -> set[int]:
    return set(np.flatnonzero(mask).tolist())


@settings(max_examples=50)
@given(cases(), SHARES)
def test_flags_match_brute_force(case: Case, k: float) -> None:
    committee, scores, order = case
    n = len(order)
    everything = set(range(n))
    for name in MEMBERS:
        expected = top(scores[name], count(k, n), order, everything)
        assert flagged(committee.flags(name, scores, k, order)) == expected
    members = [top(scores[name], count(k, n), order, everything) for name in committee.parallel]
    assert flagged(committee.flags("parallel", scores, k, order)) == set.intersection(*members)
    passed = everything
    for name, share in committee.cascade:
        passed = top(scores[name], count(share, n), order, passed)
    assert flagged(committee.flags("cascade", scores, k, order)) == passed


@settings(max_examples=50)
@given(cases(), SHARES)
def test_flagged_instances_rank_first(case: Case, k: float) -> None:
    committee, scores, order = case
    for method in ("parallel", "cascade", *MEMBERS):
        ranks = committee.ranks(method, scores, order)
        flags = committee.flags(method, scores, k, order)
        assert sorted(ranks.tolist()) == list(range(1, len(order) + 1))
        assert flagged(flags) == flagged(ranks <= flags.sum())


@settings(max_examples=40)
@given(cases())
def test_row_order_does_not_matter(case: Case) -> None:
    committee, scores, order = case
    rows = np.argsort(order)[::-1]
    turned = {name: values[rows] for name, values in scores.items()}
    for method in ("parallel", "cascade", "a"):
        here = committee.ranks(method, scores, order)[rows]
        assert np.array_equal(committee.ranks(method, turned, order[rows]), here)


def test_cascade_ranks_by_stages_then_score() -> None:
    scores = {
        "a": np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.1]),
        "b": np.array([0.1, 0.4, 0.2, 0.3, 0.9, 1.0]),
    }
    committee = Committee(("a",), (("a", 0.67), ("b", 0.33)))
    # a keeps 0 to 3 of six; of these, b keeps 1 and 3. Then by b 2 and 0, and by a 4 and 5.
    assert committee.ranks("cascade", scores, np.arange(6)).tolist() == [4, 1, 3, 2, 5, 6]
    assert flagged(committee.flags("cascade", scores, 0.02, np.arange(6))) == {1, 3}


def test_parallel_ranks_by_worst_member() -> None:
    scores = {"a": np.array([0.9, 0.8, 0.1]), "b": np.array([0.1, 0.8, 0.9])}
    committee = Committee(("a", "b"), (("a", 1.0),))
    assert committee.ranks("parallel", scores, np.arange(3)).tolist() == [2, 1, 3]


def test_no_instances() -> None:
    scores = {name: np.zeros(0) for name in MEMBERS}
    committee = Committee(MEMBERS, (("a", 0.5), ("b", 0.1)))
    none = np.zeros(0, dtype=np.int64)
    for method in ("parallel", "cascade", "a"):
        assert committee.flags(method, scores, 0.02, none).shape == (0,)
        assert committee.ranks(method, scores, none).shape == (0,)


PARALLEL, CASCADE = ("cnn", "mlp", "gbdt"), (("cnn", 0.05), ("mlp", 0.02))


@pytest.mark.parametrize(
    ("models", "parallel", "cascade"),
    [
        (("cnn", "mlp", "gbdt"), PARALLEL, ((CASCADE_FIRST, 0.05), ("mlp", 0.02))),
        (("gbdt", "cnn"), ("cnn", "gbdt"), ((CASCADE_FIRST, 0.05),)),
        (("mlp",), ("mlp",), ((CASCADE_FIRST, 0.02),)),
        (("gbdt",), ("gbdt",), ((CASCADE_FIRST, 0.02),)),
        (("lstm",), ("lstm",), ((CASCADE_FIRST, 0.02),)),
    ],
)
def test_ensembles_contain_run_models_only(
    models: tuple[str, ...],
    parallel: tuple[str, ...],
    cascade: tuple[tuple[str, float], ...],
) -> None:
    assert Committee.from_models(models, PARALLEL, CASCADE) == Committee(parallel, cascade)


def test_cascade_may_repeat_model() -> None:
    committee = Committee.from_models(("cnn",), ("cnn",), (("cnn", 0.5), ("cnn", 0.1)))
    assert committee.cascade == ((CASCADE_FIRST, 0.5), ("cnn", 0.1))


def test_blend_is_mean_log_odds() -> None:
    # Odds of 4 and 1 have a geometric mean of 2.
    scores = {"a": np.array([0.8, 0.5]), "b": np.array([0.5, 0.5])}
    assert np.allclose(Committee(("a", "b"), ()).blend(scores), [2 / 3, 1 / 2])


def test_blend_of_extreme_scores_is_finite() -> None:
    scores = {"a": np.array([1.0, 0.0]), "b": np.array([1.0, 1.0])}
    assert np.allclose(Committee(("a", "b"), ()).blend(scores), [1 - 1e-6, 0.5])


def test_vote_of_omitted_model_goes_to_others() -> None:
    odds = {"a": 16.0, "b": 1.0, "linear": 2.0}
    scores = {name: np.array([value / (1 + value)]) for name, value in odds.items()}
    committee = Committee(("a", "b"), (), linear=0.5)
    assert committee.votes == {"a": 0.25, "b": 0.25, "linear": 0.5}
    expected = {"a": 2.0 ** (2 / 3), "b": 16 ** (1 / 3) * 2 ** (2 / 3), "linear": 4.0}
    for name, value in expected.items():
        assert np.allclose(committee.blend(scores, without=name), value / (1 + value))


def test_only_model_with_vote_cannot_be_omitted() -> None:
    committee = Committee(("a", "b"), (), linear=1.0)
    assert committee.votes == {"linear": 1.0}
    with pytest.raises(ValueError, match="must leave a model with a vote, got 'linear'"):
        committee.blend({"linear": np.array([0.5])}, without="linear")


def test_models_of_another_site_have_half_of_vote() -> None:
    committee = Committee(("a", "b"), (), start=("start_a",))
    assert committee.votes == {"a": 0.25, "b": 0.25, "start_a": 0.5}


def test_rule_points_are_added_to_blend() -> None:
    # Odds of 4 and 1 with a geometric mean of 2; the rules give no point, and two.
    scores = {
        "a": np.array([0.8, 0.8]),
        "b": np.array([0.5, 0.5]),
        "rules": sigmoid([BASE_LOG_ODDS, BASE_LOG_ODDS + 2.0]),
    }
    alone, whole, half = (Committee(("a", "b"), (), rules) for rules in (0.0, 1.0, 0.5))
    assert np.allclose(alone.blend(scores), 2 / 3)
    assert np.allclose(whole.blend(scores), [2 / 3, 2 * np.exp(2.0) / (1 + 2 * np.exp(2.0))])
    assert np.allclose(half.blend(scores), [2 / 3, 2 * np.exp(1.0) / (1 + 2 * np.exp(1.0))])


def test_linear_model_votes_in_blend_only() -> None:
    # Log odds of log(16) and 0 have a mean of log(4); a quarter of the vote has log odds of 0.
    scores = {name: np.array([odds / (1 + odds)]) for name, odds in {"a": 16.0, "b": 1.0}.items()}
    scores |= {"linear": np.array([0.5]), "rules": sigmoid([BASE_LOG_ODDS])}
    shares = {0.0: 4.0, 0.25: 4.0**0.75, 0.5: 2.0, 1.0: 1.0}
    for share, odds in shares.items():
        committee = Committee(("a", "b"), (("a", 0.5),), linear=share)
        assert np.allclose(committee.blend(scores), odds / (1 + odds))
        assert committee.flags("parallel", scores, 1.0, np.arange(1)).tolist() == [True]
    without = {name: values for name, values in scores.items() if name != "linear"}
    assert np.allclose(Committee(("a", "b"), ()).blend(without), 0.8)


def test_rules_break_ties_of_models() -> None:
    n = 50
    rng = np.random.default_rng(0)
    scores = {"a": rng.random(n), "rules": sigmoid(np.full(n, BASE_LOG_ODDS))}
    committee = Committee(("a",), (), 1.0)
    assert np.allclose(committee.blend(scores), scores["a"])
    level = {"a": np.full(n, 0.3), "rules": sigmoid(BASE_LOG_ODDS + np.arange(n) / 10)}
    assert (np.diff(committee.blend(level)) > 0).all()
