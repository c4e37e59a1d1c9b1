"""Handwritten stacks of 4 ranks."""

from __future__ import annotations

import pytest

from forewarn.features.diagnosis.stack_sample import (
    BrokenStackError,
    Frame,
    Stack,
    classify_wait,
    main_process,
)
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.probes.stack_probe import (
    StackSample,
    find_divergent_stacks,
    latest_divergent_stacks,
    stack_probe,
)
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding

LIBRARY = "torch/distributed/distributed_c10d.py"
TRAIN = Frame("train", "train.py", 10)
REDUCE: Stack = (Frame("all_reduce", LIBRARY, 2810), TRAIN)
RECEIVE: Stack = (Frame("recv", LIBRARY, 2430), TRAIN)
BARRIER: Stack = (Frame("barrier", LIBRARY, 4551), TRAIN)
LOADER: Stack = (Frame("get", "queue.py", 171), Frame("next", "dataloader.py", 7), TRAIN)


def samples(*stacks: Stack, apart: int = 30) -> list[StackSample]:
    """Return samples in which rank 0 has these stacks in turn and ranks 1 to 3 a constant one."""
    others = dict.fromkeys((1, 2, 3), REDUCE)
    return [StackSample(n * apart * SECOND, {0: s, **others}) for n, s in enumerate(stacks)]


def test_five_equal_samples_are_idle() -> None:
    probe = stack_probe(samples(*[REDUCE] * 5), 4, 120 * SECOND)
    assert (probe.state, probe.since, probe.confirmed_at) == ("idle", 0, 120 * SECOND)


def test_changed_stack_is_active() -> None:
    probe = stack_probe(samples(LOADER, *[REDUCE] * 4), 4, 120 * SECOND)
    assert probe.state == "active"
    assert "rank 0" in probe.why


def test_changed_line_is_activity() -> None:
    moved = (Frame("all_reduce", LIBRARY, 2811), TRAIN)
    assert stack_probe(samples(*[REDUCE] * 4, moved), 4, 120 * SECOND).state == "active"


def test_stall_starts_at_first_equal_sample() -> None:
    probe = stack_probe(samples(LOADER, *[REDUCE] * 6), 4, 180 * SECOND)
    assert (probe.state, probe.since, probe.confirmed_at) == ("idle", 30 * SECOND, 150 * SECOND)


def test_three_equal_samples_by_hand_are_idle() -> None:
    """People who run py-spy by hand take few samples, minutes apart."""
    probe = stack_probe(samples(*[REDUCE] * 3, apart=150), 4, 300 * SECOND)
    assert (probe.state, probe.confirmed_at) == ("idle", 300 * SECOND)
    assert stack_probe(samples(*[REDUCE] * 3, apart=140), 4, 300 * SECOND).state == "blind"


def test_probe_without_change_is_late() -> None:
    assert stack_probe(samples(*[REDUCE] * 5), 4, 120 * SECOND).is_late
    assert not stack_probe(samples(LOADER, *[REDUCE] * 5), 4, 150 * SECOND).is_late


def test_only_outsider_needs_all_ranks() -> None:
    def finding(zero: Stack, one: Stack = REDUCE, n_ranks: int = 4) -> JobFinding:
        stacks = {0: zero, 1: one, 2: REDUCE, 3: REDUCE}
        result = latest_divergent_stacks([StackSample(0, stacks)], n_ranks, 0, None)
        assert result is not None
        return result

    assert finding(LOADER).is_only_outsider
    assert not finding(LOADER, n_ranks=5).is_only_outsider
    assert not finding(LOADER, (TRAIN,)).is_only_outsider
    assert not finding((TRAIN,)).is_only_outsider  # its device may block it


def test_data_request_is_cause() -> None:
    waiting = (Frame("get", "queue.py", 171), Frame("__next__", "dataloader.py", 7), TRAIN)
    finding = find_divergent_stacks({0: waiting, 1: REDUCE, 2: REDUCE, 3: REDUCE}, None)
    assert finding is not None
    assert finding.cause == "rank 0 waits for data in __next__ (dataloader.py:7)"


def test_five_samples_within_second_are_blind() -> None:
    assert stack_probe(samples(*[REDUCE] * 5, apart=0), 4, 120 * SECOND).state == "blind"


@pytest.mark.parametrize(("n_ranks", "at"), [(9, 120), (4, 1000)])
def test_few_ranks_or_old_samples_are_blind(n_ranks: int, at: int) -> None:
    assert stack_probe(samples(*[REDUCE] * 5), n_ranks, at * SECOND).state == "blind"


def test_stack_outside_waits_is_moderate_evidence() -> None:
    finding = find_divergent_stacks({0: REDUCE, 1: LOADER, 2: BARRIER, 3: REDUCE}, 5)
    assert finding is not None
    assert [(c.rank, c.weight, c.since) for c in finding.candidates] == [(1, 0.5, 5)]


def test_single_sample_counts_for_half_an_hour() -> None:
    sample = samples(LOADER)
    finding = latest_divergent_stacks(sample, 4, 1800 * SECOND, None)
    assert finding is not None
    assert ([c.rank for c in finding.candidates], finding.observed_at) == ([0], 0)
    assert latest_divergent_stacks(sample, 4, 1801 * SECOND, None) is None
    assert latest_divergent_stacks(sample, 9, SECOND, None) is None
    assert latest_divergent_stacks([], 4, SECOND, None) is None


def test_recv_or_shared_barrier_is_not_origin() -> None:
    finding = find_divergent_stacks({0: REDUCE, 1: RECEIVE, 2: BARRIER, 3: BARRIER}, None)
    assert finding is not None
    assert finding.candidates == ()
    assert finding.waiting == {1, 2, 3}


def test_lone_barrier_may_be_mistake() -> None:
    finding = find_divergent_stacks({0: REDUCE, 1: REDUCE, 2: REDUCE, 3: BARRIER}, None)
    assert finding is not None
    assert finding.waiting == frozenset()


def test_lone_other_collective_is_candidate() -> None:
    broadcast = (Frame("broadcast", LIBRARY, 2714), TRAIN)
    finding = find_divergent_stacks({0: REDUCE, 1: broadcast, 2: REDUCE, 3: REDUCE}, 5)
    assert finding is not None
    assert [(c.rank, c.weight) for c in finding.candidates] == [(1, 0.5)]
    halves = find_divergent_stacks({0: REDUCE, 1: broadcast, 2: REDUCE, 3: broadcast}, 5)
    assert halves is not None
    assert halves.candidates == ()


def test_all_different_stacks_are_no_finding() -> None:
    stacks = {n: (Frame(f"f{n}", "train.py", n),) for n in range(4)}
    finding = find_divergent_stacks(stacks, None)
    assert finding is None or finding.candidates == ()


def test_queue_and_lock_waits_are_not_rank_waits() -> None:
    assert classify_wait((Frame("wait", "threading.py", 320),)) is None
    assert classify_wait(LOADER) is None
    assert classify_wait((Frame("synchronize", "torch/cuda/__init__.py", 9), TRAIN)) == "device"


def test_main_thread_is_used_and_broken_stacks_rejected() -> None:
    threads = (
        b'[{"thread_name":"T-1","os_thread_id":2,"pid":1,"frames":[{"name":"a"}]},'
        b'{"thread_name":"MainThread","os_thread_id":1,"pid":1,"frames":[{"name":"b","line":null}]}]'
    )
    with pytest.raises(BrokenStackError, match="is truncated or not a stack"):
        main_process(threads)
    assert main_process(threads.replace(b"null", b"3"))[1][0].name == "b"
    for data in (b"", b"[]", b"{}", b"[" * 100_000):
        with pytest.raises(BrokenStackError):
            main_process(data)
