"""Outlier stacks in jobs where all ranks wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.diagnosis.stack_sample import Frame, Stack
from forewarn.models.diagnosis.hang.outlier_stacks import find_outlier_stacks

LIBRARY = "torch/distributed/distributed_c10d.py"
TRAIN = Frame("train", "train.py", 10)
DEVICE: Stack = (Frame("synchronize", "torch/cuda/__init__.py", 985), TRAIN)
# tp 2, dp 4: the peers of a rank are the three others with its parity.
RANKS = Ranks({n: Rank(n, f"m{n // 2}", tp=n % 2, pp=0, dp=n // 2) for n in range(8)})


def call(name: str) -> Stack:
    return Frame(name, LIBRARY, 1), TRAIN


def stacks(**others: Stack) -> dict[int, Stack]:
    return dict.fromkeys(range(8), call("all_reduce")) | {int(k[1:]): v for k, v in others.items()}


def weights(shown: dict[int, Stack], ranks: Ranks = RANKS) -> dict[int | None, float]:
    finding = find_outlier_stacks(shown, ranks, 5)
    return {} if finding is None else {c.rank: c.weight for c in finding.candidates}


@pytest.mark.parametrize("name", ["broadcast", "barrier"])
def test_single_rank_in_other_collective_is_outlier(name: str) -> None:
    finding = find_outlier_stacks(stacks(r5=call(name)), RANKS, 5)
    assert finding is not None
    assert [(c.rank, c.weight, c.since) for c in finding.candidates] == [(5, 1.0, 5)]
    assert finding.waiting == {0, 1, 2, 3, 4, 6, 7}
    assert finding.cause == f"rank 5 is the only rank in {name}; all 7 others are in all_reduce"


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(stacks(r0=call("broadcast")), id="rank 0"),
        pytest.param(stacks(r5=call("broadcast"), r6=call("broadcast")), id="two outliers"),
        pytest.param(stacks(r5=call("broadcast"), r6=call("barrier")), id="three calls"),
        pytest.param(stacks(r5=call("broadcast"), r6=(TRAIN,)), id="a rank does not wait"),
        pytest.param(stacks(r5=call("broadcast"), r6=call("recv")), id="recv"),
        pytest.param(
            {n: s for n, s in stacks(r5=call("broadcast")).items() if n != 6}, id="missing stack"
        ),
    ],
)
def test_no_outlier(shown: dict[int, Stack]) -> None:
    assert weights(shown) == {}


def test_machine_waiting_for_own_devices() -> None:
    shown = stacks(r2=DEVICE, r3=DEVICE, r6=call("barrier"))
    finding = find_outlier_stacks(shown, RANKS, None)
    assert finding is not None
    assert [(c.rank, c.weight) for c in finding.candidates] == [(2, 0.5), (3, 0.5)]
    assert weights(stacks(r3=DEVICE)) == {3: 1.0}


def test_peers_of_all_machine_ranks_count() -> None:
    """Each rank has two peers elsewhere, with the same parity; both pairs together have four."""
    pairs = Ranks({n: Rank(n, f"m{n // 4}", tp=n % 2, pp=0, dp=n // 2) for n in range(8)})
    four = {"r4": DEVICE, "r5": DEVICE, "r6": DEVICE, "r7": DEVICE}
    assert weights(stacks(**four), pairs) == dict.fromkeys(range(4, 8), 0.25)
    assert weights(stacks(r4=DEVICE, r6=DEVICE), pairs) == {}


def test_device_waits_without_outlier() -> None:
    assert weights(stacks(r1=DEVICE, r3=DEVICE)) == {}  # two machines
    assert weights(stacks(r0=DEVICE)) == {}  # rank 0 measures for all
    assert weights(dict.fromkeys(range(8), DEVICE)) == {}
    staged = Ranks({n: Rank(n, f"m{n // 4}", tp=n % 2, pp=n // 4, dp=n % 4 // 2) for n in range(8)})
    last_stage = stacks(r4=DEVICE, r5=DEVICE, r6=DEVICE, r7=DEVICE)
    assert weights(last_stage, staged) == {}  # all of their peers run on the same machine


@given(st.lists(st.sampled_from(["all_reduce", "broadcast", "barrier"]), min_size=8, max_size=8))
def test_at_most_one_outlier_collective(names: list[str]) -> None:
    named = weights({rank: call(name) for rank, name in enumerate(names)})
    assert len(named) <= 1
    for rank in named:
        assert rank is not None
        assert names.count(names[rank]) == 1
        assert len(set(names)) == 2
