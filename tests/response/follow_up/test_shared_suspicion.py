"""Machines that jobs of different owners suspected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.follow_up.shared_suspicion import suspected_by_several
from forewarn.response.state.job_block import BlockState, JobBlock

NOW = Nanoseconds(100 * DAY)


def _block(job: str, machine: str, owner: str, days: float = 1) -> JobBlock:
    at = Nanoseconds(NOW - round(days * DAY))
    end = Nanoseconds(at + DAY)
    number = int(job)
    return JobBlock(
        number, job, machine, "hang", "forewarn", at, end, BlockState.ENDED, job_owner=owner
    )


TWO = [_block("1", "m1", "ann"), _block("2", "m1", "bob", 14 - 1e-6)]


@pytest.mark.parametrize(
    ("blocks", "machines"),
    [
        (TWO, ["m1"]),
        ([*TWO, _block("1", "m2", "ann"), _block("2", "m3", "bob")], ["m1"]),
        ([*TWO, _block("1", "m2", "ann"), _block("2", "m2", "bob")], []),  # not more often
        ([*TWO, _block("3", "m2", "ann"), _block("4", "m2", "ann")], []),
        ([_block("1", "m1", "ann"), _block("2", "m1", "bob", 14)], []),  # too long ago
        ([_block("1", "m1", "ann"), _block("2", "m1", "ann")], []),  # one owner
        ([TWO[0], replace(TWO[1], job_owner="")], []),
        ([TWO[0], replace(TWO[1], owner="carol")], []),  # a person has other reasons
        ([TWO[0], replace(TWO[1], state=BlockState.REFUSED)], []),
    ],
)
def test_two_owners_accuse_a_machine(blocks: list[JobBlock], machines: list[str]) -> None:
    assert [finding.machine for finding in suspected_by_several(blocks, now=NOW)] == machines


def test_finding_only_tells_a_person_and_repeats() -> None:
    (finding,) = suspected_by_several(TWO, now=NOW)
    assert (finding.cause, finding.evidence["at_most"]) == ("inspect", "tell")
    assert finding.evidence["owners"] == ["ann", "bob"]
    (later,) = suspected_by_several(TWO, now=Nanoseconds(NOW + 1))
    assert later == finding
