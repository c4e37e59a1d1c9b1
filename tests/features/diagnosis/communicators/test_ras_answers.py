"""Answers of NCCL RAS: text and JSON tell the same, and broken ones are refused."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipelines.diagnosis.monitors.ras_answers import HASH, Answer

from forewarn.features.diagnosis.communicators.communicator_state import (
    BrokenStatusError,
    GpuProcess,
)
from forewarn.features.diagnosis.communicators.ras_json import parse_ras_json
from forewarn.features.diagnosis.communicators.ras_text import parse_ras_text
from forewarn.features.diagnosis.file_content import HEAD_BYTES, file_content

SIZE = 16


@given(
    base=st.integers(1, 10**6),
    behind=st.dictionaries(st.integers(0, SIZE - 1), st.integers(1, 3), max_size=3),
    lost=st.sets(st.integers(0, SIZE - 1), max_size=3),
    n_dead=st.integers(0, 3),
)
def test_both_forms_tell_the_same(
    base: int, behind: dict[int, int], lost: set[int], n_dead: int
) -> None:
    counts = [base + 3 - behind.get(rank, 0) for rank in range(SIZE)]
    dead = sorted(lost)[:n_dead]
    answer = Answer(counts, dead, sorted(lost.difference(dead)))
    (text,), (whole,) = parse_ras_text(answer.text()), parse_ras_json(answer.json())
    assert (text.n_ranks, whole.n_ranks) == (SIZE, SIZE)
    known = {rank: count for rank, count in enumerate(counts) if rank not in lost}
    differs = len(set(known.values())) > 1
    if not (differs or lost):
        assert text.communicators == ()
        return
    (listed,), (state,) = text.communicators, whole.communicators
    assert state.counts["AllReduce"] == known
    assert listed.counts.get("AllReduce", {}) == (known if differs else {})
    for either in (listed, state):
        assert (either.size, either.is_running) == (SIZE, True)
        assert either.dead == {*dead}
        assert either.unresponsive == lost.difference(dead)
    assert listed.processes.items() <= state.processes.items()


@given(st.data())
def test_cut_answers_never_crash(data: st.DataObject) -> None:
    answer = Answer([7] * 12 + [6] + [7] * 3, dead=[3])
    text, parse = data.draw(
        st.sampled_from([(answer.text(), parse_ras_text), (answer.json(), parse_ras_json)])
    )
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        snapshots = parse(cut)
    except BrokenStatusError:
        return
    for state in (state for snapshot in snapshots for state in snapshot.communicators):
        assert state.dead <= {3}


def test_first_release_names_no_collective() -> None:
    text = Answer([9] * 8 + [8] * 2 + [9] * 6).text("collective ")
    (state,) = parse_ras_text(text)[0].communicators
    assert state.counts["collective"][8] == 8
    assert state.processes[8] == GpuProcess("10.1.0.3", 5008, 0)


def test_answers_of_one_file_stay_apart() -> None:
    texts = [Answer([n] * 15 + [n - 1]).text() for n in (5, 8)]
    states = [snapshot.communicators[0] for snapshot in parse_ras_text("".join(texts))]
    assert [state.counts["AllReduce"][0] for state in states] == [5, 8]
    answers = "OK\n" + Answer([1, 1]).json() + Answer([2, 2], time="").json()
    assert [s.time for s in parse_ras_json(answers)] == [dt.datetime(2026, 5, 2, 9, 30), None]


def test_dates_of_a_loop_are_times() -> None:
    dates = ["Sat May  2 09:30:00 UTC 2026", "2026-05-02T09:36:10+02:00", ""]
    texts = [f"{date}\n{Answer([7] * 15 + [6]).text()}" for date in dates]
    times = [dt.datetime(2026, 5, 2, 9, 30), dt.datetime(2026, 5, 2, 9, 36, 10), None]
    assert [snapshot.time for snapshot in parse_ras_text("".join(texts))] == times
    assert file_content("".join(texts).encode()) == "NCCL RAS"


def test_huge_numbers_are_no_rank() -> None:
    text = Answer([9] * 15 + [8]).text().replace("Rank 15", f"Rank {'9' * 5000}")
    (snapshot,) = parse_ras_text(text)
    assert snapshot.communicators[0].counts["AllReduce"] == {}
    with pytest.raises(BrokenStatusError):
        parse_ras_json(Answer([9] * 4).json().replace('"size": 4', '"size": 99999999'))


@pytest.mark.parametrize("text", ["{", "none", '{"communicators": [{"ranks": 3}]}', '{"a": 1'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(BrokenStatusError):
        parse_ras_json(text)


def test_part_of_an_answer_is_read() -> None:
    whole = Answer([9] * 14 + [8] + [9], dead=[15]).text()
    (snapshot,) = parse_ras_text(whole[whole.index("Warnings") :])
    assert snapshot.communicators[0].counts["AllReduce"][14] == 8
    (snapshot,) = parse_ras_text(whole[whole.index("Communicators") : whole.index("Warnings")])
    assert snapshot.n_ranks == 16
    assert snapshot.communicators[0].dead == {15}


def test_list_that_is_cut_off_tells_no_rank() -> None:
    text = Answer([9] * 16, unresponsive=[3, 11]).text()
    cut = text[: text.index("  Rank 11 --")]
    with pytest.raises(BrokenStatusError):
        parse_ras_text(cut)


def test_communicator_that_ends_is_not_running() -> None:
    (snapshot,) = parse_ras_json(Answer([4] * 8, finalizing=[2]).json())
    assert not snapshot.communicators[0].is_running
    (snapshot,) = parse_ras_text(Answer([4] * 7 + [3], status="FINALIZE").text())
    assert not snapshot.communicators[0].is_running


def test_content_tells_answers_from_logs() -> None:
    answer = Answer([5] * 8 + [4])
    for text in (answer.text(), answer.json(), f"OK\n{answer.json()}"):
        assert file_content(text.encode()) == "NCCL RAS"
    log = f"{answer.text()}[rank3]: Watchdog caught collective operation timeout\n"
    assert file_content(log.encode()) is None
    assert file_content(f"NCCL version 2.26.5+cuda12.8\nstep 1 #0-0 ({HASH})\n".encode()) is None


@pytest.mark.parametrize("filling", [b"\n", b" \n", b"a{}", b"#\n", b"1:", b"Errors\n===\n"])
def test_content_of_odd_heads_is_unknown(filling: bytes) -> None:
    """Expressions that try the same bytes again and again would not end here."""
    assert file_content(filling * (HEAD_BYTES // len(filling))) is None
