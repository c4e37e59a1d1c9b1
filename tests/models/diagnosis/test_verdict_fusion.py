"""Verdict fusion: agreeing findings identify a culprit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.models.diagnosis.hang.hang_detection import detect_hang, quiet_phase
from forewarn.models.diagnosis.probes.log_probe import log_probe
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.hardware_evidence import (
    HostEvent,
    at_risk_finding,
    hardware_finding,
)
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    WEAK,
    CulpritCandidate,
    Diagnosis,
    Evidence,
    JobFinding,
    Kind,
)
from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.models.diagnosis.verdict_fusion import fuse_findings

RANKS = Ranks({n: Rank(n, f"m{n // 2}", gpu_serial=f"S{n}") for n in range(8)})
IDLE = (
    Probe("log", "idle", 0, "", 8 * MINUTE),
    Probe("collective", "idle", MINUTE, "", 90 * SECOND),
    Probe("stack", "active", None, ""),
)


def finding(name: str, *votes: tuple[int, float], kind: Kind = "hang") -> JobFinding:
    candidates = tuple(CulpritCandidate(rank, name, weight) for rank, weight in votes)
    return JobFinding(kind, f"cause of {name}", candidates)


def verdict(*findings: JobFinding, at: int = 10 * MINUTE) -> Diagnosis:
    return fuse_findings(findings, IDLE, (), ranks=RANKS, at=at)


def test_equally_suspect_ranks_identify_machine() -> None:
    named = verdict(finding("a", (2, STRONG), (3, 0.95 * STRONG)))
    assert (named.rank, named.machine) == (None, "m1")
    named = verdict(finding("a", (2, STRONG), (3, MODERATE)))
    assert (named.rank, named.machine) == (2, "m1")


def test_strong_finding_identifies_rank_and_cause() -> None:
    diagnosis = verdict(finding("a", (3, STRONG)))
    assert (diagnosis.rank, diagnosis.machine, diagnosis.cause) == (3, "m1", "cause of a")
    assert (diagnosis.kind, diagnosis.since, diagnosis.detected_at) == ("hang", 0, 8 * MINUTE)


def test_two_moderate_findings_must_agree() -> None:
    assert verdict(finding("a", (3, MODERATE)), finding("b", (3, MODERATE))).rank == 3
    apart = verdict(finding("a", (3, MODERATE)), finding("b", (5, MODERATE)))
    assert apart.rank is None
    assert [candidate.rank for candidate in apart.also] == [3, 5]


def test_close_second_on_other_machine_prevents_culprit() -> None:
    assert verdict(finding("a", (3, STRONG), (5, 0.75))).rank is None
    assert verdict(finding("a", (3, STRONG), (5, MODERATE))).rank == 3
    assert verdict(finding("a", (2, STRONG), (3, STRONG))).machine == "m1"  # the same machine


def test_late_probe_agrees_with_earlier_stall() -> None:
    log = Probe("log", "idle", 0, "", 8 * MINUTE)
    late = Probe("stack", "idle", HOUR, "", HOUR + 2 * MINUTE, is_late=True)
    assert detect_hang([log, late], 2 * HOUR) == (0, HOUR + 2 * MINUTE)
    assert detect_hang([log, replace(late, is_late=False)], 2 * HOUR) is None
    early, writing = replace(late, since=0), replace(log, since=HOUR)
    assert detect_hang([early, writing], 2 * HOUR) is None  # written while stacks were the same


def test_outsider_in_confirmed_stall_suffices() -> None:
    lone = replace(finding("a", (3, MODERATE)), is_only_outsider=True, observed_at=8 * MINUTE)
    assert verdict(lone).rank == 3
    assert verdict(replace(lone, observed_at=7 * MINUTE)).rank is None
    assert verdict(replace(lone, is_only_outsider=False)).rank is None


def test_blind_probes_leave_kind_unknown() -> None:
    blind = Probe("stack", "blind", None, "no stacks")
    diagnosis = fuse_findings([finding("a", (3, STRONG))], [blind], (), ranks=RANKS, at=0)
    assert (diagnosis.kind, diagnosis.rank, diagnosis.culprits) == ("unknown", None, ())
    assert (diagnosis.cause, diagnosis.since) == ("no stacks", None)
    assert [candidate.rank for candidate in diagnosis.also] == [3]
    active = replace(blind, state="active")
    assert fuse_findings([], [blind, active], (), ranks=RANKS, at=0).kind == "none"


def origins(*ranks: int) -> JobFinding:
    votes = [(rank, STRONG / len(ranks)) for rank in ranks]
    return replace(finding("a", *votes), origins=frozenset(ranks))


@pytest.mark.parametrize(
    ("part", "fault", "machine"),
    [
        ("logs", None, None),
        ("logs", Fault("gpu", "check the program"), None),
        ("logs", Fault("gpu", "replace the GPU", needs_repair=True), "m0"),
        ("logs", Fault("fabric", "check the port"), "m0"),
        ("kernel", Fault("gpu", "check the program"), "m0"),
    ],
)
def test_texts_do_not_accuse_the_only_machine(
    part: str, fault: Fault | None, machine: str | None
) -> None:
    """All errors of a job on one machine are on that machine."""
    candidate = CulpritCandidate(None, "a kernel failed", STRONG, machine="m0", fault=fault)
    crash = JobFinding("crash", "it", (candidate,), evidence=(Evidence(part, "it failed"),))
    alone = Ranks({n: Rank(n, "m0") for n in range(4)})
    assert fuse_findings([crash], [], (), ranks=alone, at=0).machine == machine
    assert fuse_findings([crash], [], (), ranks=RANKS, at=0).machine == "m0"


def test_independent_origins_are_all_culprits() -> None:
    both = verdict(origins(3, 5))
    assert (both.rank, both.machine, both.also) == (None, None, ())
    assert [(culprit.rank, culprit.machine) for culprit in both.culprits] == [(3, "m1"), (5, "m2")]
    assert both.cause == "cause of a"
    assert verdict(finding("a", (3, MODERATE), (5, MODERATE))).culprits == ()


def test_origins_of_one_machine_are_machine() -> None:
    (culprit,) = verdict(origins(2, 3)).culprits
    assert (culprit.rank, culprit.machine) == (None, "m1")


def test_many_origins_have_common_cause() -> None:
    assert len(verdict(origins(1, 3, 5)).culprits) == 3
    assert verdict(origins(1, 3, 5, 7)).culprits == ()


def test_waiting_origin_leaves_doubt() -> None:
    waits = JobFinding("hang", "", waiting=frozenset({3}))
    assert verdict(origins(3, 5), waits).culprits == ()


def test_waiting_rank_is_no_candidate() -> None:
    waits = JobFinding("hang", "", waiting=frozenset({3}))
    assert verdict(finding("a", (3, STRONG)), waits).also == ()


def test_program_error_identifies_no_culprit() -> None:
    deadlock = JobFinding("hang", "a deadlock", is_program_error=True)
    diagnosis = verdict(deadlock, finding("a", (3, STRONG)))
    assert (diagnosis.rank, diagnosis.machine, diagnosis.also) == (None, None, ())


def test_crash_precedes_hang_precedes_slow() -> None:
    findings = [
        finding("slow", (0, STRONG), kind="slow"),
        finding("hang", (1, STRONG), kind="hang"),
    ]
    assert verdict(*findings).kind == "hang"
    assert verdict(*findings, finding("crash", (4, STRONG), kind="crash")).rank == 4
    ended = verdict(*findings, JobFinding("crash", "the time-out of a wait"))
    assert (ended.kind, ended.rank) == (
        "crash",
        1,
    )  # the origin of the hang that the time-out ended


def test_stalled_job_has_no_slow_rank() -> None:
    slow = finding("slow", (0, STRONG), kind="slow")
    saves = [Phase("checkpoint", 0, None)]
    excused = fuse_findings([slow], IDLE, saves, ranks=RANKS, at=10 * MINUTE)
    assert (excused.kind, excused.rank, excused.machine, excused.since) == ("none", None, None, 0)
    assert excused.cause is not None
    assert excused.cause.startswith("the job is saving a checkpoint")
    assert fuse_findings([slow], IDLE[2:], saves, ranks=RANKS, at=10 * MINUTE).kind == "slow"


@pytest.mark.parametrize(("taken", "kind"), [(-MINUTE, "none"), (2 * MINUTE, "hang")])
def test_only_stop_after_stall_start_counts(taken: int, kind: str) -> None:
    stopped = replace(finding("kernel", (0, MODERATE)), is_permanent=True, observed_at=taken)
    guessed = [Phase("absence", 0, None)]
    assert fuse_findings([stopped], IDLE, guessed, ranks=RANKS, at=10 * MINUTE).kind == kind


def test_timed_out_rank_may_be_origin() -> None:
    """After a wrong collective all ranks time out; the wait-for graph shows the differing rank."""
    everybody = JobFinding("crash", "waited", waiting=frozenset(range(8)), after_hang=True)
    graph = finding("wait graph", (4, STRONG))
    assert verdict(everybody, graph).rank == 4
    missing = replace(everybody, candidates=(CulpritCandidate(6, "wrote no error", STRONG),))
    assert verdict(missing).rank == 6
    waits = replace(graph, waiting=frozenset({6}))
    assert verdict(missing, waits).rank == 4  # terminated before its own time-out
    deadlock = JobFinding("hang", "a deadlock", is_program_error=True)
    assert (verdict(missing, deadlock).rank, verdict(missing, deadlock).also) == (None, ())
    raised = finding("crash", (6, STRONG), kind="crash")
    assert verdict(raised, waits).rank == 6


def test_line_of_no_rank_is_no_crash_of_a_job_that_hangs() -> None:
    graph = finding("wait graph", (4, STRONG))
    killed = JobFinding("crash", "the kernel killed node_exporter", is_hearsay=True)
    assert (verdict(killed, graph).kind, verdict(killed, graph).rank) == ("hang", 4)
    assert verdict(replace(killed, is_hearsay=False), graph).kind == "crash"
    working = (replace(probe, state="active", since=None) for probe in IDLE)
    assert fuse_findings([killed], tuple(working), (), ranks=RANKS, at=0).kind == "crash"


def test_observation_before_hang_is_ignored() -> None:
    looked = replace(finding("stacks", (3, STRONG)), observed_at=-1)
    assert verdict(looked).rank is None
    assert verdict(replace(looked, observed_at=1)).rank == 3


def test_hang_needs_two_idle_probes() -> None:
    one = fuse_findings([finding("a", (3, STRONG))], IDLE[:1], (), ranks=RANKS, at=4 * MINUTE)
    assert (one.kind, one.rank, one.evidence) == ("none", None, ())
    moves = (IDLE[0], Probe("metrics", "active", None, ""))
    assert fuse_findings([], moves, (), ranks=RANKS, at=HOUR).kind == "none"


def test_idle_probes_must_agree_in_time() -> None:
    apart = [Probe("log", "idle", 0, ""), Probe("stack", "idle", 6 * MINUTE, "")]
    assert detect_hang(apart, HOUR) is None
    assert detect_hang([apart[0], Probe("stack", "idle", 5 * MINUTE, "")], HOUR) is not None


def test_at_risk_list_does_not_change_strong_verdict() -> None:
    listed = at_risk_finding(["m3"])
    assert listed is not None
    diagnosis = verdict(finding("a", (3, STRONG)), listed)
    assert (diagnosis.rank, [c.machine for c in diagnosis.also]) == (3, ["m3"])
    assert verdict(listed).rank is None


def test_xid_decides_between_two_candidates() -> None:
    events = [HostEvent("m2", "S5", 79, 5), HostEvent("m0", "S0", 31, 5)]  # 31: caused by a program
    hardware = hardware_finding(events, RANKS)
    assert hardware is not None
    assert [(c.rank, c.weight) for c in hardware.candidates] == [(5, MODERATE)]
    assert verdict(hardware).rank is None
    diagnosis = verdict(finding("a", (3, MODERATE), (5, MODERATE)), hardware)
    assert diagnosis.rank == 5
    assert "Xid 79" in str(diagnosis.cause)


def test_lost_unassigned_gpu_counts_for_machine() -> None:
    lost = hardware_finding([HostEvent("m2", "S99", None, 5)], RANKS)
    assert lost is not None
    assert (lost.candidates[0].rank, lost.candidates[0].machine) == (None, "m2")
    assert verdict(finding("a", (3, MODERATE), (5, MODERATE)), lost).rank == 5
    worn = hardware_finding([HostEvent("m2", None, 63, 5)], RANKS)
    assert worn is not None
    assert worn.candidates[0].weight == WEAK


def test_error_without_xid_is_evidence_by_severity() -> None:
    def weight(*, critical: bool) -> tuple[str, float]:
        event = HostEvent("m2", "S5", None, 5, error="poison", is_critical=critical)
        hardware = hardware_finding([event], RANKS)
        assert hardware is not None
        return hardware.candidates[0].why, hardware.candidates[0].weight

    why = "GPU S5 of m2 had the error `poison`"
    assert [weight(critical=True), weight(critical=False)] == [(why, MODERATE), (why, WEAK)]


# --- phases ---------------------------------------------------------------------------------------


def phases(*spans: tuple[int, int | None], kind: str = "checkpoint") -> list[Phase]:
    return [
        Phase(kind, begin * MINUTE, None if end is None else end * MINUTE)  # type: ignore[arg-type]
        for begin, end in spans
    ]


_FIVE = [(0, 4), (10, 13), (20, 22), (30, 31), (40, 44)]


@pytest.mark.parametrize(
    ("spans", "minute", "is_quiet"),
    [
        ([(0, 4), (10, None)], 40, True),  # one finished phase: half an hour
        ([(0, 4), (10, None)], 41, False),
        ([*_FIVE, (50, None)], 62, True),  # 3 x 4 minutes
        ([*_FIVE, (50, None)], 63, False),
        ([(0, None)], 120, True),  # no finished phase
        ([(0, None)], 121, False),
        ([(0, 4), (10, 12)], 12.9, True),  # samples may lag by a minute
        ([(0, 4), (10, 12)], 13, False),  # ended
        ([(0, 4), (10, 12)], 11, True),  # during the phase
        ([(20, None)], 10, False),  # before the phase
    ],
)
def test_phase_suppresses_up_to_its_limit(
    spans: list[tuple[int, int | None]], minute: float, is_quiet: bool
) -> None:
    assert (quiet_phase(phases(*spans), round(minute * MINUTE)) is not None) == is_quiet


def test_restart_ends_interrupted_phase() -> None:
    """A checkpoint interrupted by a restart is neither open nor a length to learn from."""
    cut = phases((0, None)) + phases((10, 10), kind="restart")
    assert quiet_phase(cut, HOUR) is None
    assert quiet_phase(cut + phases((20, None)), 139 * MINUTE) is not None
    restarting = phases((10, None), kind="restart")
    assert quiet_phase(restarting, HOUR) is not None


def test_phase_suppresses_hang() -> None:
    quiet = fuse_findings(
        [finding("a", (3, STRONG))], IDLE, phases((0, None)), ranks=RANKS, at=10 * MINUTE
    )
    assert (quiet.kind, quiet.rank) == ("none", None)


def test_ranks_of_one_machine_identify_machine() -> None:
    diagnosis = verdict(finding("a", (2, MODERATE), (3, MODERATE)))
    assert (diagnosis.rank, diagnosis.machine) == (None, "m1")
    assert [candidate.rank for candidate in diagnosis.also] == [2, 3]
    assert (
        verdict(finding("a", (2, MODERATE), (3, MODERATE)), finding("b", (5, STRONG))).machine
        != "m1"
    )


@pytest.mark.parametrize(
    ("part", "accused", "machine"),
    [
        ("stacks", (4, 5, 6, 7), "m1"),
        ("logs", (4, 5, 6, 7), None),  # a launcher's hints about several ranks
        ("stacks", (4, 5, 6), None),
        ("stacks", (3, 4, 5, 6, 7), None),
    ],
)
def test_whole_machine_is_no_sum_of_hints(
    part: str, accused: tuple[int, ...], machine: str | None
) -> None:
    ranks = Ranks({n: Rank(n, f"m{n // 4}") for n in range(8)})
    hints = finding("a", *((rank, WEAK) for rank in accused))
    hints = replace(hints, evidence=(Evidence(part, "waits for its device", None, None),))
    hints = replace(
        hints, candidates=tuple(replace(c, weight=0.76 * c.weight) for c in hints.candidates)
    )
    named = fuse_findings([hints, hints], IDLE, (), ranks=ranks, at=10 * MINUTE)
    assert named.machine == machine
    only = Ranks({rank: Rank(rank, "m1") for rank in accused})
    assert fuse_findings([hints, hints], IDLE, (), ranks=only, at=10 * MINUTE).machine is None


def test_one_finding_counts_at_most_strong() -> None:
    several = finding("a", *((rank, MODERATE) for rank in (0, 1)))
    both = verdict(several, finding("b", (2, MODERATE), (3, MODERATE)))
    assert (both.rank, both.machine) == (None, None)


def test_rarely_writing_job_has_longer_limit() -> None:
    marks = [20 * MINUTE * n for n in range(8)]
    last = marks[-1]
    assert log_probe({0: last}, last + 30 * MINUTE, marks).state == "active"
    probe = log_probe({0: last}, last + 41 * MINUTE, marks)
    assert (probe.state, probe.since, probe.confirmed_at) == ("idle", last, last + 40 * MINUTE)
    assert log_probe({0: last}, last + 9 * MINUTE, marks[-2:]).state == "idle"  # too few gaps


def test_restart_does_not_cut_its_own_step() -> None:
    restarts = [Phase("restart", 1000 * SECOND + n * SECOND, 0) for n in range(4)]
    begun = Phase("first step", 1000 * SECOND, None)
    assert quiet_phase([*restarts, begun], 1600 * SECOND) == begun
    before = Phase("checkpoint", 999 * SECOND, None)
    assert quiet_phase([*restarts, before], 1600 * SECOND) is None
