"""Folded stacks of slow and normal spans."""

from __future__ import annotations

from typing import Literal

import pytest

from forewarn.features.diagnosis.folded_stacks import BrokenProfileError, parse_folded
from forewarn.models.diagnosis.slow.jitter import Profile, jitter_finding

NORMAL = parse_folded("train;step 90\ntrain;load 10\n")


def profiles(
    slow: str, ranks: tuple[int, ...] = (2,), clock: Literal["on", "off"] = "off"
) -> list[Profile]:
    """Return 4 ranks whose slow span equals the normal one, except for some."""
    return [
        Profile(rank, clock, NORMAL, parse_folded(slow) if rank in ranks else NORMAL)
        for rank in range(4)
    ]


@pytest.mark.parametrize(
    ("stack", "cause"),
    [
        ("train;queue_get;futex_wait", "lock waits"),
        ("train;memcpy;asm_exc_page_fault;do_numa_page", "page faults and remote memory"),
        ("train;gc_collect_main", "garbage collection"),
        ("train;__next__ (dataloader.py:701);poll", "data loader"),
        ("train;save_checkpoint;write", "checkpoint writer"),
        ("train;step;preempt_schedule_irq", "neighbours on the CPU"),
    ],
)
def test_growth_is_reported_with_shares(stack: str, cause: str) -> None:
    finding = jitter_finding(profiles(f"train;step 60\n{stack} 40\n"))
    assert finding is not None
    assert finding.kind == "jitter"
    assert finding.cause == f"{cause} off CPU: 40% instead of 0%"
    assert [(c.rank, c.weight) for c in finding.candidates] == [(2, 1.0)]


def test_longer_waits_for_others_do_not_count() -> None:
    assert jitter_finding(profiles("train;all_reduce;futex_wait 60\ntrain;step 40\n")) is None


def test_growth_on_all_ranks_identifies_no_culprit() -> None:
    slow = "train;step 60\ntrain;gc_collect_main 40\n"
    finding = jitter_finding(profiles(slow, ranks=(0, 1, 2, 3), clock="on"))
    assert finding is not None
    assert finding.candidates == ()
    assert finding.cause.startswith("garbage collection on ranks 0, 1, 2, 3")


def test_small_growth_or_few_samples_are_ignored() -> None:
    assert jitter_finding(profiles("train;step 87\ntrain;load 13\n")) is None
    assert jitter_finding(profiles("train;step 5\ntrain;gc_collect 5\n")) is None


def test_line_without_count_is_rejected() -> None:
    with pytest.raises(BrokenProfileError, match="line 2 ends in 'x', expected a count"):
        parse_folded("a;b 1\na;b x\n")
