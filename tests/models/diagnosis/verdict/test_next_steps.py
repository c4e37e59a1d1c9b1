"""Next steps name only culprits, and replace no machine for an error of the program."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.log_pattern import Scope
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import (
    STRONG,
    CulpritCandidate,
    Diagnosis,
    Evidence,
    Kind,
)
from forewarn.models.diagnosis.verdict.next_steps import next_steps
from forewarn.models.diagnosis.verdict.restart_point import RestartPoint

MACHINES = ("alpha-1", "bravo-2", "carol-3")
BROKEN_GPU = Fault("gpu", "reset the GPU", "Xid 95", needs_repair=True)
BAD_BATCH = Fault("application", "check its stack trace", "ValueError: empty batch.")
BLOCKED_LOADER = Fault("application", "fix the data loader: it blocks in __next__")
FULL_DISK = Fault("storage", "free space", "No space left on device")


def culprit(
    rank: int | None, machine: str | None = None, fault: Fault | None = None
) -> CulpritCandidate:
    return CulpritCandidate(rank, "why", STRONG, machine=machine, fault=fault)


def verdict(kind: Kind, *culprits: CulpritCandidate) -> Diagnosis:
    first = culprits[0] if len(culprits) == 1 else None
    return Diagnosis(
        kind=kind,
        rank=first.rank if first else None,
        machine=first.machine if first else None,
        culprits=culprits,
        also=(),
        since=None,
        detected_at=None,
        cause=None,
        probes=(),
        evidence=(),
        evidence_from=(),
        blind=(),
    )


def test_broken_machine_is_replaced() -> None:
    crash = replace(
        verdict("crash", culprit(19, "carol-3", BROKEN_GPU)),
        restart=RestartPoint(41200, is_saved=True),
    )
    assert next_steps(crash) == (
        "Replace carol-3, then restart from step 41,200, the last checkpoint.",
        "Before carol-3 runs jobs again: reset the GPU.",
    )


def test_two_broken_machines_are_replaced_together() -> None:
    crash = verdict("crash", culprit(1, "alpha-1", BROKEN_GPU), culprit(9, "bravo-2", BROKEN_GPU))
    assert next_steps(crash)[0] == (
        "Replace alpha-1 and bravo-2, then restart from the last checkpoint."
    )


def test_broken_machine_without_name_is_described() -> None:
    crash = verdict("crash", culprit(3, None, BROKEN_GPU))
    assert next_steps(crash)[0].startswith("Replace the machine of rank 3, then restart")


def test_lost_machine_is_replaced() -> None:
    crash = verdict("crash", culprit(None, "alpha-1"))
    assert next_steps(crash) == (
        "Replace alpha-1, then restart from the last checkpoint.",
        "Before alpha-1 runs jobs again: test it with `forewarn diagnose nodes`.",
    )


def test_program_error_shows_its_line() -> None:
    crash = replace(
        verdict("crash", culprit(5, "alpha-1", BAD_BATCH)), restart=RestartPoint(29, is_saved=False)
    )
    assert next_steps(crash) == (
        "Fix the error of rank 5: ValueError: empty batch; check its stack trace.",
        "Then restart from the last checkpoint (the last step seen is 29).",
    )


def test_blocked_loader_is_fixed() -> None:
    assert next_steps(verdict("hang", culprit(5, "alpha-1", BLOCKED_LOADER))) == (
        "Fix the data loader: it blocks in __next__.",
        "Cancel the job, then restart from the last checkpoint.",
    )


def test_error_of_all_ranks_is_fixed() -> None:
    crash = replace(verdict("crash"), fault=BAD_BATCH)
    assert next_steps(crash)[0].startswith("Fix the error of the program: ValueError: empty batch;")
    full = replace(verdict("crash"), fault=FULL_DISK)
    assert next_steps(full)[0] == "Solve this error: No space left on device; free space."


def test_full_disk_is_no_reason_for_replacement() -> None:
    assert next_steps(verdict("crash", culprit(6, "bravo-2", FULL_DISK)))[0] == (
        "Rank 6 on bravo-2: free space."
    )


def test_unexplained_rank_is_looked_at_first() -> None:
    hang = verdict("hang", culprit(6, "bravo-2"), culprit(7, "carol-3"))
    assert next_steps(hang) == (
        "Take stacks of rank 6 on bravo-2 and rank 7 on carol-3, if the job still runs: "
        "they show what blocks.",
        "If the program does not explain it, replace bravo-2 and carol-3.",
        "Cancel the job, then restart from the last checkpoint.",
    )
    frames = Evidence("stacks", "says", 6, details={"frames": ["poll (a.py:1)", "b"]})
    seen = replace(verdict("hang", culprit(6, "bravo-2")), evidence=(frames,))
    assert next_steps(seen)[0] == (
        "Find out why rank 6 on bravo-2 is in poll (a.py:1) while the others wait."
    )


def test_waited_for_machine_is_looked_at_first() -> None:
    hang = verdict("hang", culprit(None, "alpha-1"))
    assert next_steps(hang)[0].startswith("Take stacks of the ranks on alpha-1, if the job")
    assert next_steps(hang)[1] == "If the program does not explain it, replace alpha-1."


def test_slow_machine_is_drained_later() -> None:
    assert next_steps(verdict("slow", culprit(6, "bravo-2")))[0] == (
        "Drain bravo-2 at the next checkpoint: it delays the other ranks."
    )


def test_ended_job_is_submitted_again() -> None:
    ended = replace(
        verdict("ended"),
        fault=Fault("platform", "ask for more time"),
        restart=RestartPoint(700, is_saved=True),
    )
    assert next_steps(ended) == (
        "Ask for more time.",
        "Submit the job again from step 700, the last checkpoint.",
    )


def test_unknown_says_what_is_missing() -> None:
    unknown = replace(verdict("unknown"), blind=("exits", "stacks", "flight"))
    assert next_steps(unknown) == (
        "Add stacks and flight recorder dumps, then diagnose the job again; "
        "`forewarn diagnose collect` saves them while a job runs.",
    )


def test_stalled_job_is_left_alone() -> None:
    (step,) = next_steps(replace(verdict("none"), since=1))
    assert step.startswith("Do not cancel the job yet")
    assert next_steps(verdict("none")) == ()


faults = st.builds(
    Fault,
    st.sampled_from(get_args(Scope)),
    st.sampled_from(["check it", "fix it"]),
    st.sampled_from(["", "Xid 79", "x" * 500]),
    st.just(False),
) | st.just(BROKEN_GPU)
candidates = st.builds(
    CulpritCandidate,
    st.none() | st.integers(0, 9),
    st.just("why"),
    st.just(STRONG),
    st.none(),
    st.sampled_from(MACHINES),
    st.none() | faults,
)
restarts = st.none() | st.builds(RestartPoint, st.integers(0, 10**6), st.booleans())


@st.composite
def verdicts(draw: st.DrawFn) -> Diagnosis:
    kind = draw(st.sampled_from(get_args(Kind)))
    accused = kind in ("hang", "crash", "slow", "jitter")
    return replace(
        verdict(kind, *draw(st.lists(candidates, max_size=3 if accused else 0))),
        also=tuple(draw(st.lists(candidates, max_size=3))),
        fault=draw(st.none() | faults),
        restart=draw(restarts),
        since=draw(st.none() | st.just(5)),
        blind=tuple(draw(st.lists(st.sampled_from(["logs", "stacks", "flight", "metrics"])))),
    )


@given(verdicts())
def test_named_machines_are_culprits(job: Diagnosis) -> None:
    text = " ".join(next_steps(job))
    named = {machine for machine in MACHINES if machine in text}
    assert named <= {each.machine for each in job.culprits}


@given(verdicts())
def test_program_errors_replace_no_machine(job: Diagnosis) -> None:
    program = [replace(each, fault=BAD_BATCH) for each in job.culprits]
    text = " ".join(next_steps(replace(job, culprits=tuple(program), fault=BAD_BATCH)))
    assert "eplace" not in text
    assert "Drain" not in text


@given(verdicts())
def test_problems_always_have_next_steps(job: Diagnosis) -> None:
    steps = next_steps(job)
    assert bool(steps) is (job.kind != "none" or job.since is not None)
    for sentence in steps:
        assert sentence[0].isupper()
        assert sentence.endswith(".")
