"""Absent ranks: sent elsewhere by the program, or stuck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.diagnosis.stack_sample import Frame, Stack
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.hang.expected_absence import expected_absence_phases
from forewarn.models.diagnosis.probes.log_phases import find_log_pauses
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.probes.stack_probe import StackSample
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.models.diagnosis.verdict.rank_absence import RankAbsence
from forewarn.models.diagnosis.verdict_fusion import fuse_findings

RANKS = Ranks({n: Rank(n, f"m{n // 2}") for n in range(6)})
WAITS = (Frame("barrier", "torch/distributed/distributed_c10d.py", 4),)
WRITES = (Frame("zqk", "zqk.py", 4), Frame("train", "train.py", 2))
READS = (Frame("read", "dataset.py", 4), Frame("__getitem__", "dataset.py", 2))


def samples(*absent: Mapping[int, Stack]) -> list[StackSample]:
    """Return a sample every half minute in which all other ranks wait."""
    return [
        StackSample(number * 30 * SECOND, {**dict.fromkeys(range(6), WAITS), **who})
        for number, who in enumerate(absent, start=1)
    ]


def lasts_since(*absent: Mapping[int, Stack]) -> float | None:
    phases = expected_absence_phases(samples(*absent), RANKS)
    assert all((phase.kind, phase.end) == ("absence", None) for phase in phases)
    return phases[0].begin / SECOND if phases else None


def test_rank_0_or_several_machines_are_expected() -> None:
    assert lasts_since({}, {0: WRITES}, {0: WRITES}) == 0
    assert lasts_since({1: WRITES, 4: WRITES}) == -30
    assert lasts_since({3: WRITES}, {3: WRITES}) is None
    assert lasts_since({2: WRITES, 3: WRITES}) is None
    assert lasts_since({0: WRITES}, {}) is None
    assert expected_absence_phases([], RANKS) == []


def test_data_wait_is_no_expected_absence() -> None:
    assert lasts_since({0: READS}) is None
    assert lasts_since({1: READS, 4: READS}) is None


def test_moving_or_abandoned_ranks_are_expected() -> None:
    elsewhere: Stack = (Frame("kqz", "zqk.py", 9), *WRITES)
    assert lasts_since({3: WRITES}, {3: elsewhere}) == -30
    assert lasts_since({3: WRITES}, *[{3: elsewhere}] * 4) is None  # no longer moving
    assert lasts_since({3: WRITES, 5: WRITES}, {3: WRITES}) == -30
    assert lasts_since({3: elsewhere, 5: WRITES}, {3: elsewhere}) is None


def kind(minutes: float, *, watched: bool = True, finding: JobFinding | None = None) -> str:
    """Return the verdict kind some minutes after a stall began at 0, with rank 0 absent."""
    names = ("stack", "collective", "metrics") if watched else ("stack", "collective")
    probes = [Probe(name, "idle", 0, "", 60) for name in names]  # type: ignore[arg-type]
    phases = [Phase("absence", 0, None, last_seen=MINUTE)]
    findings = [] if finding is None else [finding]
    return fuse_findings(findings, probes, phases, ranks=RANKS, at=round(minutes * MINUTE)).kind


def test_expected_absence_lasts_half_an_hour() -> None:
    assert kind(29.9) == "none"
    assert kind(30.1) == "hang"
    assert kind(5, watched=False) == "hang"  # a folder that contains only dumps and stacks
    stopped = JobFinding("none", "", is_permanent=True)
    assert kind(5, finding=stopped) == "hang"


ALONE = RankAbsence(frozenset({3}), 0, SECOND)


@pytest.mark.parametrize(
    ("absence", "minutes", "expected"),
    [
        (ALONE, 5.1, "hang"),
        (ALONE, 4.9, "none"),
        (None, 5.1, "none"),
        (replace(ALONE, ranks=frozenset({2, 3})), 5.1, "hang"),  # one machine
        (replace(ALONE, ranks=frozenset({2, 4})), 5.1, "none"),
        (replace(ALONE, ranks=frozenset({0})), 5.1, "none"),
        (replace(ALONE, last=3 * MINUTE), 11.9, "none"),  # the others entered one after another
        (replace(ALONE, last=3 * MINUTE), 12.1, "hang"),
    ],
)
def test_lone_absence_without_stacks_is_hang(
    absence: RankAbsence | None, minutes: float, expected: str
) -> None:
    probes = [Probe(name, "idle", 0, "", 60) for name in ("metrics", "collective")]
    waits = JobFinding("hang", "", absence=absence)
    at = round(minutes * MINUTE)
    silent = find_log_pauses([n * 10 * SECOND for n in (-60, -55, -50, -45, 0)], at)
    assert fuse_findings([waits], probes, silent, ranks=RANKS, at=at).kind == expected
