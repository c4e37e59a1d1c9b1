"""Peers that lines accuse, on consoles of several machines whose ranks are unknown."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.diagnosis.crash.accused_peers import accused_peers, stated_accusations
from forewarn.models.diagnosis.crash.rank_exit import NamedPeer, Symptom
from forewarn.models.diagnosis.verdict.job_verdict import STRONG


def says(writer: str | None, *peers: str, time: int | None = None, **values: Any) -> Symptom:
    named = tuple(NamedPeer(None, peer) for peer in peers)
    values = {"role": "cascade", "scope": "fabric", "says": "lost a peer", "line": "lost"} | values
    return Symptom("logs", next="look", time=time, peers=named, writer=writer, **values)


def ended(writer: str, time: int | None = None) -> Symptom:
    return says(writer, time=time, scope="platform", says="was ended")


def named(*symptoms: Symptom) -> list[str | None]:
    candidates = accused_peers(stated_accusations([], symptoms), symptoms)
    return [each.machine for each in candidates if each.weight >= STRONG]


def test_two_machines_identify_a_peer() -> None:
    assert named(says("a", "c"), says("b", "c")) == ["c"]


def test_lines_of_one_machine_are_one_witness() -> None:
    assert named(says("a", "c"), says("a", "c")) == []
    assert named(says("a", "c"), says("c", "c")) == []


@given(
    st.permutations([f"n{number}" for number in range(6)]),
    st.integers(2, 5),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_witnesses_outweigh_what_the_accused_says(
    hosts: list[str], n_witnesses: int, n_complaints: int, random: Any
) -> None:
    accused, *others = hosts
    witnesses = others[:n_witnesses]
    lines = [says(witness, accused) for witness in witnesses]
    lines += [says(accused, random.choice(witnesses)) for _ in range(n_complaints)]
    random.shuffle(lines)
    assert named(*lines) == [accused]


def test_mutual_complaints_of_two_name_none() -> None:
    assert named(says("a", "b"), says("b", "a")) == []


@given(st.integers(2, 8))
def test_ring_of_complaints_names_none(size: int) -> None:
    ring = [says(f"n{number}", f"n{(number + 1) % size}") for number in range(size)]
    assert named(*ring) == []


def test_silent_peer_outweighs_one_that_lost_it() -> None:
    """The first that lost the silent one then ends, and others lose it in turn."""
    assert "b" not in named(says("b", "a"), says("c", "b"), says("d", "b"))


def test_ended_peer_needs_one_witness() -> None:
    assert named(says("a", "b", time=10**10), ended("b", time=9 * 10**9)) == ["b"]
    assert named(says(None, "b"), ended("b")) == ["b"]
    assert named(says("a", "b")) == []


def test_peer_ended_later_is_no_cause() -> None:
    assert named(says("a", "b", time=10**10), ended("b", time=20 * 10**9)) == []


def test_end_of_several_machines_names_none() -> None:
    assert named(says("a", "b"), ended("b"), ended("c")) == []
    assert named(says("a", "b"), says("a", "c"), ended("b")) == []
